//! Stop strings, exact across token boundaries.

use super::marks::{cut, partial};

/// Looks for stop strings. The one that is complete first wins; of those complete at the same
/// place, the longest. Nothing of it is ever let through.
#[derive(Debug, Default)]
pub struct Stops {
    /// The caller's, then the family's.
    stops: Vec<String>,
    /// How many are the caller's.
    own: usize,
    held: String,
}

impl Stops {
    /// Looks for the caller's strings, and for texts that end a turn in the model's family; empty
    /// ones are never found.
    #[must_use]
    pub fn new(stops: Vec<String>, ends: Vec<String>) -> Self {
        let mut all: Vec<String> = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        let own = all.len();
        all.extend(ends.into_iter().filter(|end| !end.is_empty()));
        Self { stops: all, own, held: String::new() }
    }

    /// The text that can be let through, and the stop string if one is complete. Of `bound` text a
    /// grammar says where it ends: only the caller's own strings are looked for.
    pub fn push(&mut self, text: &str, bound: bool) -> (String, Option<String>) {
        let count = if bound { self.own } else { self.stops.len() };
        if count == 0 && self.held.is_empty() {
            return (text.to_owned(), None);
        }
        self.held.push_str(text);
        let stops = || self.stops.iter().take(count);
        let found = stops()
            .filter_map(|stop| {
                let start = self.held.find(stop.as_str())?;
                Some((start + stop.len(), start, stop))
            })
            .min_by_key(|&(end, start, _)| (end, start));
        if let Some((_, start, stop)) = found {
            let stop = stop.clone();
            let mut text = std::mem::take(&mut self.held);
            text.truncate(start);
            return (text, Some(stop));
        }
        let hold = stops().map(|stop| partial(&self.held, stop)).max().unwrap_or(0);
        let (free, rest) = cut(&self.held, self.held.len() - hold);
        let (free, rest) = (free.to_owned(), rest.to_owned());
        self.held = rest;
        (free, None)
    }

    /// What was held back when nothing follows.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads character by character: the first end at which any stop string is complete.
    fn oracle(text: &str, stops: &[String]) -> (String, Option<String>) {
        for (end, _) in text.char_indices().skip(1).chain([(text.len(), ' ')]) {
            let found = stops
                .iter()
                .filter(|stop| !stop.is_empty() && text[..end].ends_with(stop.as_str()))
                .max_by_key(|stop| stop.len());
            if let Some(stop) = found {
                return (text[..end - stop.len()].to_owned(), Some(stop.clone()));
            }
        }
        (text.to_owned(), None)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_cut_ends_at_the_same_place(
            tokens in proptest::collection::vec("[abé]{0,4}", 0..14),
            stops in proptest::collection::vec("[abé]{0,4}", 0..4),
        ) {
            let text = tokens.concat();
            let mut seen = String::new();
            let mut ended = None;
            let (own, ends) = stops.split_at(stops.len() / 2);
            let mut matcher = Stops::new(own.to_vec(), ends.to_vec());
            for token in &tokens {
                let (free, stop) = matcher.push(token, false);
                seen.push_str(&free);
                if stop.is_some() {
                    ended = stop;
                    break;
                }
            }
            if ended.is_none() {
                seen.push_str(&matcher.finish());
            }
            prop_assert_eq!((seen, ended), oracle(&text, &stops));
        }
    }

    #[test]
    fn only_what_could_begin_a_stop_string_is_held_back() {
        let mut stops = Stops::new(vec!["\n\nUser:".into()], Vec::new());
        assert_eq!(stops.push("yes\n", false), ("yes".into(), None));
        assert_eq!(stops.push("\nUse", false), (String::new(), None));
        assert_eq!(stops.push("d car", false), ("\n\nUsed car".into(), None));
    }

    #[test]
    fn in_bound_text_only_the_callers_own_are_found() {
        let stops = || Stops::new(vec!["END".into()], vec!["<end>".into()]);
        let mut bound = stops();
        assert_eq!(bound.push("a <e", false), ("a ".into(), None));
        assert_eq!(bound.push("nd> <end> E", true), ("<end> <end> ".into(), None));
        assert_eq!(bound.push("ND", true), (String::new(), Some("END".into())));
        assert_eq!(stops().push("a <end>", false), ("a ".into(), Some("<end>".into())));
    }
}
