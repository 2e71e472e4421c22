//! Models on the Hugging Face hub or a server that speaks its API: which files a source means.
//! [`super::download`] brings them.

use serde::Deserialize;

use super::{
    Store,
    digest::Digest,
    download::{Wanted, download},
    error::{Result, StoreError, shorten},
    http::Client,
    import::Fetched,
    layout::{Staging, part_name},
    name::Name,
    progress::{Progress, Reporter, Stage},
    source::{Repo, siblings, split_of},
};

/// The label taken when none is asked for and there are several.
const USUAL: &str = "Q4_K_M";
const MAX_PARTS: usize = 1000;

/// The hub's description of a revision; the parts that matter here.
#[derive(Debug, Deserialize)]
struct Info {
    /// The commit.
    sha: Option<String>,
    #[serde(default)]
    siblings: Vec<Sibling>,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    #[serde(rename = "rfilename")]
    name: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Debug, Deserialize)]
struct Lfs {
    sha256: Option<String>,
    size: Option<u64>,
}

/// Stages the files a source means.
pub(super) fn fetch(
    store: &Store,
    staging: &Staging<'_>,
    repo: &Repo,
    sha256: Option<Digest>,
    progress: &mut dyn Progress,
) -> Result<Fetched> {
    let client = Client::new(&store.sources)?;
    let label = format!("{}/{}", repo.owner, repo.name);
    let url = client.url(&format!(
        "/api/models/{}/{}/revision/{}?blobs=true",
        encode(&repo.owner, ""),
        encode(&repo.name, ""),
        encode(&repo.revision, "")
    ));
    let text = {
        let mut reporter = Reporter::new(progress, &label);
        reporter.at(Stage::Resolving, 0)?;
        client.text(&url, &mut || reporter.at(Stage::Resolving, 0))?
    };
    let info: Info = serde_json::from_slice(&text).map_err(|error| {
        StoreError::upstream(&url, format!("something else than JSON: {error}"))
    })?;
    let commit = info.sha.as_deref().filter(|sha| {
        (7..=64).contains(&sha.len()) && sha.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    let commit =
        commit.ok_or_else(|| StoreError::upstream(&url, "no commit for the revision"))?.to_owned();

    let names: Vec<&str> = info.siblings.iter().map(|sibling| sibling.name.as_str()).collect();
    let first = choose(&names, repo.pick.as_deref())
        .map_err(|reason| StoreError::source(&format!("hf:{label}"), reason))?;
    let files = match split_of(first) {
        Some(split) if split.count > MAX_PARTS => {
            return Err(StoreError::upstream(&url, format!("a model in {} parts", split.count)));
        }
        Some(split) => siblings(first, split),
        None => vec![first.to_owned()],
    };
    let resolve = |file: &str| {
        client.url(&format!(
            "/{}/{}/resolve/{commit}/{}",
            encode(&repo.owner, ""),
            encode(&repo.name, ""),
            encode(file, "/")
        ))
    };
    let mut fetched = Fetched::default();
    let key = Digest::of(resolve(first).as_bytes());
    fetched.lock = Some(store.layout.download_lock(&key, &mut Reporter::new(progress, first))?);
    for (index, file) in files.iter().enumerate() {
        let sibling =
            info.siblings.iter().find(|sibling| sibling.name == *file).ok_or_else(|| {
                StoreError::upstream(&url, format!("a model without its part {}", shorten(file)))
            })?;
        let lfs = sibling.lfs.as_ref();
        let published = lfs.and_then(|lfs| lfs.sha256.as_deref()).and_then(Digest::parse);
        let wanted = Wanted {
            url: resolve(file),
            label: file.clone(),
            // What the caller expects comes before what the server says.
            sha256: if files.len() == 1 { sha256.or(published) } else { published },
            size: lfs.and_then(|lfs| lfs.size).or(sibling.size),
        };
        let to = part_name(index, files.len());
        fetched.files.push(download(store, staging, &client, &wanted, &to, progress)?);
    }
    fetched.revision = Some(commit.clone());
    fetched.license = info
        .tags
        .iter()
        .find_map(|tag| tag.strip_prefix("license:"))
        .map(|license| license.chars().take(200).collect());
    let tag = quantization(first).unwrap_or("latest");
    fetched.name = Name::parse(&format!("{label}:{tag}")).ok();
    Ok(fetched)
}

/// The file a source means: by its path, by its quantization label, or the only or usual one.
/// For split models the first part.
fn choose<'a>(files: &[&'a str], pick: Option<&str>) -> std::result::Result<&'a str, String> {
    if let Some(exact) = files.iter().find(|file| Some(**file) == pick) {
        return match split_of(exact) {
            Some(split) if split.index != 1 => Err(format!(
                "`{}` is part {} of {}; name part 1",
                shorten(exact),
                split.index,
                split.count
            )),
            _ => Ok(exact),
        };
    }
    let models: Vec<&str> = files
        .iter()
        .copied()
        .filter(|file| {
            let base = file.rsplit('/').next().unwrap_or(file).to_ascii_lowercase();
            base.ends_with(".gguf")
                && !base.contains("mmproj")
                && !base.contains("imatrix")
                && split_of(file).is_none_or(|split| split.index == 1)
        })
        .collect();
    let list = |files: &[&str]| {
        files.iter().take(40).map(|file| shorten(file)).collect::<Vec<_>>().join(", ")
    };
    let labelled = |label: &str| -> Vec<&'a str> {
        models.iter().copied().filter(|file| has_label(file, label)).collect()
    };
    match (pick, models.as_slice()) {
        (_, []) => Err("the repository has no GGUF file".to_owned()),
        (None, [one]) => Ok(one),
        (None, several) => match labelled(USUAL).as_slice() {
            [one] => Ok(one),
            _ => Err(format!("it has several models; name one of {}", list(several))),
        },
        (Some(pick), all) => match labelled(pick).as_slice() {
            [one] => Ok(one),
            [] => Err(format!("nothing in it is called `{pick}`; it has {}", list(all))),
            several => Err(format!("`{pick}` fits {}; name one", list(several))),
        },
    }
}

