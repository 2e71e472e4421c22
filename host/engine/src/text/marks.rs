//! The one question all stages ask: how much of a text's end could be the beginning of a mark?

/// Length in bytes of the longest suffix of `text` that is a proper prefix of `mark`.
pub(super) fn partial(text: &str, mark: &str) -> usize {
    let longest = mark.len().saturating_sub(1).min(text.len());
    (1..=longest)
        .rev()
        .find(|&length| {
            text.as_bytes().get(text.len() - length..) == mark.as_bytes().get(..length)
                && text.is_char_boundary(text.len() - length)
        })
        .unwrap_or(0)
}

/// Splits before byte `at`, which lies on a character's edge; beyond the end is the end.
pub(super) fn cut(text: &str, at: usize) -> (&str, &str) {
    text.split_at_checked(at).unwrap_or((text, ""))
}
