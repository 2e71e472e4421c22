//! A profile fills what a request leaves out, is judged like the caller, and is told.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

use gristmill_policies::{
    Asked, Control, ParameterPolicy, Profile, Refusal, Rules, Setting, Subject,
};

const CHAT: &str = "description = \"talk\"\nmodels = [\"gemma4*\"]\n[parameters]\ntemperature = 1.0\n\
                    seed = 4\nstop = [\"###\"]";

fn rules(policy: &str) -> Rules {
    let policy = ParameterPolicy::parse("p", &format!("reason = \"why\"\n{policy}")).unwrap();
    let other = "description = \"only for others\"\nbackend = \"vllm\"\n[parameters]\nseed = 1";
    let cold = "description = \"no spread\"\n[parameters]\ntemperature = 0";
    let profiles = vec![
        Profile::parse("chat", CHAT).unwrap(),
        Profile::parse("other", other).unwrap(),
        Profile::parse("cold", cold).unwrap(),
    ];
    Rules::new(vec![policy], profiles, Vec::new()).unwrap()
}

fn subject() -> Subject<'static> {
    Subject {
        names: vec!["gemma4:e4b".to_owned()],
        family: None,
        backend: "ollama",
        version: "1",
        native_max: None,
    }
}

fn told(rules: &Rules, selected: Option<&str>, asked: &mut Asked) -> (Option<String>, Vec<String>) {
    let judged = rules.judge(&subject(), selected, asked).unwrap();
    let told = judged.verdicts.iter().map(|it| it.told(it.control.as_str())).collect();
    (judged.profile, told)
}

#[test]
fn an_assigned_profile_fills_what_is_left_out_and_says_so() {
    let mut asked = Asked::from([(Control::Seed, Some(Setting::Number(9.0)))]);
    let (profile, told) = told(&rules(""), None, &mut asked);
    assert_eq!(profile.as_deref(), Some("chat"));
    assert_eq!(told, ["set temperature=1 (profile)", "set stop=[\"###\"] (profile)"]);
    assert_eq!(asked.get(&Control::Seed), Some(&Some(Setting::Number(9.0))), "the caller's stays");
    assert_eq!(asked.len(), 3);
}

#[test]
fn a_caller_selects_another_or_none() {
    let mut asked = Asked::new();
    assert_eq!(told(&rules(""), Some("cold"), &mut asked).0.as_deref(), Some("cold"));
    assert_eq!(asked.len(), 1);
    let mut asked = Asked::new();
    assert_eq!(told(&rules(""), Some("none"), &mut asked), (None, Vec::new()));
    assert!(asked.is_empty());
    for unknown in ["warm", "other"] {
        let refusal = rules("").judge(&subject(), Some(unknown), &mut Asked::new()).unwrap_err();
        let Refusal::Profile { known, .. } = &refusal else { panic!("{refusal}") };
        assert_eq!(*known, ["chat", "cold"], "those that fit the back-end");
        assert!(refusal.to_string().contains(unknown), "{refusal}");
    }
}

#[test]
fn a_profile_cannot_carry_past_a_policy() {
    let strip = "[parameters.seed]\nclass = \"unverified\"\naction = \"strip\"";
    let mut asked = Asked::new();
    let (_, said) = told(&rules(strip), None, &mut asked);
    assert!(said.contains(&"stripped seed (unverified)".to_owned()), "{said:?}");
    assert!(!said.iter().any(|word| word.starts_with("set seed")), "{said:?}");
    assert!(!asked.contains_key(&Control::Seed));

    let refuse = "[parameters.seed]\nclass = \"known-bad\"";
    assert!(rules(refuse).judge(&subject(), None, &mut Asked::new()).is_err());

    let pass = "[parameters.seed]\nclass = \"unverified\"\naction = \"pass\"";
    let (_, said) = told(&rules(pass), None, &mut Asked::new());
    for word in ["set seed=4 (profile)", "passed seed (unverified)"] {
        assert!(said.contains(&word.to_owned()), "{said:?}");
    }
}

#[test]
fn what_is_not_a_profile_is_refused_by_name() {
    for (name, text, word) in [
        ("none", CHAT.to_owned(), "cannot be called none"),
        ("chat", CHAT.replace("models", "model"), "model"),
        ("chat", CHAT.replace("seed", "seeds"), "seeds"),
        ("chat", CHAT.replace("seed = 4", "seed = -4"), "parameters.seed"),
        ("chat", CHAT.replace("seed = 4", "num_thread = 4"), "no value can be set"),
        ("chat", CHAT.replace("\"###\"", "\"\""), "parameters.stop"),
        ("chat", CHAT.replace("\"talk\"", "\"\""), "description"),
        ("chat", CHAT.replace("gemma4*", "*"), "models"),
        ("chat", "description = \"d\"\n[parameters]".to_owned(), "at least one value"),
        ("chat", "description = \"d\"".to_owned(), "parameters"),
    ] {
        let error = Profile::parse(name, &text).unwrap_err();
        assert!(error.contains(word), "{word}: {error}");
    }
}
