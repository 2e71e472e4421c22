//! Reading policy files: one page each, by name, in a fixed order; what is not known is refused.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use crate::PolicyError;

/// A policy is a page of text; a longer file is not one.
const MAX_BYTES: u64 = 64 << 10;

/// What a policy folder holds.
const FOLDERS: [&str; 4] = ["grants", "blocks", "parameters", "profiles"];
/// Files beside those folders. The second is not a policy: in the source tree the folder is a crate.
const FILES: [&str; 2] = ["approvals.toml", "Cargo.toml"];

/// A page of text.
///
/// # Errors
/// [`PolicyError::Io`]; [`PolicyError::TooLong`].
pub(crate) fn read(path: &Path) -> Result<String, PolicyError> {
    let io = |source| PolicyError::Io { path: path.to_owned(), source };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(io)?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(PolicyError::TooLong { path: path.to_owned(), most: MAX_BYTES });
    }
    Ok(text)
}

/// Refuses TOML files, and folders of them, that would not be read: a misspelt folder must not silently
/// be no policy.
///
/// # Errors
/// [`PolicyError::Unknown`] for the first one.
pub(crate) fn known(dir: &Path) -> Result<(), PolicyError> {
    for path in entries(dir)? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let folder = path.is_dir();
        let unread = match folder {
            true => !FOLDERS.contains(&name) && entries(&path)?.iter().any(|it| is_toml(it)),
            false => is_toml(&path) && !FILES.contains(&name),
        };
        if unread {
            let reason = format!(
                "policies are read from {} and {}; nothing else would be kept to",
                FOLDERS.join("/, ") + "/",
                FILES.first().copied().unwrap_or_default()
            );
            return Err(PolicyError::Unknown { path, reason });
        }
    }
    Ok(())
}

/// Each policy file in `dir/folder`, in the order of names. Text for people (`*.md`) and what editors
/// leave (`.x`, `x~`) may lie beside them, and nothing else.
pub(crate) fn each<T>(
    dir: &Path,
    folder: &'static str,
    parse: impl Fn(&str, &str) -> Result<T, String>,
) -> impl Iterator<Item = Result<T, PolicyError>> {
    let paths = entries(&dir.join(folder));
    let (paths, failure) = match paths {
        Ok(paths) => (paths, None),
        Err(error) => (Vec::new(), Some(Err(error))),
    };
    let read = move |path: PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if name.starts_with('.') || name.ends_with('~') || name.ends_with(".md") {
            return None;
        }
        let Some(id) = name.strip_suffix(".toml").filter(|id| is_id(id)) else {
            let reason = format!(
                "expected files in {folder}/ named <id>.toml, the id of small letters, digits, -, _ and ."
            );
            return Some(Err(PolicyError::Unknown { path, reason }));
        };
        let parsed = read(&path).and_then(|text| {
            parse(id, &text).map_err(|reason| PolicyError::InvalidFile { folder, path, reason })
        });
        Some(parsed)
    };
    failure.into_iter().chain(paths.into_iter().filter_map(read))
}

/// What lies in a folder, sorted; nothing where there is no folder.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, PolicyError> {
    let io = |source| PolicyError::Io { path: folder.to_owned(), source };
    let listed = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(io)?,
    };
    let mut paths =
        listed.map(|entry| entry.map(|it| it.path())).collect::<Result<Vec<_>, _>>().map_err(io)?;
    paths.sort();
    Ok(paths)
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

/// Goes into headers and command lines as it is.
fn is_id(id: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
    !id.is_empty() && id.len() <= 64 && id.bytes().all(plain)
}
