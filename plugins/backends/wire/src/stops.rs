//! Stop strings applied here, for a server that takes fewer than the caller has. The text before the
//! earliest one passes; the string itself and what follows do not.

use gristmill_plugin::prelude::*;

/// The strings that are looked for, and the end of the text that may be the beginning of one.
#[derive(Debug, Default)]
pub struct Stops {
    strings: Vec<String>,
    held: String,
}

impl Stops {
    /// Looks for these.
    #[must_use]
    pub fn new(strings: Vec<String>) -> Self {
        Self { strings, held: String::new() }
    }

    /// More text: what is certainly no part of a stop string, and the string that was found.
    pub fn push(&mut self, text: &str) -> (String, Option<String>) {
        self.held.push_str(text);
        let found = self
            .strings
            .iter()
            .filter(|stop| !stop.is_empty())
            .filter_map(|stop| Some((self.held.find(stop.as_str())?, stop)))
            .min_by_key(|(at, stop)| (*at, core::cmp::Reverse(stop.len())));
        if let Some((at, stop)) = found {
            let stop = stop.clone();
            self.held.truncate(at);
            return (core::mem::take(&mut self.held), Some(stop));
        }
        let keep = self.held.len() - self.beginning();
        let rest = self.held.split_off(keep);
        (core::mem::replace(&mut self.held, rest), None)
    }

    /// Whether something is held back.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// What was held back, when nothing follows.
    pub fn end(&mut self) -> String {
        core::mem::take(&mut self.held)
    }

    /// How many bytes at the end of the text are the beginning of a stop string.
    fn beginning(&self) -> usize {
        let longest = |stop: &String| {
            (1..stop.len())
                .rev()
                .find(|&n| stop.get(..n).is_some_and(|head| self.held.ends_with(head)))
        };
        self.strings.iter().filter_map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way to cut a text in two gives the same answer.
    #[test]
    fn a_stop_is_found_across_every_cut() {
        for (text, stops, before, stop) in [
            ("alpha beta gamma delta", &["beta gamma"][..], "alpha ", Some("beta gamma")),
            ("aab", &["ab"], "a", Some("ab")),
            ("größe ß end", &["ß e", "ß "], "größe ", Some("ß e")),
            ("no stop here", &["stopp", "xx", ""], "no stop here", None),
        ] {
            for cut in (0..=text.len()).filter(|&at| text.is_char_boundary(at)) {
                let mut seek = Stops::new(stops.iter().map(|&stop| stop.to_owned()).collect());
                let mut passed = String::new();
                let mut found = None;
                for piece in [&text[..cut], &text[cut..]] {
                    if found.is_none() {
                        let (text, stop) = seek.push(piece);
                        passed.push_str(&text);
                        found = stop;
                    }
                }
                if found.is_none() {
                    passed.push_str(&seek.end());
                }
                let shown = format!("{text} cut at {cut}");
                assert_eq!(passed, before, "{shown}");
                // Of two that begin at the same place the one that is whole first ends the text.
                if stops.len() == 1 {
                    assert_eq!(found.as_deref(), stop, "{shown}");
                }
            }
        }
    }
}
