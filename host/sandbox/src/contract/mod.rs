//! Contract versions. One module per version implements the internal traits; only this file looks at
//! version numbers, and only when a component is loaded.

pub(crate) mod v0_1;

use gristmill_ledger::Kind;

use crate::load::{LoadError, shown};

const PACKAGE: &str = "gristmill:contract/";

/// Interfaces a guest may export, and what it is then.
const WORLDS: &[(&str, Kind)] =
    &[("serving", Kind::Backend), ("family", Kind::Family), ("probing", Kind::Probe)];

/// What the host makes of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Words alone.
    Types,
    /// Something a guest can do.
    Powers,
    /// Nothing.
    No,
}

/// Whether an import, by full name, gives a power and so needs a grant; types alone are words.
#[must_use]
pub fn needs_grant(import: &str) -> bool {
    !matches!(known_import(import), Known::Types)
}

/// Whether the host has this import, by full name.
pub(crate) fn known_import(name: &str) -> Known {
    let Some((interface, version)) = name.split_once('@') else { return Known::No };
    if let Some(interface) = interface.strip_prefix(PACKAGE) {
        if minor(version) != Some((0, 1)) {
            return Known::No;
        }
        return match interface {
            "types" | "capability" => Known::Types,
            "upstream" | "engine" | "kernels" | "onnx" | "log" | "clock" | "serving" => {
                Known::Powers
            }
            _ => Known::No,
        };
    }
    let wasi = interface.split_once('/').map(|(package, _)| package);
    match wasi {
        Some(
            "wasi:cli" | "wasi:clocks" | "wasi:filesystem" | "wasi:io" | "wasi:random"
            | "wasi:sockets",
        ) if minor(version) == Some((0, 2)) => Known::Powers,
        _ => Known::No,
    }
}

/// The kind of a component and its contract version (`0.1`), by what it exports.
///
/// # Errors
/// `wrong-world`, `unsupported-contract`.
pub(crate) fn detect(exports: &[String]) -> Result<(Kind, &'static str), LoadError> {
    let mut found = None;
    for export in exports {
        let Some(rest) = export.strip_prefix(PACKAGE) else { continue };
        let (interface, version) = rest.split_once('@').unwrap_or((rest, ""));
        let Some((_, kind)) = WORLDS.iter().find(|(name, _)| *name == interface) else { continue };
        if found.is_some() {
            return Err(LoadError::WrongWorld(
                "the component exports more than one world; a plugin is of one kind".to_owned(),
            ));
        }
        if minor(version) != Some((0, 1)) {
            return Err(LoadError::UnsupportedContract {
                found: shown(version),
                known: "0.1".to_owned(),
            });
        }
        found = Some((*kind, "0.1"));
    }
    found.ok_or_else(|| {
        LoadError::WrongWorld(format!(
            "expected an export {PACKAGE}serving, family or probing with version 0.1, found [{}]",
            exports.iter().take(8).map(|name| shown(name)).collect::<Vec<_>>().join(", ")
        ))
    })
}

/// Major and minor of a released version; pre-releases are none.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    let (major, minor, patch) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    patch.parse::<u32>().ok()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_imports_of_known_versions_are_known() {
        for (name, known) in [
            ("gristmill:contract/types@0.1.0", Known::Types),
            ("gristmill:contract/engine@0.1.7", Known::Powers),
            ("gristmill:contract/engine@0.2.0", Known::No),
            ("gristmill:contract/engine@0.1.0-rc.1", Known::No),
            ("gristmill:contract/engine", Known::No),
            ("gristmill:contract/shell@0.1.0", Known::No),
            ("wasi:io/poll@0.2.6", Known::Powers),
            ("wasi:io/poll@0.3.0", Known::No),
            ("wasi:http/outgoing-handler@0.2.6", Known::No),
            ("wasi:nn/graph@0.2.0", Known::No),
            ("print", Known::No),
            ("", Known::No),
        ] {
            assert_eq!(known_import(name), known, "{name}");
        }
    }

    #[test]
    fn a_world_is_known_by_its_export() {
        let found = |names: &[&str]| {
            detect(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
                .map_err(|error| error.code())
        };
        assert_eq!(found(&["gristmill:contract/serving@0.1.0"]), Ok((Kind::Backend, "0.1")));
        assert_eq!(found(&["gristmill:contract/family@0.1.3", "more"]), Ok((Kind::Family, "0.1")));
        assert_eq!(found(&["gristmill:contract/probing@0.1.0"]), Ok((Kind::Probe, "0.1")));
        assert_eq!(found(&["gristmill:contract/serving@0.2.0"]), Err("unsupported-contract"));
        assert_eq!(found(&["gristmill:contract/serving"]), Err("unsupported-contract"));
        assert_eq!(found(&["wasi:cli/run@0.2.6"]), Err("wrong-world"));
        assert_eq!(found(&[]), Err("wrong-world"));
        assert_eq!(
            found(&["gristmill:contract/family@0.1.0", "gristmill:contract/serving@0.1.0"]),
            Err("wrong-world")
        );
    }
}
