//! Families are pure: data in, data out, the same every time, asked once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::{grant, guest, pin, sandbox};
use gristmill_core::{
    Code,
    program::{Attribute, Families, Metadata, TensorInfo, Value},
};
use gristmill_ledger::Kind;
use gristmill_policies::Limits;
use gristmill_sandbox::{FamilyPlugin, FamilySet, Sandbox};

fn family(sandbox: &Sandbox, name: &str, limits: Limits) -> FamilyPlugin {
    let bytes = guest("family");
    sandbox.load_family(&bytes, &pin(name, &bytes), &grant(Kind::Family, limits)).unwrap()
}

fn metadata(architecture: &str) -> Metadata {
    Metadata {
        architecture: architecture.into(),
        keys: vec![
            ("tokens".into(), Value::Long(32_000)),
            ("width".into(), Value::Int(64)),
            ("nan".into(), Value::Float(f64::NAN)),
            ("flag".into(), Value::Flag(true)),
            ("text".into(), Value::Text("é".into())),
            ("ints".into(), Value::Ints(vec![-1, 1])),
            ("floats".into(), Value::Floats(vec![0.5])),
            ("texts".into(), Value::Texts(vec!["a".into()])),
        ],
        tensors: vec![TensorInfo {
            name: "token_embd.weight".into(),
            shape: vec![64, 32_000],
            element: "F16".into(),
        }],
    }
}

#[test]
fn a_program_and_a_dialect_come_back_whole() {
    let sandbox = sandbox();
    let set = FamilySet::new(vec![family(&sandbox, "golden", Limits::default())]);
    let resolved = set.resolve(&metadata("golden")).unwrap();
    assert_eq!(resolved.family, "golden");
    assert_eq!(resolved.digest, set.families()[0].digest());
    let program = &resolved.program;
    assert_eq!((program.vocabulary, program.width, program.layers), (32_000, 64, 1));
    assert_eq!(program.extras, [("tensors".to_owned(), "1".to_owned())]);
    assert_eq!(program.states[0].attributes, [("kv-heads".to_owned(), Attribute::Int(1))]);
    let values: Vec<_> = program.steps[0].attributes.iter().map(|(_, value)| value).collect();
    assert_eq!(values[0], &Attribute::Tensor("token_embd.weight".into()));
    assert_eq!(values[5], &Attribute::Texts(vec!["a".into()]));
    assert_eq!(resolved.dialect.stops, ["<end>"]);
    assert_eq!(resolved.dialect.defaults.temperature, Some(0.5));
    // The same again, from memory: equal to the last bit.
    assert_eq!(set.resolve(&metadata("golden")).unwrap(), resolved);

    let error = set.resolve(&metadata("unheard-of")).unwrap_err();
    assert_eq!(error.code, Code::Unsupported);
    assert_eq!(error.detail("architecture"), Some("unheard-of"));
    let error = set.resolve(&metadata("refuse")).unwrap_err();
    assert_eq!(error.message, "a variant this family does not know");
}

#[test]
fn time_and_chance_do_not_reach_a_family() {
    let name = || {
        let sandbox = sandbox();
        let family = family(&sandbox, "impure", Limits::default());
        family.resolve(&metadata("impure")).unwrap().unwrap().family
    };
    let first = name();
    assert!(first.starts_with("impure-0-"), "the clock stands still: {first}");
    assert_eq!(first, name());
}

/// `busy` while the same question waits for its first answer would be a second asking; afterwards a
/// family without any free place still remembers.
#[test]
fn the_same_question_is_asked_once() {
    let sandbox = sandbox();
    let limits = Limits { stores: 1, cpu_ms: 60_000, call_ms: 60_000, ..Limits::default() };
    let family = family(&sandbox, "golden", limits);
    let known = family.resolve(&metadata("golden")).unwrap();
    assert!(known.is_some());
    std::thread::scope(|scope| {
        // `loop` holds the only place until its time is up.
        let looping = scope.spawn(|| family.resolve(&metadata("wait")));
        while sandbox.occupancy().components == 0 && !looping.is_finished() {
            std::thread::yield_now();
        }
        assert_eq!(family.resolve(&metadata("golden")).unwrap(), known, "from memory");
        assert_eq!(family.resolve(&metadata("other")).unwrap_err().code, Code::Busy);
        assert!(looping.join().unwrap().is_ok());
    });
}

#[test]
fn a_family_that_fails_is_stopped_and_does_not_stand_in_the_way() {
    let sandbox = sandbox();
    let limits = Limits { cpu_ms: 200, ..Limits::default() };
    let alone = FamilySet::new(vec![family(&sandbox, "one", limits.clone())]);
    let hasty = Limits { call_ms: 500, ..Limits::default() };
    let hasty = FamilySet::new(vec![family(&sandbox, "one", hasty)]);
    for (set, architecture, word) in [
        (&alone, "trap", "trap-unreachable"),
        (&alone, "loop", "cpu-limit"),
        (&hasty, "sleep", "deadline"),
    ] {
        let error = set.resolve(&metadata(architecture)).unwrap_err();
        assert_eq!(error.code, Code::PluginFault);
        assert_eq!(error.detail("fault"), Some(word), "{architecture}: {error}");
    }
    let wide =
        Limits { host_call_bytes: 256 << 20, memory_mib: 256, cpu_ms: 60_000, ..Limits::default() };
    let error = alone.resolve(&metadata("big")).unwrap_err();
    assert_eq!(error.code, Code::PluginFault, "{error}");
    let both = FamilySet::new(vec![family(&sandbox, "one", limits), family(&sandbox, "two", wide)]);
    assert_eq!(both.resolve(&metadata("golden")).unwrap().family, "golden");
    let resolved = both.resolve(&metadata("big"));
    match resolved {
        Ok(resolved) => assert_eq!(resolved.program.steps.len(), 100_000),
        Err(error) => panic!("{error}: {:?}", error.details),
    }
}

/// Opening a model happens in async code; asking a family there must neither panic nor hang.
#[tokio::test]
async fn families_can_be_asked_from_async_code() {
    let sandbox = sandbox();
    let set = FamilySet::new(vec![family(&sandbox, "golden", Limits::default())]);
    assert_eq!(set.resolve(&metadata("golden")).unwrap().family, "golden");
}