/// Whether a file name has a label as a word of its own: `Q4_K` is not in `x-Q4_K_M.gguf`.
fn has_label(file: &str, label: &str) -> bool {
    let (file, label) = (file.to_ascii_lowercase(), label.to_ascii_lowercase());
    let part_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    file.match_indices(&label).any(|(at, found)| {
        let before = file.get(..at).and_then(|text| text.chars().next_back());
        let after = file.get(at + found.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(part_of_word) && !after.is_some_and(part_of_word)
    })
}

/// The quantization label in a file name.
fn quantization(file: &str) -> Option<&str> {
    let base = file.rsplit('/').next()?.strip_suffix(".gguf")?;
    base.split(['-', '.']).rev().find(|word| {
        let word = word.to_ascii_uppercase();
        ["F32", "F16", "BF16"].contains(&word.as_str())
            || ["Q", "IQ", "TQ", "MXFP", "NVFP"].iter().any(|kind| {
                word.strip_prefix(kind)
                    .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            })
    })
}

/// Text as a path segment of a URL; `keep` passes as it is.
fn encode(text: &str, keep: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || "-_.~".contains(c) || keep.contains(c) {
            out.push(c);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [&str; 8] = [
        "README.md",
        "m-Q4_K_M.gguf",
        "m-Q4_K_S.gguf",
        "m-IQ4_XS.gguf",
        "mmproj-F16.gguf",
        "BF16/m-BF16-00001-of-00002.gguf",
        "BF16/m-BF16-00002-of-00002.gguf",
        "m.imatrix.gguf",
    ];

    #[test]
    fn a_label_finds_its_file() {
        for (pick, expected) in [
            (None, Some("m-Q4_K_M.gguf")),
            (Some("q4_k_s"), Some("m-Q4_K_S.gguf")),
            (Some("bf16"), Some("BF16/m-BF16-00001-of-00002.gguf")),
            (Some("m-IQ4_XS.gguf"), Some("m-IQ4_XS.gguf")),
            (Some("mmproj-F16.gguf"), Some("mmproj-F16.gguf")),
            (Some("Q4_K"), None),
            (Some("Q4_XS"), None),
            (Some("F16"), None),
            (Some("BF16/m-BF16-00002-of-00002.gguf"), None),
        ] {
            assert_eq!(choose(&FILES, pick).ok(), expected, "{pick:?}");
        }
        assert!(choose(&["a.gguf", "b.gguf"], None).is_err_and(|e| e.contains("a.gguf, b.gguf")));
        assert!(choose(&["a.txt"], None).is_err());
        assert_eq!(choose(&["a.gguf"], None), Ok("a.gguf"));
    }

    #[test]
    fn a_file_name_tells_its_quantization() {
        for (file, expected) in [
            ("x/SmolLM2-135M-Instruct-Q4_K_M.gguf", Some("Q4_K_M")),
            ("a.IQ2_XXS.gguf", Some("IQ2_XXS")),
            ("m-BF16-00001-of-00002.gguf", Some("BF16")),
            ("Qwen3-0.6B.gguf", None),
        ] {
            assert_eq!(quantization(file), expected, "{file}");
        }
    }

    #[test]
    fn odd_file_names_become_safe_paths() {
        assert_eq!(encode("a b/ü?.gguf", "/"), "a%20b/%C3%BC%3F.gguf");
        assert_eq!(encode("refs/pr/1", ""), "refs%2Fpr%2F1");
    }
}
