//! What the tests of every family share.

use std::collections::BTreeMap;

use gristmill_plugin::family::{Metadata, Program};

/// Compares with `tests/golden/NAME.txt`; `GOLDEN=update cargo test` writes it instead.
pub(crate) fn golden(name: &str, program: &Program) {
    let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let listing = program.to_string();
    if std::env::var("GOLDEN").is_ok_and(|what| what == "update") {
        std::fs::write(&path, &listing).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(listing, wanted, "{path}");
}

/// How many steps of each kind.
pub(crate) fn counts(program: &Program) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for step in &program.steps {
        *counts.entry(step.op.as_str()).or_default() += 1;
    }
    counts
}

/// Every tensor of the file is read by some step, so that the host has nothing to refuse.
pub(crate) fn reads_everything(model: &Metadata, program: &Program) {
    let listing = program.to_string();
    for tensor in &model.tensors {
        let name = &tensor.name;
        let read = listing.split_whitespace().any(|word| word.split('=').nth(1) == Some(name));
        assert!(read, "{name} is read by no step");
    }
}
