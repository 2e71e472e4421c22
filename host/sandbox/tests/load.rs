//! Only the pinned, granted, known and well-made gets in; every refusal has its own name.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::{EVERYTHING, by_hand, grant, guest, pin, sandbox};
use gristmill_core::Code;
use gristmill_ledger::{Kind, Pin, sha256};
use gristmill_policies::{Grant, Limits};
use gristmill_sandbox::{LoadError, Sandbox, Services, inspect};

fn everything() -> Grant {
    grant(Kind::Backend, Limits::default())
}

fn load(sandbox: &Sandbox, bytes: &[u8], pin: &Pin, grant: &Grant) -> Result<(), LoadError> {
    sandbox.load_backend(bytes, pin, grant, Services::default()).map(|_| ())
}

/// A pin for bytes that are not a plugin.
fn forced(bytes: &[u8], kind: Kind, imports: &[&str]) -> Pin {
    let imports = imports.iter().map(|&name| name.to_owned()).collect();
    Pin::first("forced", "forced.wasm", bytes, kind, "0.1", imports)
}

/// The code with which a hand-written component is refused under a pin that lists these imports.
fn refused(kind: Kind, source: &str, imports: &[&str]) -> &'static str {
    let bytes = wat::parse_str(source).unwrap();
    let pin = forced(&bytes, kind, imports);
    let grant = grant(kind, Limits::default());
    let sandbox = sandbox();
    let result = match kind {
        Kind::Backend => load(&sandbox, &bytes, &pin, &grant),
        Kind::Family => sandbox.load_family(&bytes, &pin, &grant).map(|_| ()),
        Kind::Probe => sandbox.load_probe(&bytes, &pin, &grant).map(|_| ()),
    };
    result.expect_err(source).code()
}

#[test]
fn every_kind_is_inspected_and_loaded() {
    let sandbox = sandbox();
    for (name, kind) in
        [("hostile", Kind::Backend), ("family", Kind::Family), ("probe", Kind::Probe)]
    {
        let bytes = guest(name);
        let found = inspect(&bytes).unwrap();
        assert_eq!((found.kind, found.contract.as_str()), (kind, "0.1"), "{name}");
        assert_eq!(found.size, bytes.len() as u64);
        assert_eq!(found.digest, format!("sha256:{}", sha256(&bytes)));
        assert!(found.imports.is_sorted() && !found.imports.is_empty(), "{:?}", found.imports);
        let pin = pin(name, &bytes);
        let grant = grant(kind, Limits::default());
        match kind {
            Kind::Backend => load(&sandbox, &bytes, &pin, &grant).unwrap(),
            Kind::Family => drop(sandbox.load_family(&bytes, &pin, &grant).unwrap()),
            Kind::Probe => drop(sandbox.load_probe(&bytes, &pin, &grant).unwrap()),
        }
    }
    let family = inspect(&guest("family")).unwrap();
    let powers: Vec<_> = family
        .imports
        .iter()
        .filter(|name| name.starts_with("gristmill:") && !name.contains("/types@"))
        .collect();
    assert!(powers.is_empty(), "a family imports words alone: {powers:?}");
}

#[test]
fn every_flipped_byte_is_refused() {
    let sandbox = sandbox();
    let bytes = guest("hostile");
    let pin = pin("hostile", &bytes);
    for at in (0..bytes.len()).step_by(bytes.len() / 500) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        let error = load(&sandbox, &flipped, &pin, &everything()).unwrap_err();
        assert_eq!(error.code(), "digest-mismatch", "byte {at}");
    }
    let error = load(&sandbox, &bytes[1..], &pin, &everything()).unwrap_err();
    assert_eq!(error.code(), "size-mismatch");
}

