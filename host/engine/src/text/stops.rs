//! Stop strings, exact across token boundaries.

use super::marks::{cut, partial};

/// Looks for stop strings. The one that is complete first wins; of those complete at the same
/// place, the longest. Nothing of it is ever let through.
#[derive(Debug, Default)]
pub struct Stops {
    stops: Vec<String>,
    held: String,
}

impl Stops {
    /// Looks for these; empty ones are never found.
    #[must_use]
    pub fn new(stops: Vec<String>) -> Self {
        Self {
            stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(),
            held: String::new(),
        }
    }

    /// The text that can be let through, and the stop string if one is complete.
    pub fn push(&mut self, text: &str) -> (String, Option<String>) {
        if self.stops.is_empty() {
            return (text.to_owned(), None);
        }
        self.held.push_str(text);
        let found = self
            .stops
            .iter()
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
        let hold = self.stops.iter().map(|stop| partial(&self.held, stop)).max().unwrap_or(0);
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
            let mut matcher = Stops::new(stops.clone());
            for token in &tokens {
                let (free, stop) = matcher.push(token);
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
        let mut stops = Stops::new(vec!["\n\nUser:".into()]);
        assert_eq!(stops.push("yes\n"), ("yes".into(), None));
        assert_eq!(stops.push("\nUse"), (String::new(), None));
        assert_eq!(stops.push("d car"), ("\n\nUsed car".into(), None));
    }
}
