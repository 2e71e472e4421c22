//! Of several policies the most specific applies, always the same one; what cannot be decided is an
//! error when the files are read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

use gristmill_policies::{ParameterPolicy, Profile, Rules, Subject};

fn policy(id: &str, more: &str) -> ParameterPolicy {
    ParameterPolicy::parse(id, &format!("reason = \"r\"\n{more}")).unwrap()
}

fn hardware() -> Vec<String> {
    ["x86_64", "scalar", "avx2"].map(str::to_owned).to_vec()
}

fn subject<'a>(names: &[&str], version: &'a str) -> Subject<'a> {
    Subject {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        family: Some("gemma4"),
        backend: "ollama",
        version,
        native_max: None,
    }
}

/// From the most general to the most specific: each goes before all above it.
const LADDER: &[(&str, &str)] = &[
    ("anything", ""),
    ("arch", "hardware = \"x86_64\""),
    ("avx2", "hardware = \"avx2\""),
    ("range", "versions = \">=0.5, <1\""),
    ("range-avx2", "versions = \">=0.5, <1\"\nhardware = \"avx2\""),
    ("version", "versions = \"=0.6.2\""),
    ("backend", "backend = \"ollama\""),
    ("backend-range", "backend = \"ollama\"\nversions = \"<0.7\""),
    ("family", "family = \"gemma4\""),
    ("family-backend", "family = \"gemma4\"\nbackend = \"ollama\""),
    ("prefix", "variants = [\"gemma4*\"]"),
    ("longer-prefix", "variants = [\"gemma4:e4*\"]"),
    ("longer-prefix-family", "variants = [\"gemma4:e4*\"]\nfamily = \"gemma4\""),
    ("name", "variants = [\"gemma4:e4b\"]"),
    ("name-and-all", "variants = [\"gemma4:e4b\", \"gemma4*\"]\nbackend = \"ollama\""),
];

#[test]
fn the_more_specific_wins() {
    let it = subject(&["gemma4:e4b"], "0.6.2");
    for (place, (id, _)) in LADDER.iter().enumerate() {
        let mut policies: Vec<_> =
            LADDER.iter().take(place + 1).map(|(id, more)| policy(id, more)).collect();
        for _ in 0..2 {
            let rules = Rules::new(policies.clone(), Vec::new(), hardware()).unwrap();
            assert_eq!(rules.policy(&it).unwrap().id, *id, "in any order of files");
            policies.reverse();
        }
    }
}

#[test]
fn what_a_policy_names_must_hold() {
    let whole = "family = \"gemma4\"\nvariants = [\"gemma4:e4b\", \"mine*\"]\nbackend = \"ollama\"\n\
                 versions = \">=0.6, <0.9\"\nhardware = \"avx2\"";
    let rules =
        |words: Vec<String>| Rules::new(vec![policy("p", whole)], Vec::new(), words).unwrap();
    let base = subject(&["gemma4:e4b"], "0.6.2");
    let hit = |it: &Subject<'_>| rules(hardware()).policy(it).is_some();
    assert!(hit(&base));
    assert!(hit(&subject(&["other", "mine:7b"], "0.6.2")), "by any name");
    assert!(hit(&subject(&["gemma4:e4b"], "unknown")), "nothing shows that it is outside");
    assert!(!hit(&subject(&["gemma4:e4b"], "0.9.0")));
    assert!(!hit(&subject(&["gemma4:e2b"], "0.6.2")));
    assert!(!hit(&Subject { family: None, ..base.clone() }), "a family that nobody tells");
    assert!(!hit(&Subject { family: Some("gemma3"), ..base.clone() }));
    assert!(!hit(&Subject { backend: "vllm", ..base.clone() }));
    assert!(rules(vec!["x86_64".to_owned()]).policy(&base).is_none(), "other hardware");
}

