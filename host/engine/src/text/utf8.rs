//! Whole characters out of bytes that are cut anywhere.

/// Holds back an unfinished character; replaces what can never become one. The text is exactly
/// what `String::from_utf8_lossy` makes of all bytes at once.
#[derive(Debug, Default)]
pub struct Utf8 {
    held: Vec<u8>,
}

impl Utf8 {
    /// The characters these bytes complete.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.held.len());
        let mut used = 0;
        for chunk in self.held.utf8_chunks() {
            text.push_str(chunk.valid());
            used += chunk.valid().len();
            let invalid = chunk.invalid();
            // Only the end of everything can be an unfinished character.
            let unfinished = used + invalid.len() == self.held.len()
                && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if !invalid.is_empty() && !unfinished {
                text.push(char::REPLACEMENT_CHARACTER);
                used += invalid.len();
            }
        }
        self.held.drain(..used);
        text
    }

    /// What is left when nothing follows.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_cut_gives_the_same_text(
            parts in proptest::collection::vec(
                prop_oneof![
                    "\\PC{0,4}".prop_map(String::into_bytes),
                    proptest::collection::vec(any::<u8>(), 0..4),
                    Just(vec![0xF0, 0x9F]),
                    Just(vec![0xE2, 0x82]),
                ],
                0..12,
            ),
        ) {
            let mut utf8 = Utf8::default();
            let mut text = String::new();
            for part in &parts {
                text.push_str(&utf8.push(part));
            }
            text.push_str(&utf8.finish());
            let whole = parts.concat();
            prop_assert_eq!(text, String::from_utf8_lossy(&whole));
        }
    }

    #[test]
    fn a_character_comes_when_it_is_whole() {
        let mut utf8 = Utf8::default();
        let seen: Vec<String> = "€".bytes().map(|byte| utf8.push(&[byte])).collect();
        assert_eq!(seen, ["", "", "€"]);
        assert_eq!(utf8.finish(), "");
    }
}
