//! A family's component answers what its native crate answers, for a model of every shape.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::fs;

use gristmill_core::program::Families;
use gristmill_ledger::Pin;
use gristmill_models::Gguf;
use gristmill_policies::Grant;
use gristmill_reference::families::{Native, root};
use gristmill_sandbox::{FamilyPlugin, Sandbox, SandboxConfig, inspect};
use gristmill_testing::{
    components,
    models::{self, Family, Shape},
};

/// Every family's component under the grant that families have.
fn loaded(sandbox: &Sandbox) -> Vec<FamilyPlugin> {
    let grant = fs::read_to_string(root().join("policies/grants/family.toml")).unwrap();
    let grant = Grant::parse(&grant).unwrap();
    let mut families = Vec::new();
    for entry in fs::read_dir(components::components().unwrap()).unwrap() {
        let entry = entry.unwrap();
        let file = entry.file_name().into_string().unwrap();
        let Some(name) =
            file.strip_prefix("gristmill_family_").and_then(|name| name.strip_suffix(".wasm"))
        else {
            continue;
        };
        let bytes = fs::read(entry.path()).unwrap();
        let found = inspect(&bytes).unwrap();
        let name = name.replace('_', "-");
        let pin = Pin::first(name, &file, &bytes, found.kind, found.contract, found.imports);
        families.push(sandbox.load_family(&bytes, &pin, &grant).unwrap());
    }
    families
}

#[test]
fn a_component_answers_what_its_crate_answers() {
    let sandbox = Sandbox::new(SandboxConfig::default()).unwrap();
    let families = loaded(&sandbox);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut asked = Vec::new();
    for family in Family::ALL {
        let shape = Shape { vocabulary: 320, ..Shape::tiny(family) };
        models::write(&shape, "q4_0", 1, &path).unwrap();
        let metadata = Gguf::open(&path).unwrap().metadata();
        let native = Native.resolve(&metadata).unwrap();
        let known: Vec<_> = families
            .iter()
            .filter_map(|plugin| Some((plugin.name(), plugin.resolve(&metadata).unwrap()?)))
            .collect();
        let [(name, component)] = &known[..] else { panic!("{family:?} has one: {known:?}") };
        assert_eq!(component.family, native.family, "{family:?}");
        assert_eq!(component.program, native.program, "{family:?}");
        assert_eq!(component.dialect, native.dialect, "{family:?}");
        asked.push((*name).to_owned());
    }
    // All but the one that makes vectors, which has no shape of its own here.
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len() + 1, families.len(), "{asked:?}");
}
