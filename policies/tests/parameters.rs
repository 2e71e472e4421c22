//! Parameter policies are read whole or refused by name, and do to a request what their classes say.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

use gristmill_policies::{
    Asked, Control, Outcome, ParameterPolicy, Refusal, Setting, parameter::Action,
};

const WHOLE: &str = r#"
family = "gemma4"
variants = ["library/gemma4:E4B", "gemma4*"]
backend = "ollama"
versions = ">=0.6.0, <0.9"
hardware = "avx512"
reason = "slow"
evidence = "a run"
unlisted = "unverified"

[actions]
unverified = "strip"

[context]
native-max = 4096
backend-managed = true
override-supported = true
override-verified = true

[parameters.temperature]
class = "known-good"
value = 1.0

[parameters.top_k]
class = "required"
value = 64

[parameters.seed]
class = "known-bad"
value = 7
action = "strip"
reason = "seven is unlucky"
"#;

fn number(value: f64) -> Option<Setting> {
    Some(Setting::Number(value))
}

#[test]
fn a_policy_is_read_whole_and_says_it_again() {
    let policy = ParameterPolicy::parse("whole", WHOLE).unwrap();
    assert_eq!(policy.id, "whole");
    assert_eq!(policy.variants, ["gemma4:e4b", "gemma4*"], "names are compared in small letters");
    assert_eq!(
        (policy.actions.unverified, policy.actions.known_bad),
        (Action::Strip, Action::Refuse)
    );
    assert_eq!(policy.parameters.len(), 3);
    let least = ParameterPolicy::parse("least", "reason = \"r\"").unwrap();
    assert!(least.family.is_none() && least.versions.hold("anything"));
}

#[test]
fn what_is_not_a_policy_is_refused_by_name() {
    for (text, word) in [
        (WHOLE.replace("family", "famly"), "famly"),
        (WHOLE.replace("[parameters.top_k]", "[parameters.topk]"), "topk"),
        (WHOLE.replace("native-max", "native_max"), "native_max"),
        (WHOLE.replace("reason = \"slow\"", ""), "reason"),
        (WHOLE.replace("\"slow\"", "\" \""), "reason: a policy must say why"),
        (WHOLE.replace(">=0.6.0, <0.9", "0.6"), "expected comparisons"),
        (WHOLE.replace("gemma4*", "gem*ma4"), "whole or with one *"),
        (WHOLE.replace("gemma4*", "*"), "leave variants out"),
        (WHOLE.replace("gemma4*", "library/*"), "leave variants out"),
        (WHOLE.replace("gemma4*", "gemma4*:latest"), "one * at its end"),
        (WHOLE.replace("\"required\"", "\"forced\""), "forced"),
        (WHOLE.replace("= 64", "= 64.5"), "parameters.top_k: top_k: expected a whole number"),
        (WHOLE.replace("value = 64", ""), "parameters.top_k: value is missing"),
        (WHOLE.replace("= 64", "= [\"a\"]"), "expected a whole number"),
        (WHOLE.replace("= 64", "= true"), "expected a number or a list of texts"),
        (WHOLE.replace("\"known-good\"", "\"optional\""), "a value means nothing"),
        (WHOLE.replace("\"known-good\"", "\"unverified\""), "a value means nothing"),
        (WHOLE.replace("action = \"strip\"", "action = \"pass\""), "known to be bad does not pass"),
        (WHOLE.replace("unverified = \"strip\"", "known-bad = \"pass\""), "actions.known-bad"),
        (WHOLE.replace("[parameters.seed]", "[parameters.num_ctx]"), "[context] alone"),
        (WHOLE.replace("[parameters.top_k]", "[parameters.num_thread]"), "no value can be set"),
        (WHOLE.replace("override-supported = true", "override-supported = false"), "not tested"),
        (
            WHOLE.replace("backend-managed = true", "action = \"pass\"\nbackend-managed = true"),
            "does not pass",
        ),
        (WHOLE.replace("4096", "0"), "native-max"),
        (WHOLE.replace("backend-managed = true\n", ""), "backend-managed"),
        (format!("id = \"x\"\n{WHOLE}"), "id"),
    ] {
        let error = ParameterPolicy::parse("whole", &text).unwrap_err();
        assert!(error.contains(word), "{word}: {error}");
    }
}

/// One row: parameters of a policy, what is asked, what is told, what goes on. An outcome of
/// `refused` has nothing after it.
struct Row {
    what: &'static str,
    policy: &'static str,
    asked: &'static [(Control, f64)],
    told: &'static [&'static str],
    goes_on: &'static [(Control, f64)],
}

