//! Unknown keys are refused with the nearest known one: a misspelt limit must not silently be the
//! default.

/// Checks the keys of a table.
///
/// # Errors
/// The first unknown key, with the nearest known one where one is near.
pub(crate) fn check(
    place: &str,
    table: &toml::Table,
    known: &[&'static str],
) -> Result<(), String> {
    for key in table.keys() {
        if known.contains(&key.as_str()) {
            continue;
        }
        let nearest = known
            .iter()
            .map(|name| (strsim::levenshtein(key, name), name))
            .min()
            .filter(|(distance, name)| *distance <= name.len() / 2);
        return Err(match nearest {
            Some((_, name)) => format!("unknown key {key:?} {place}; did you mean {name:?}?"),
            None => format!("unknown key {key:?} {place}; known are {}", known.join(", ")),
        });
    }
    Ok(())
}