/// What a pin is made for can be broken already: whatever it is, it is loaded or refused by name,
/// and it never runs outside of its limits.
#[test]
fn damaged_bytes_under_a_fresh_pin_are_loaded_or_refused_by_name() {
    let sandbox = sandbox();
    let bytes = guest("describe");
    let good = pin("describe", &bytes);
    let attempt = |damaged: &[u8]| {
        let pin = Pin { sha256: sha256(damaged), size: damaged.len() as u64, ..good.clone() };
        load(&sandbox, damaged, &pin, &everything()).map_err(|error| error.code())
    };
    for end in (0..bytes.len()).step_by(bytes.len() / 60) {
        let code = attempt(&bytes[..end]).expect_err("a part of a component is none");
        assert!(
            ["not-a-component", "invalid-component", "import-mismatch", "wrong-world"]
                .contains(&code),
            "{end}: {code}"
        );
    }
    for at in (0..bytes.len()).step_by(bytes.len() / 40) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        // The guest never runs before it is valid, so that any outcome here is a safe one.
        let _ = attempt(&flipped);
    }
    for garbage in [&b""[..], b"\0asm", b"MZ", &[0xff; 4096], &bytes[1..]] {
        assert!(attempt(garbage).is_err());
    }
}

#[test]
fn imports_must_be_pinned_granted_and_known() {
    let sandbox = sandbox();
    let bytes = guest("hostile");
    let good = pin("hostile", &bytes);

    let mut fewer = good.clone();
    let dropped = fewer.imports.remove(1);
    match load(&sandbox, &bytes, &fewer, &everything()) {
        Err(LoadError::ImportMismatch { extra, missing }) => {
            assert_eq!((extra, missing), (vec![dropped], vec![]));
        }
        other => panic!("{other:?}"),
    }
    let mut more = good.clone();
    more.imports.push("wasi:sockets/tcp@0.2.6".into());
    match load(&sandbox, &bytes, &more, &everything()) {
        Err(LoadError::ImportMismatch { extra, missing }) => {
            assert_eq!((extra, missing), (vec![], vec!["wasi:sockets/tcp@0.2.6".to_owned()]));
        }
        other => panic!("{other:?}"),
    }

    for missing in EVERYTHING.iter().filter(|&&name| name != "gristmill:contract/serving") {
        let mut grant = everything();
        grant.imports.retain(|name| name != missing);
        let interface = missing.trim_end_matches("/*");
        match load(&sandbox, &bytes, &good, &grant) {
            Err(LoadError::ImportNotGranted(name)) => {
                assert!(name.starts_with(interface), "{name}")
            }
            // A guest need not use everything that may be granted.
            Ok(()) => {
                assert!(!good.imports.iter().any(|name| name.starts_with(interface)), "{missing}");
            }
            Err(other) => panic!("{missing}: {other}"),
        }
    }

    let shell = "gristmill:contract/shell@0.1.0";
    let bytes = wat::parse_str(format!("(component (import {shell:?} (instance)))")).unwrap();
    let pin = forced(&bytes, Kind::Backend, &[shell]);
    let mut grant = everything();
    assert_eq!(load(&sandbox, &bytes, &pin, &grant).unwrap_err().code(), "import-not-granted");
    grant.imports.push("gristmill:contract/shell".into());
    assert_eq!(load(&sandbox, &bytes, &pin, &grant).unwrap_err().code(), "unknown-import");

    let sockets = "wasi:sockets/tcp@0.2.6";
    let source = format!("(component (import {sockets:?} (instance)))");
    assert_eq!(refused(Kind::Backend, &source, &[sockets]), "import-not-granted");
}

