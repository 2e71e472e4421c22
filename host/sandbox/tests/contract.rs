//! The WIT parses, has the three worlds, says what every item means; and the page about it names
//! every fault and every refusal.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{fs, path::Path};

use gristmill_sandbox::fault_words;
use wit_parser::{Docs, Resolve, TypeDefKind};

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_item_of_the_wit_says_what_it_is() {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(root().join("wit/v0.1")).unwrap();
    let worlds: Vec<_> = resolve.packages[package].worlds.keys().collect();
    assert_eq!(worlds, ["backend", "model-family", "probe"]);

    let mut silent = Vec::new();
    let mut items = 0;
    let mut say = |docs: &Docs, name: String| {
        items += 1;
        if docs.contents.as_deref().is_none_or(|text| text.trim().is_empty()) {
            silent.push(name);
        }
    };
    for (_, world) in &resolve.worlds {
        say(&world.docs, world.name.clone());
    }
    for (_, interface) in &resolve.interfaces {
        let at = interface.name.clone().unwrap_or_default();
        say(&interface.docs, at.clone());
        for (name, function) in &interface.functions {
            say(&function.docs, format!("{at}.{name}"));
        }
        for (name, id) in &interface.types {
            let definition = &resolve.types[*id];
            match &definition.kind {
                // `use`: said where it is defined.
                TypeDefKind::Type(_) if definition.docs.contents.is_none() => continue,
                TypeDefKind::Record(record) => {
                    for field in &record.fields {
                        say(&field.docs, format!("{at}.{name}.{}", field.name));
                    }
                }
                TypeDefKind::Variant(variant) => {
                    for case in &variant.cases {
                        say(&case.docs, format!("{at}.{name}.{}", case.name));
                    }
                }
                TypeDefKind::Enum(words) => {
                    for case in &words.cases {
                        say(&case.docs, format!("{at}.{name}.{}", case.name));
                    }
                }
                _ => {}
            }
            say(&definition.docs, format!("{at}.{name}"));
        }
    }
    assert!(items > 250, "{items}");
    assert!(silent.is_empty(), "without a comment: {silent:?}");
}

#[test]
fn the_page_names_every_fault_refusal_and_limit() {
    let page = fs::read_to_string(root().join("docs/contract.md")).unwrap();
    let refusals = [
        "size-mismatch",
        "digest-mismatch",
        "too-large",
        "not-a-component",
        "invalid-component",
        "import-mismatch",
        "import-not-granted",
        "unknown-import",
        "wrong-world",
        "unsupported-contract",
        "wrong-shape",
        "wrong-grant",
        "start-failed",
    ];
    let limits = toml_keys();
    for word in fault_words().into_iter().chain(refusals).chain(limits.iter().map(String::as_str)) {
        assert!(page.contains(&format!("`{word}`")), "docs/contract.md does not name {word}");
    }
    // Tests that the page points to are there.
    for file in ["limits.rs", "load.rs", "cancel.rs", "isolation.rs", "answers.rs"] {
        assert!(page.contains(file) && root().join("host/sandbox/tests").join(file).exists());
    }
}

/// The names of all limits and their defaults, as a grant spells them.
fn toml_keys() -> Vec<String> {
    let limits = format!("{:?}", gristmill_policies::Limits::default());
    limits
        .trim_start_matches("Limits { ")
        .trim_end_matches(" }")
        .split(", ")
        .map(|pair| pair.split(':').next().unwrap().replace('_', "-"))
        .collect()
}
