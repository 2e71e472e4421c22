//! What two spellings of a model's name have in common.
//!
//! A name is `[host/][namespace/]model[:tag]`. Upper and lower case are one, `:latest` is the
//! missing tag, and the default registry's prefix is the missing prefix. Nothing else is equal:
//! another tag is another model.

use gristmill_core::{Error, Result, capability::ModelInfo};
/// [`key`] for a name that comes from the store, a back-end or a file, where every spelling is taken.
pub use gristmill_policies::rules::fold;

/// Longest name accepted, in bytes.
pub const LONGEST: usize = 512;

/// The form in which names are compared.
///
/// # Errors
/// `invalid-request` for a name that is empty, longer than [`LONGEST`], or holds white space or
/// control characters.
pub fn key(name: &str) -> Result<String> {
    let name = name.trim();
    if name.is_empty() {
        return Err(Error::invalid("model is required"));
    }
    if name.len() > LONGEST {
        return Err(Error::invalid(format!(
            "model name has {} bytes, at most {LONGEST} are allowed",
            name.len()
        )));
    }
    if name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(Error::invalid("model name holds white space or control characters"));
    }
    Ok(fold(name))
}

/// Whether a model has a name with this key, or this is the key of its id.
#[must_use]
pub fn answers_to(info: &ModelInfo, key: &str) -> bool {
    fold(&info.id) == key || info.names.iter().any(|name| fold(name) == key)
}

/// The name with its tag spelled out, as Ollama's listings have it.
#[must_use]
pub fn with_tag(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.contains(':') { name.to_owned() } else { format!("{name}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_model_meet_and_others_do_not() {
        let same = [
            ("smollm2", "SmolLM2:latest"),
            ("smollm2", "registry.ollama.ai/library/smollm2:latest"),
            ("smollm2:135m", "library/SMOLLM2:135M"),
            ("hf.co/User/Repo:Q4_K_M", "hf.co/user/repo:q4_k_m"),
        ];
        for (a, b) in same {
            assert_eq!(key(a).unwrap(), key(b).unwrap(), "{a} {b}");
        }
        let different = [("smollm2", "smollm2:135m"), ("smollm2", "smollm"), ("a/x", "b/x")];
        for (a, b) in different {
            assert_ne!(key(a).unwrap(), key(b).unwrap(), "{a} {b}");
        }
    }

    #[test]
    fn names_that_cannot_be_names_are_refused() {
        for name in ["", "   ", "a b", "a\0b", "a\nb", &"x".repeat(513)] {
            assert!(key(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn tags_are_spelled_out_once() {
        assert_eq!(with_tag("smollm2"), "smollm2:latest");
        assert_eq!(with_tag("hf.co:443/user/repo"), "hf.co:443/user/repo:latest");
        assert_eq!(with_tag("a:b"), "a:b");
    }
}
