//! Seals: the first line of a machine-written file is the SHA-256 of all that follows, so that a
//! changed byte is told from an approved one. A seal guards against damage; against intent there are
//! signatures and the review of the diff.

use crate::sha256;

const HEAD: &str = "seal = \"";

/// The text with its seal in front.
pub(crate) fn seal(text: &str) -> String {
    format!("{HEAD}{}\"\n{text}", sha256(text.as_bytes()))
}

/// The text behind the seal.
///
/// # Errors
/// No seal, or one of another text.
pub(crate) fn open(sealed: &str) -> Result<&str, String> {
    let (seal, text) = sealed
        .strip_prefix(HEAD)
        .and_then(|rest| rest.split_once("\"\n"))
        .ok_or("expected a seal in the first line; `cargo xtask ledger seal` writes it")?;
    let found = sha256(text.as_bytes());
    if seal == found {
        Ok(text)
    } else {
        Err(format!(
            "the seal is of other content (it says {seal}, found {found}): restore the file, or review it and run `cargo xtask ledger seal`"
        ))
    }
}

/// The text behind the seal, whether the seal is right or not: for who seals it anew.
pub(crate) fn strip(text: &str) -> &str {
    match text.strip_prefix(HEAD) {
        Some(rest) => rest.split_once('\n').map_or("", |(_, text)| text),
        None => text,
    }
}