#[test]
fn another_world_version_or_shape_is_refused_by_name() {
    let sandbox = sandbox();
    let empty = |name: &str| format!("(component (instance $i) (export {name:?} (instance $i)))");
    assert_eq!(refused(Kind::Backend, "(component)", &[]), "wrong-world");
    assert_eq!(refused(Kind::Backend, &empty("wasi:cli/run@0.2.6"), &[]), "wrong-world");
    for (kind, name) in
        [(Kind::Backend, "serving"), (Kind::Family, "family"), (Kind::Probe, "probing")]
    {
        let export = |version: &str| empty(&format!("gristmill:contract/{name}@{version}"));
        assert_eq!(refused(kind, &export("0.1.0"), &[]), "wrong-shape", "{name}");
        assert_eq!(refused(kind, &export("0.2.0"), &[]), "unsupported-contract", "{name}");
        assert_eq!(refused(kind, &export("1.0.0"), &[]), "unsupported-contract", "{name}");
        assert_eq!(refused(kind, &export("0.1.0-rc.1"), &[]), "unsupported-contract", "{name}");
    }
    assert_eq!(
        refused(Kind::Family, &empty("gristmill:contract/serving@0.1.0"), &[]),
        "wrong-world"
    );
    assert_eq!(refused(Kind::Backend, "(module)", &[]), "not-a-component");
    assert_eq!(
        refused(
            Kind::Backend,
            r#"(component
                (import "gristmill:contract/clock@0.1.0"
                    (instance (export "monotonic" (func (param "x" u32)))))
                (instance $i) (export "gristmill:contract/serving@0.1.0" (instance $i)))"#,
            &["gristmill:contract/clock@0.1.0"],
        ),
        "wrong-shape"
    );
    let many: String =
        (0..300).map(|n| format!("(import \"a{n}\" (func))")).collect::<Vec<_>>().join(" ");
    assert_eq!(refused(Kind::Backend, &format!("(component {many})"), &[]), "too-large");

    let bytes = guest("hostile");
    let pin = pin("hostile", &bytes);
    let wrong = Grant { kind: Kind::Probe, ..everything() };
    assert_eq!(load(&sandbox, &bytes, &pin, &wrong).unwrap_err().code(), "wrong-grant");
    let other = sandbox.load_family(&bytes, &pin, &everything()).unwrap_err();
    assert_eq!(other.code(), "wrong-world");
    let newer = Pin { contract: "0.2".into(), ..pin };
    let error = load(&sandbox, &bytes, &newer, &everything()).unwrap_err();
    assert_eq!(error.code(), "unsupported-contract");
}

#[test]
fn async_components_are_not_run() {
    let source = r#"(component
        (core module $m (func (export "f")))
        (core instance $i (instantiate $m))
        (func $f async (canon lift (core func $i "f") async))
        (instance $s (export "f" (func $f)))
        (export "gristmill:contract/serving@0.1.0" (instance $s)))"#;
    assert_eq!(refused(Kind::Backend, source, &[]), "invalid-component");
}

#[tokio::test]
async fn a_trap_at_the_start_is_a_refusal_and_a_trap_in_describe_is_a_fault() {
    let sandbox = sandbox();
    let top = "(core module $s (func $f unreachable) (start $f)) (core instance (instantiate $s))";
    let bytes = by_hand(top, "");
    let pinned = pin("start", &bytes);
    match sandbox.load_probe(&bytes, &pinned, &grant(Kind::Probe, Limits::default())) {
        Err(LoadError::Start(error)) => {
            assert_eq!(error.code, Code::PluginFault);
            assert_eq!(error.detail("fault"), Some("trap-unreachable"), "{error}");
            assert_eq!(sandbox.strikes(&pinned.digest()), 1);
        }
        other => panic!("{:?}", other.err()),
    }
    let bytes = guest("describe");
    let pin = pin("describe", &bytes);
    let backend = sandbox.load_backend(&bytes, &pin, &everything(), Services::default()).unwrap();
    let error = backend.describe().await.unwrap_err();
    assert_eq!(error.detail("fault"), Some("trap-unreachable"), "{error}");
    assert!(backend.models().await.is_err());
    assert_eq!(sandbox.strikes(&pin.digest()), 2);
}

#[cfg(unix)]
#[test]
fn another_process_compiles_where_one_is_given() {
    use gristmill_sandbox::{Compiler, SandboxConfig};

    let bytes = guest("hostile");
    let pin = pin("hostile", &bytes);
    let kept = tempfile::tempdir().unwrap();
    let by = |script: &str| {
        let arguments = ["-c", script].map(str::to_owned).to_vec();
        let compiler = Some(Compiler { program: "/bin/sh".into(), arguments });
        let compiled = Some(kept.path().to_owned());
        let config = SandboxConfig { compiled, compiler, ..SandboxConfig::default() };
        load(&Sandbox::new(config).unwrap(), &bytes, &pin, &everything())
    };
    for (script, code) in [
        ("kill -9 $$", "compile-failed"),
        ("cat", "compile-failed"),
        ("cat >/dev/null", "compile-failed"),
        ("cat >/dev/null; exit 2", "invalid-component"),
    ] {
        assert_eq!(by(script).unwrap_err().code(), code, "{script}");
    }
    // What came of none of them is kept; what was compiled once is not compiled again.
    let config = SandboxConfig { compiled: Some(kept.path().to_owned()), ..Default::default() };
    load(&Sandbox::new(config).unwrap(), &bytes, &pin, &everything()).unwrap();
    by("kill -9 $$").unwrap();
}