#[test]
fn two_that_are_equally_specific_are_an_error() {
    for (one, other, clash) in [
        ("", "", true),
        ("family = \"a\"", "family = \"a\"", true),
        ("family = \"a\"", "family = \"b\"", false),
        ("family = \"a\"", "backend = \"a\"", false),
        ("variants = [\"a\", \"b\"]", "variants = [\"B\", \"c\"]", true),
        ("variants = [\"a\"]", "variants = [\"a*\"]", false),
        ("variants = [\"ab*\"]", "variants = [\"ac*\"]", false),
        ("versions = \"<0.6\"", "versions = \">=0.6\"", false),
        ("versions = \"<=0.6\"", "versions = \">=0.6\"", true),
        ("versions = \">0.6, <0.8\"", "versions = \">=0.7\"", true),
        ("versions = \"=0.6\"", "versions = \"=0.6.0\"", true),
        ("versions = \"=0.6\"", "versions = \"=0.7\"", false),
        ("versions = \"=0.6\"", "versions = \"<0.7\"", false),
        ("hardware = \"avx2\"", "hardware = \"avx2\"", true),
        ("hardware = \"avx2\"", "hardware = \"avx512\"", false),
    ] {
        for (first, second) in [(one, other), (other, one)] {
            let rules =
                Rules::new(vec![policy("p", first), policy("q", second)], Vec::new(), hardware());
            assert_eq!(rules.is_err(), clash, "{first} / {second}");
            if let Err(error) = rules {
                assert!(error.to_string().contains("p.toml and q.toml"), "{error}");
            }
        }
    }
}

#[test]
fn what_files_cannot_show_goes_to_the_first_id() {
    let older = policy("older", "versions = \"<0.6\"");
    let newer = policy("newer", "versions = \">=0.6\"");
    let rules = Rules::new(vec![older, newer], Vec::new(), hardware()).unwrap();
    assert_eq!(rules.policy(&subject(&["m"], "0.5")).unwrap().id, "older");
    assert_eq!(rules.policy(&subject(&["m"], "not told")).unwrap().id, "newer");
    let rules = Rules::new(
        vec![policy("b", "variants = [\"one\"]"), policy("a", "variants = [\"two\"]")],
        Vec::new(),
        hardware(),
    )
    .unwrap();
    assert_eq!(rules.policy(&subject(&["one", "two"], "1")).unwrap().id, "a");
}

#[test]
fn a_version_is_asked_for_where_it_matters() {
    let rules = |more: &str| Rules::new(vec![policy("p", more)], Vec::new(), hardware()).unwrap();
    assert!(!rules("backend = \"ollama\"").ask_version("ollama"));
    assert!(rules("backend = \"ollama\"\nversions = \"<1\"").ask_version("ollama"));
    assert!(!rules("backend = \"ollama\"\nversions = \"<1\"").ask_version("vllm"));
    assert!(rules("versions = \"<1\"").ask_version("vllm"));
}

#[test]
fn profiles_follow_the_same_rule() {
    let profile = |name: &str, more: &str| {
        let text = format!("description = \"d\"\n{more}\n[parameters]\nseed = 1");
        Profile::parse(name, &text).unwrap()
    };
    let wide = profile("wide", "models = [\"gemma4*\"]");
    let narrow = profile("narrow", "models = [\"gemma4*\"]\nbackend = \"ollama\"");
    let exact = profile("exact", "models = [\"gemma4:e4b\"]");
    let asked = profile("asked", "");
    let all = vec![wide.clone(), narrow, exact, asked];
    let rules = Rules::new(Vec::new(), all, hardware()).unwrap();
    let name = |names: &[&str]| rules.assigned(&subject(names, "1")).map(|it| it.name.clone());
    assert_eq!(name(&["gemma4:e4b"]).as_deref(), Some("exact"));
    assert_eq!(name(&["gemma4:e2b"]).as_deref(), Some("narrow"));
    assert_eq!(name(&["llama"]), None, "one without models is assigned to none");
    let twin = profile("twin", "models = [\"gemma4*\", \"x\"]");
    let error = Rules::new(Vec::new(), vec![wide, twin], hardware()).unwrap_err().to_string();
    assert!(error.contains("twin.toml and wide.toml"), "{error}");
}
