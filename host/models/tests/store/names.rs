//! A name is found whatever its case; what is no name never touches the disk.

use gristmill_core::error::Code;
use gristmill_models::store::{Name, Silent, StoreError};

use crate::support::Room;

#[test]
fn names_get_their_defaults_and_keep_their_case() {
    for (text, shown, key) in [
        ("smollm2", "smollm2:latest", "library/smollm2:latest"),
        ("SmolLM2:135M", "SmolLM2:135M", "library/smollm2:135m"),
        (
            "Google/gemma-3_1b.it:Q4_K_M",
            "Google/gemma-3_1b.it:Q4_K_M",
            "google/gemma-3_1b.it:q4_k_m",
        ),
        ("library/a", "a:latest", "library/a:latest"),
    ] {
        let name = Name::parse(text).unwrap();
        assert_eq!((name.to_string().as_str(), name.key().as_str()), (shown, key));
    }
}

#[test]
fn what_is_no_name_is_refused_by_every_operation_and_leaves_no_trace() {
    let room = Room::new();
    let model = room.model("a.gguf", 1);
    let long = "x".repeat(97);
    let bad = [
        "",
        ":",
        "/",
        "a/",
        "/a",
        "a:",
        ":a",
        ".",
        "..",
        "../a",
        "a/..",
        "..:latest",
        "a:..",
        "a:../b",
        "a/b/c",
        "a:b:c",
        "/etc/passwd",
        "a\\b",
        "C:\\a",
        "a b",
        "a\0",
        "a\nb",
        "-a",
        "_a",
        ".a",
        "a.",
        "a:b/c",
        "名前",
        "ａ",
        "а",
        "a\u{202e}",
        "é",
        "%2e%2e",
        "~",
        "a*",
        "con|x",
        &long,
        &format!("{long}/a"),
        &format!("a:{long}"),
        "hf:owner/repo",
    ];
    for name in bad {
        let errors = [
            room.store.locate(name).unwrap_err(),
            room.store.import(&model, Some(name), &mut Silent).unwrap_err(),
            room.store.copy("a", name).unwrap_err(),
            room.store.copy(name, "a").unwrap_err(),
            room.store.remove(name).unwrap_err(),
            room.store.verify(name, &mut Silent).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, StoreError::Name { .. }), "{name:?}: {error}");
            assert_eq!(error.code(), Code::InvalidRequest);
            assert!(error.to_string().contains("expected [namespace/]model[:tag]"), "{error}");
            assert!(error.to_string().is_ascii() || !name.is_ascii(), "{error}");
        }
    }
    assert!(room.tree().is_empty());
    assert_eq!(std::fs::read_dir(room.dir.path()).unwrap().count(), 2);
}

#[test]
fn a_control_character_never_reaches_a_message_raw() {
    let error = Name::parse("a\n\u{1b}[31m").unwrap_err().to_string();
    assert!(!error.contains(char::is_control), "{error:?}");
}

#[test]
fn any_case_finds_the_same_model() {
    let room = Room::new();
    let model = room.model("a.gguf", 1);
    room.store.import(&model, Some("Org/MyModel:Q4_0"), &mut Silent).unwrap();
    for name in ["Org/MyModel:Q4_0", "org/mymodel:q4_0", "ORG/MYMODEL:Q4_0"] {
        assert_eq!(room.store.locate(name).unwrap().id, "Org/MyModel:Q4_0");
    }
    room.store.import(&model, Some("ORG/mymodel:q4_0"), &mut Silent).unwrap();
    assert_eq!(room.names(), ["ORG/mymodel:q4_0"]);
}

#[test]
fn what_is_not_there_comes_with_suggestions() {
    let room = Room::new();
    let model = room.model("a.gguf", 1);
    for name in ["qwen2.5:0.5b", "mistral", "tinyllama:1.1b"] {
        room.store.import(&model, Some(name), &mut Silent).unwrap();
    }
    for (wanted, expected, known) in [
        ("qwen2.5", "qwen2.5:0.5b", false),
        ("mistal", "mistral:latest", false),
        ("llama", "tinyllama:1.1b", false),
        ("smollm2", "", true),
    ] {
        let error = room.store.locate(wanted).unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        let StoreError::NotFound { suggestions, known: in_catalogue, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(suggestions.join(" "), expected, "{wanted}");
        assert_eq!(*in_catalogue, known, "{wanted}");
    }
    let text = room.store.locate("mistal").unwrap_err().to_string();
    assert_eq!(text, "no model `mistal:latest` in the store; did you mean mistral:latest?");
}
