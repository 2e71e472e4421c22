//! Split files: `NAME-00001-of-000NN.gguf` and its siblings, opened from the first.

use std::path::{Path, PathBuf};

use super::{map::Bytes, read::Header};
use crate::{ModelError, Result};

/// An integer key of the split, if the file has it.
fn number(path: &Path, header: &Header, bytes: &[u8], key: &str) -> Result<Option<u64>> {
    match header.get(bytes, key) {
        None => Ok(None),
        Some(value) => match value.int().and_then(|value| u64::try_from(value).ok()) {
            Some(value) => Ok(Some(value)),
            None => Err(ModelError::malformed(path, key, "a whole number", value.name())),
        },
    }
}

/// The paths of the parts after the first; none for a file that is not split.
pub(super) fn others(path: &Path, header: &Header, bytes: &[u8]) -> Result<Vec<PathBuf>> {
    let count = number(path, header, bytes, "split.count")?.unwrap_or(0);
    if count <= 1 {
        return Ok(Vec::new());
    }
    let no = number(path, header, bytes, "split.no")?.unwrap_or(0);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let suffix = |part: u64| format!("-{part:05}-of-{count:05}.gguf");
    let Some(stem) = name.strip_suffix(&suffix(no.saturating_add(1))) else {
        return Err(ModelError::malformed(
            path,
            "file name",
            format!(
                "NAME{}, because it is part {} of {count}",
                suffix(no.saturating_add(1)),
                no.saturating_add(1)
            ),
            name,
        ));
    };
    if no != 0 {
        return Err(ModelError::malformed(
            path,
            "split.no",
            format!("the first part; open {stem}{}", suffix(1)),
            format!("part {}", no.saturating_add(1)),
        ));
    }
    // The format counts parts in 16 bits, so this list is small whatever the file says.
    let count = u16::try_from(count)
        .map_err(|_| ModelError::malformed(path, "split.count", "at most 65535", count))?;
    Ok((2..=u64::from(count))
        .map(|part| path.with_file_name(format!("{stem}{}", suffix(part))))
        .collect())
}

/// Checks that the parts say that they belong together.
pub(super) fn check(path: &Path, parts: &[(PathBuf, Bytes, Header)]) -> Result<()> {
    if parts.len() <= 1 {
        return Ok(());
    }
    for (index, (path, bytes, header)) in parts.iter().enumerate() {
        let bytes = bytes.as_slice();
        let count = number(path, header, bytes, "split.count")?.unwrap_or(0);
        if count != parts.len() as u64 {
            return Err(ModelError::malformed(path, "split.count", parts.len().to_string(), count));
        }
        let no = number(path, header, bytes, "split.no")?.unwrap_or(0);
        if no != index as u64 {
            return Err(ModelError::malformed(path, "split.no", index.to_string(), no));
        }
    }
    if let Some((_, bytes, header)) = parts.first()
        && let Some(expected) = number(path, header, bytes.as_slice(), "split.tensors.count")?
    {
        let found: usize = parts.iter().map(|(_, _, header)| header.rows.len()).sum();
        if expected != found as u64 {
            return Err(ModelError::malformed(
                path,
                "split.tensors.count",
                expected.to_string(),
                found,
            ));
        }
    }
    Ok(())
}
