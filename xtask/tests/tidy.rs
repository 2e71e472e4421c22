//! The architecture's invariants that a text search can hold, and rules of style.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail loudly")]

use std::{fs, path::Path, process::Command};

/// Every tracked file with its text, or nothing where it is not text.
fn files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .expect("git lists the tree");
    String::from_utf8(listed.stdout)
        .unwrap()
        .split('\0')
        .filter(|name| !name.is_empty())
        .filter_map(|name| Some((name.to_owned(), fs::read_to_string(root.join(name)).ok()?)))
        .collect()
}

fn offenders(wanted: impl Fn(&str) -> bool, wrong: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in files().iter().filter(|(name, _)| wanted(name)) {
        for (number, line) in text.lines().enumerate() {
            if wrong(name, line) {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    found
}

fn rust(name: &str) -> bool {
    name.ends_with(".rs")
}

#[test]
fn wasmtime_is_named_in_the_sandbox_alone() {
    let found = offenders(
        |name| rust(name) && name.starts_with("host/") && !name.starts_with("host/sandbox/"),
        |_, line| line.contains("wasmtime::") || line.contains("use wasmtime"),
    );
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn simd_is_in_the_kernels_alone() {
    let found = offenders(
        |name| rust(name) && name.starts_with("host/") && !name.starts_with("host/kernels/"),
        |_, line| line.contains("core::arch::") || line.contains("std::arch::"),
    );
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn nothing_names_a_registry_host() {
    let hosts: Vec<String> =
        [("py", "pi.org"), ("crates", ".io/"), ("npm", "js.org"), ("pythonhosted", ".org")]
            .iter()
            .map(|(head, tail)| format!("{head}{tail}"))
            .collect();
    let found = offenders(
        |name| !name.ends_with(".lock"),
        |_, line| hosts.iter().any(|host| line.contains(host.as_str())),
    );
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn nothing_is_left_for_later() {
    let marks: Vec<String> =
        [("TO", "DO"), ("FIX", "ME"), ("todo", "!("), ("unimplemented", "!("), ("#[ign", "ore")]
            .iter()
            .map(|(head, tail)| format!("{head}{tail}"))
            .collect();
    let found = offenders(rust, |_, line| marks.iter().any(|mark| line.contains(mark.as_str())));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_module_says_what_it_owns() {
    let silent: Vec<String> = files()
        .into_iter()
        .filter(|(name, text)| {
            rust(name)
                && !text.trim_start().starts_with("//!")
                && !text.trim_start().starts_with("#!")
                && !name.starts_with("sdk/templates")
        })
        .map(|(name, _)| name)
        .collect();
    assert!(silent.is_empty(), "files without a //! header: {silent:#?}");
}

#[test]
fn a_file_owns_one_thing() {
    let long: Vec<String> = files()
        .into_iter()
        .filter(|(name, _)| rust(name) && !name.contains("tables"))
        .map(|(name, text)| (name, text.lines().count()))
        .filter(|(_, lines)| *lines > 700)
        .map(|(name, lines)| format!("{name}: {lines} lines"))
        .collect();
    assert!(long.is_empty(), "split these by meaning: {long:#?}");
}

#[test]
fn imports_point_down() {
    let order = [
        "gristmill-core",
        "gristmill-kernels",
        "gristmill-models",
        "gristmill-engine",
        "gristmill-ledger",
        "gristmill-policies",
        "gristmill-sandbox",
        "gristmill-upstream",
        "gristmill-router",
        "gristmill-api",
        "gristmill",
    ];
    let rank = |name: &str| order.iter().position(|known| *known == name);
    for (name, text) in files() {
        let Some(package) = text
            .lines()
            .find_map(|line| line.strip_prefix("name = \"").map(|rest| rest.trim_end_matches('"')))
        else {
            continue;
        };
        let (Some(own), true) = (rank(package), name.ends_with("Cargo.toml")) else { continue };
        let dependencies = text.split("[dev-dependencies]").next().unwrap();
        let dependencies = dependencies.split("[dependencies]").nth(1).unwrap_or_default();
        for line in dependencies.lines() {
            let dependency = line.split(['.', ' ', '=']).next().unwrap();
            if let Some(other) = rank(dependency) {
                assert!(other < own, "{package} must not import {dependency}");
            }
        }
    }
}
