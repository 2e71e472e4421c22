//! What `gristmill plugin new` copies works as it is: each template builds to a component with the
//! imports and the export of its world and nothing else, and its own tests pass.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{env, fs, path::Path, process::Command};

use wit_component::DecodedWasm;

/// Kind, what its component imports, what it exports.
const KINDS: [(&str, &[&str], &str); 3] = [
    ("backend", &["types", "capability"], "serving"),
    ("family", &["types"], "family"),
    ("probe", &["types", "serving"], "probing"),
];

fn copy(template: &Path, target: &Path, name: &str, sdk: &Path) {
    fs::create_dir_all(target.join("src")).unwrap();
    for file in ["Cargo.toml", "README.md", "src/lib.rs"] {
        let text = fs::read_to_string(template.join(file)).unwrap();
        let text = text.replace("{{name}}", name).replace("{{sdk}}", sdk.to_str().unwrap());
        assert!(!text.contains("{{"), "{file} of {name} has a placeholder nobody fills");
        fs::write(target.join(file), text).unwrap();
    }
    // Without it every run would look for newer versions.
    fs::copy(sdk.join("Cargo.lock"), target.join("Cargo.lock")).unwrap();
}

fn cargo(folder: &Path, target: &Path, arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(folder).args(arguments).env("CARGO_TARGET_DIR", target);
    // Set by the cargo that runs this test; they are not the template's.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?} in {}:\n{errors}", folder.display());
    assert!(!errors.contains("warning"), "cargo {arguments:?} warns:\n{errors}");
}

#[test]
fn every_template_builds_and_passes_its_own_tests() {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR"));
    let room = Path::new(env!("CARGO_TARGET_TMPDIR")).join("templates");
    let target = room.join("target");
    for (kind, imports, export) in KINDS {
        let name = format!("my-{kind}");
        let folder = room.join(&name);
        copy(&sdk.join("../templates").join(kind), &folder, &name, sdk);
        cargo(&folder, &target, &["test", "--quiet"]);
        cargo(&folder, &target, &["build", "--quiet", "--release", "--target", "wasm32-wasip2"]);

        let component = target.join(format!("wasm32-wasip2/release/my_{kind}.wasm"));
        let bytes = fs::read(&component).unwrap();
        let DecodedWasm::Component(resolve, world) = wit_component::decode(&bytes).unwrap() else {
            panic!("{} is no component", component.display())
        };
        let world = &resolve.worlds[world];
        let contract = |name: &&str| format!("gristmill:contract/{name}@0.1.0");
        let mut found: Vec<_> =
            world.imports.keys().map(|key| resolve.name_world_key(key)).collect();
        let mut wanted: Vec<_> = imports.iter().map(contract).collect();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted, "imports of {kind}");
        let found: Vec<_> = world.exports.keys().map(|key| resolve.name_world_key(key)).collect();
        assert_eq!(found, [contract(&export)], "exports of {kind}");
    }
}
