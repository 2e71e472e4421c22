//! What docs/policies.md shows is what is read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

use std::{fs, path::Path};

use gristmill_policies::{
    Approvals, Control, ParameterPolicy, PolicyError, Profile, schema::KINDS,
};

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policies.md");
    fs::read_to_string(page).unwrap()
}

#[test]
fn its_examples_are_files() {
    let page = page();
    let examples: Vec<_> = page
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split_once("```").unwrap().0)
        .filter(|text| text.lines().count() > 1)
        .collect();
    assert_eq!(examples.len(), 4);
    for text in examples {
        let read = if text.contains("[context]") {
            ParameterPolicy::parse("p", &format!("reason = \"r\"\n{text}")).map(drop)
        } else if text.contains("[[rules]]") {
            Approvals::parse(text).map(drop)
        } else if text.contains("description") {
            Profile::parse("p", text).map(drop)
        } else {
            ParameterPolicy::parse("p", text).map(drop)
        };
        read.unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
}

#[test]
fn its_words_are_those_of_the_code() {
    let page = page();
    let (path, reason) = (std::path::PathBuf::new(), String::new());
    let codes = [
        PolicyError::TooLong { path: path.clone(), most: 0 }.code(),
        PolicyError::Unknown { path: path.clone(), reason: reason.clone() }.code(),
        PolicyError::Ambiguous { path: path.clone(), reason: reason.clone() }.code(),
    ];
    let invalid = ["grants", "blocks", "parameters", "profiles", "approvals"].map(|folder| {
        PolicyError::InvalidFile { folder, path: path.clone(), reason: reason.clone() }.code()
    });
    let sampling = Control::ALL.iter().filter(|it| !it.is_placement()).map(|it| it.as_str());
    let kinds = KINDS.iter().map(|(kind, _)| *kind);
    for word in codes.into_iter().chain(invalid).chain(sampling).chain(kinds) {
        assert!(page.contains(&format!("`{word}`")), "{word} is not on the page");
    }
}