const ROWS: &[Row] = &[
    Row {
        what: "required: left out, it is put in",
        policy: "[parameters.top_k]\nclass = \"required\"\nvalue = 64",
        asked: &[],
        told: &["set top_k=64 (required)"],
        goes_on: &[(Control::TopK, 64.0)],
    },
    Row {
        what: "required: the same value is nothing to tell",
        policy: "[parameters.top_p]\nclass = \"required\"\nvalue = 0.95",
        asked: &[(Control::TopP, 0.95)],
        told: &[],
        goes_on: &[(Control::TopP, 0.95)],
    },
    Row {
        what: "required: another value is refused",
        policy: "[parameters.top_k]\nclass = \"required\"\nvalue = 64",
        asked: &[(Control::TopK, 40.0)],
        told: &["refused top_k (required is 64)"],
        goes_on: &[],
    },
    Row {
        what: "required and strip: another value is replaced",
        policy: "[parameters.top_k]\nclass = \"required\"\nvalue = 64\naction = \"strip\"",
        asked: &[(Control::TopK, 40.0)],
        told: &["replaced top_k=64 (required)"],
        goes_on: &[(Control::TopK, 64.0)],
    },
    Row {
        what: "required and pass: another value goes on and is told",
        policy: "[actions]\nrequired = \"pass\"\n[parameters.top_k]\nclass = \"required\"\nvalue = 64",
        asked: &[(Control::TopK, 40.0)],
        told: &["passed top_k (required is 64)"],
        goes_on: &[(Control::TopK, 40.0)],
    },
    Row {
        what: "known-good: left out, it stays out",
        policy: "[parameters.temperature]\nclass = \"known-good\"\nvalue = 1",
        asked: &[],
        told: &[],
        goes_on: &[],
    },
    Row {
        what: "known-good: another value goes on and is told",
        policy: "[parameters.temperature]\nclass = \"known-good\"\nvalue = 1",
        asked: &[(Control::Temperature, 0.2)],
        told: &["passed temperature (known-good is 1)"],
        goes_on: &[(Control::Temperature, 0.2)],
    },
    Row {
        what: "optional: the caller's",
        policy: "[parameters.seed]\nclass = \"optional\"",
        asked: &[(Control::Seed, 3.0)],
        told: &[],
        goes_on: &[(Control::Seed, 3.0)],
    },
    Row {
        what: "unverified: refused unless the policy says otherwise",
        policy: "[parameters.seed]\nclass = \"unverified\"",
        asked: &[(Control::Seed, 3.0)],
        told: &["refused seed (unverified)"],
        goes_on: &[],
    },
    Row {
        what: "unverified and strip, but one of them passes",
        policy: "[actions]\nunverified = \"strip\"\n[parameters.seed]\nclass = \"unverified\"\n\
                 [parameters.num_predict]\nclass = \"unverified\"\naction = \"pass\"",
        asked: &[(Control::Seed, 3.0), (Control::NumPredict, 9.0)],
        told: &["stripped seed (unverified)", "passed num_predict (unverified)"],
        goes_on: &[(Control::NumPredict, 9.0)],
    },
    Row {
        what: "known-bad: refused whatever its value",
        policy: "[parameters.min_p]\nclass = \"known-bad\"",
        asked: &[(Control::MinP, 0.0)],
        told: &["refused min_p (known-bad)"],
        goes_on: &[],
    },
    Row {
        what: "known-bad with a value: only that one",
        policy: "[parameters.temperature]\nclass = \"known-bad\"\nvalue = 0\naction = \"strip\"",
        asked: &[(Control::Temperature, 0.0)],
        told: &["stripped temperature (known-bad)"],
        goes_on: &[],
    },
    Row {
        what: "known-bad with a value: others are the caller's",
        policy: "[parameters.temperature]\nclass = \"known-bad\"\nvalue = 0",
        asked: &[(Control::Temperature, 0.1)],
        told: &[],
        goes_on: &[(Control::Temperature, 0.1)],
    },
    Row {
        what: "what is not listed is the caller's",
        policy: "",
        asked: &[(Control::Seed, 3.0)],
        told: &[],
        goes_on: &[(Control::Seed, 3.0)],
    },
    Row {
        what: "what is not listed is unverified, if the policy says so",
        policy: "unlisted = \"unverified\"\nactions.unverified = \"strip\"",
        asked: &[(Control::Seed, 3.0), (Control::NumThread, 8.0)],
        told: &["stripped seed (unverified)", "stripped num_thread (unverified)"],
        goes_on: &[],
    },
    Row {
        what: "placement that passes reaches nobody, and is not said to",
        policy: "unlisted = \"unverified\"\nactions.unverified = \"pass\"",
        asked: &[(Control::NumThread, 8.0)],
        told: &[],
        goes_on: &[(Control::NumThread, 8.0)],
    },
    Row {
        what: "without [context] its length is nobody's here",
        policy: "unlisted = \"unverified\"",
        asked: &[(Control::NumCtx, 8192.0)],
        told: &[],
        goes_on: &[(Control::NumCtx, 8192.0)],
    },
    Row {
        what: "an override that does not work is refused",
        policy: "context = { backend-managed = true, override-supported = false, override-verified = false }",
        asked: &[(Control::NumCtx, 8192.0)],
        told: &["refused num_ctx (override-unsupported)"],
        goes_on: &[],
    },
    Row {
        what: "an override that nobody tested is refused",
        policy: "context = { backend-managed = true, override-supported = true, override-verified = false }",
        asked: &[(Control::NumCtx, 8192.0)],
        told: &["refused num_ctx (override-unverified)"],
        goes_on: &[],
    },
    Row {
        what: "or stripped",
        policy: "context = { backend-managed = true, override-supported = true, override-verified = false, action = \"strip\" }",
        asked: &[(Control::NumCtx, 8192.0)],
        told: &["stripped num_ctx (override-unverified)"],
        goes_on: &[],
    },
    Row {
        what: "a tested one goes on",
        policy: "context = { backend-managed = true, override-supported = true, override-verified = true }",
        asked: &[(Control::NumCtx, 8192.0)],
        told: &[],
        goes_on: &[(Control::NumCtx, 8192.0)],
    },
    Row {
        what: "but not beyond what the model was trained for",
        policy: "context = { native-max = 4096, backend-managed = true, override-supported = true, override-verified = true }",
        asked: &[(Control::NumCtx, 8192.0)],
        told: &["refused num_ctx (beyond-native-max)"],
        goes_on: &[],
    },
];

