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
            .map(|name| (distance(key, name), name))
            .min()
            .filter(|(distance, name)| *distance <= name.len() / 2);
        return Err(match nearest {
            Some((_, name)) => format!("unknown key {key:?} {place}; did you mean {name:?}?"),
            None => format!("unknown key {key:?} {place}; known are {}", known.join(", ")),
        });
    }
    Ok(())
}

/// Edits (insert, remove, replace) between two short words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        let mut left = i + 1;
        for ((to, above), diagonal) in b.iter().zip(row.iter().skip(1)).zip(&row) {
            left = (diagonal + usize::from(from != *to)).min(above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn edits_are_counted() {
        for (a, b, edits) in
            [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("call-ms", "cal-ms", 1), ("ab", "ba", 2)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }
}
