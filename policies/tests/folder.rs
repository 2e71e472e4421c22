//! A policy folder is read whole or not at all: what cannot be read or would not be kept to is
//! refused with its file and key. The shipped one is read, and says what it should.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

use std::{fs, path::Path};

use gristmill_policies::{
    Approvals, Asked, Control, Outcome, Rules, Setting, Subject,
    parameter::{Action, Class, Unlisted},
};

const POLICY: &str = "reason = \"r\"\nfamily = \"gemma4\"";
const PROFILE: &str = "description = \"d\"\n[parameters]\nseed = 1";

#[test]
fn a_fault_names_code_file_and_key() {
    for (file, text, code, words) in [
        ("parameters/a.toml", "reson = \"r\"", "invalid-policy", "reson"),
        ("parameters/a.toml", "reason = ", "invalid-policy", "reason"),
        ("parameters/sub/a.toml", POLICY, "unknown-policy", "sub"),
        ("parameters/a.tml", POLICY, "unknown-policy", "a.tml"),
        ("parameters/A b.toml", POLICY, "unknown-policy", "small letters"),
        ("parameters/other.toml", POLICY, "ambiguous-policy", "good.toml and other.toml"),
        ("profiles/a.toml", "description = \"d\"", "invalid-profile", "parameters"),
        ("profiles/none.toml", PROFILE, "invalid-profile", "none"),
        ("parametres/a.toml", POLICY, "unknown-policy", "parameters/, profiles/"),
        ("policy.toml", POLICY, "unknown-policy", "policy.toml"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("parameters/good.toml", POLICY);
        write("parameters/README.md", "for people");
        write("parameters/.good.toml.swp", "an editor's");
        write("profiles/good.toml", PROFILE);
        let rules = Rules::open(folder.path(), Vec::new()).unwrap();
        assert_eq!((rules.policies().len(), rules.profiles().len()), (1, 1));
        write(file, text);
        let error = Rules::open(folder.path(), Vec::new()).unwrap_err();
        let said = error.to_string();
        assert_eq!(error.code(), code, "{file}: {said}");
        assert!(said.contains(words), "{words}: {said}");
        let place = Path::new(file).parent().unwrap().to_str().unwrap().split('/').next().unwrap();
        assert!(said.contains(place), "{place}: {said}");
    }
}

#[test]
fn what_cannot_be_read_is_not_left_out() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Rules::open(folder.path(), Vec::new()).unwrap().policies().is_empty());
    assert!(Rules::open(&folder.path().join("nowhere"), Vec::new()).unwrap().policies().is_empty());
    fs::create_dir(folder.path().join("parameters")).unwrap();
    let file = folder.path().join("parameters/a.toml");
    // Not text, too long, and a folder in place of a file: as root, permissions would not stop us.
    fs::write(&file, [0xff, 0xfe]).unwrap();
    assert_eq!(Rules::open(folder.path(), Vec::new()).unwrap_err().code(), "policy-unreadable");
    fs::write(&file, "# long\n".repeat(10_000)).unwrap();
    assert_eq!(Rules::open(folder.path(), Vec::new()).unwrap_err().code(), "policy-unreadable");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let error = Rules::open(folder.path(), Vec::new()).unwrap_err();
    assert_eq!(error.code(), "policy-unreadable");
    assert!(error.to_string().contains("a.toml"), "{error}");
}

#[test]
fn the_shipped_minimal_profile_of_gemma_4_is_what_was_measured() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rules = Rules::open(folder, Vec::new()).unwrap();
    let subject = |family, backend| Subject {
        names: vec!["gemma4:e4b".to_owned()],
        family: Some(family),
        backend,
        version: "0.12.0",
        native_max: Some(131_072),
    };
    assert!(rules.policy(&subject("gemma4", "vllm")).is_none());
    assert!(rules.policy(&subject("gemma3", "ollama")).is_none());
    let policy = rules.policy(&subject("gemma4", "ollama")).unwrap();
    let good = [(Control::Temperature, 1.0), (Control::TopK, 64.0), (Control::TopP, 0.95)];
    for (control, value) in good {
        let known = policy.parameters.get(&control).unwrap();
        assert_eq!((known.class, &known.value), (Class::KnownGood, &Some(Setting::Number(value))));
    }
    let unverified = [
        Control::NumPredict,
        Control::NumThread,
        Control::RepeatPenalty,
        Control::RepeatLastN,
        Control::Seed,
        Control::Stop,
    ];
    assert_eq!(policy.parameters.len(), good.len() + unverified.len());
    for control in unverified {
        assert_eq!(policy.parameters.get(&control).unwrap().class, Class::Unverified, "{control}");
    }
    let context = policy.context.as_ref().unwrap();
    assert!(context.backend_managed && context.override_supported && !context.override_verified);
    assert_eq!(policy.unlisted, Unlisted::Unverified);
    // The loss is the old profile's, and none of its controls is called bad for it.
    let evidence = policy.evidence.as_deref().unwrap();
    for words in ["27.46", "47.83", "47.75", "whole profile"] {
        assert!(evidence.contains(words), "{words}");
    }

    // A caller's own bounds of its answer go on, and that nobody tested them is told.
    for (control, parameter) in &policy.parameters {
        let bounds = matches!(control, Control::NumPredict | Control::Stop);
        assert_eq!(parameter.action, bounds.then_some(Action::Pass), "{control}");
    }

    // Everything at once: the three go on, the two bounds too, and each but the three is told.
    let mut asked: Asked = Control::ALL.iter().map(|control| (*control, None)).collect();
    for (control, value) in good {
        asked.insert(control, Some(Setting::Number(value)));
    }
    let judged = rules.judge(&subject("gemma4", "ollama"), None, &mut asked).unwrap();
    assert_eq!(
        asked.keys().copied().collect::<Vec<_>>(),
        [Control::Temperature, Control::TopK, Control::TopP, Control::NumPredict, Control::Stop]
    );
    assert_eq!(judged.verdicts.len(), Control::ALL.len() - 3);
    for verdict in &judged.verdicts {
        let passed = matches!(verdict.control, Control::NumPredict | Control::Stop);
        let expected = if passed { Outcome::Passed } else { Outcome::Stripped };
        assert_eq!(verdict.outcome, expected, "{}", verdict.control);
    }
    assert!(!judged.context_verified);

    // Nothing asked, nothing injected; the profile has to be asked for.
    let mut asked = Asked::new();
    let judged = rules.judge(&subject("gemma4", "ollama"), None, &mut asked).unwrap();
    assert!(asked.is_empty() && judged.verdicts.is_empty() && judged.profile.is_none());
    let judged =
        rules.judge(&subject("gemma4", "ollama"), Some("gemma4-minimal"), &mut asked).unwrap();
    assert_eq!((asked.len(), judged.verdicts.len()), (3, 3));
    for (control, value) in good {
        assert_eq!(asked.get(&control), Some(&Some(Setting::Number(value))), "{control}");
    }
    assert_eq!(Approvals::open(folder).unwrap().otherwise, 0);
}