#[test]
fn each_class_does_what_it_says() {
    for row in ROWS {
        let policy = format!("reason = \"why\"\n{}", row.policy);
        let policy = ParameterPolicy::parse("p", &policy)
            .unwrap_or_else(|error| panic!("{}: {error}", row.what));
        let mut asked: Asked = row.asked.iter().map(|(it, value)| (*it, number(*value))).collect();
        let expected: Asked = row.goes_on.iter().map(|(it, value)| (*it, number(*value))).collect();
        match policy.judge(&mut asked, Some(131_072)) {
            Ok(verdicts) => {
                let told: Vec<_> = verdicts.iter().map(|it| it.told(it.control.as_str())).collect();
                assert_eq!(told, row.told, "{}", row.what);
                assert_eq!(asked, expected, "{}", row.what);
                assert!(verdicts.iter().all(|it| it.reason.as_deref() == Some("why")));
            }
            Err(Refusal::Control { policy, verdict }) => {
                assert_eq!(verdict.outcome, Outcome::Refused);
                assert_eq!([verdict.told(verdict.control.as_str())], *row.told, "{}", row.what);
                assert_eq!(policy, "p");
            }
            Err(other) => panic!("{}: {other}", row.what),
        }
    }
}

#[test]
fn the_smaller_of_two_native_lengths_counts() {
    let context = "reason = \"r\"\ncontext = { native-max = 9000, backend-managed = true, override-supported = true, override-verified = true }";
    let policy = ParameterPolicy::parse("p", context).unwrap();
    for (told, passes) in [(None, true), (Some(10_000), true), (Some(8_000), false)] {
        let mut asked = Asked::from([(Control::NumCtx, number(8192.0))]);
        assert_eq!(policy.judge(&mut asked, told).is_ok(), passes, "{told:?}");
    }
}

#[test]
fn a_refusal_says_policy_control_class_and_reason() {
    let policy = ParameterPolicy::parse("whole", WHOLE).unwrap();
    let mut asked = Asked::from([(Control::TopK, number(1.0))]);
    let refusal = policy.judge(&mut asked, None).unwrap_err().to_string();
    assert_eq!(refusal, "top_k is refused by the policy whole: required is 64; slow; leave it out");
    // A control's own reason goes before the policy's.
    let mut asked = Asked::from([(Control::Seed, number(7.0))]);
    let verdicts = policy.judge(&mut asked, None).unwrap();
    let seed = verdicts.iter().find(|it| it.control == Control::Seed).unwrap();
    assert_eq!(seed.reason.as_deref(), Some("seven is unlucky"));
}

#[test]
fn single_precision_is_compared_as_it_is_written() {
    for value in [0.95_f32, 1.0, 0.1, 1.1, 0.000_1] {
        assert_eq!(Setting::single(value), Setting::Number(value.to_string().parse().unwrap()));
    }
    assert_eq!(Setting::single(0.95), Setting::Number(0.95));
}
