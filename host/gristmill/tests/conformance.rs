//! `gristmill conformance run`: the engine passes or says why it cannot be tested, the scripted
//! back-end too, and a lie is a failure, a report and, once that is in the ledger, no claim.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::{fs, ops::Deref};

use gristmill_ledger::{
    evidence::{Envelope, Outcome, Statement, Verdict},
    keys::secret,
};
use gristmill_testing::{
    fetch, guests,
    models::{self, Family, Shape},
};
use support::text;

/// A machine on which a short context takes a short time to fill.
struct Home(support::Home);

impl Deref for Home {
    type Target = support::Home;

    fn deref(&self) -> &support::Home {
        &self.0
    }
}

impl Home {
    fn new() -> Self {
        Self(support::Home::with_components().set("GRISTMILL_ENGINE_CONTEXT", "512"))
    }

    fn report(&self, name: &str) -> Statement {
        Statement::parse(&fs::read(self.path(name)).unwrap(), name).unwrap()
    }

    fn with_liar() -> Self {
        let home = Self::new();
        let wasm = home.path("plugins/liar.wasm");
        fs::write(&wasm, guests::guest("liar").unwrap()).unwrap();
        let grants = home.path("policies/grants");
        fs::copy(grants.join("cpu.toml"), grants.join("liar.toml")).unwrap();
        let ledger = home.path("ledger");
        let (ledger, wasm) = (ledger.to_str().unwrap(), wasm.to_str().unwrap());
        home.says(&["plugin", "pin", "--ledger", ledger, wasm]);
        home
    }
}

#[test]
fn the_engine_with_the_demo_model_passes() {
    let home = Home::new();
    let file = fetch::smollm2().unwrap();
    let done = home.run(&["import", file.to_str().unwrap(), "--name", "smollm2"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let done = home.run(&["conformance", "run", "cpu", "--out", "report.json"]);
    let table = text(&done.stdout);
    assert!(done.status.success(), "{table}\n{}", text(&done.stderr));
    assert!(table.contains(", 0 failed, "), "{table}");

    let report = home.report("report.json");
    let predicate = &report.predicate;
    assert_eq!(predicate.backend.kind, "cpu");
    assert_eq!(predicate.configuration.len(), 8);
    assert_eq!(predicate.model.family.as_deref(), Some("llama"));
    assert!(predicate.model.digest.is_some());
    // Nothing that the engine does in any build may slip away as "not applicable".
    for id in [
        "metadata.claims",
        "metadata.context",
        "text.tokens-unicode",
        "text.tokens-special",
        "text.template",
        "text.system-role",
        "text.streaming",
        "text.greedy",
        "text.seed",
        "text.logprobs",
        "limits.stop",
        "limits.max-tokens",
        "limits.usage",
        "limits.timings",
        "limits.context-fits",
        "limits.context-overflow",
        "vectors.order",
        "lifecycle.unknown-model",
        "lifecycle.cancel-queue",
        "lifecycle.cancel-prefill",
        "lifecycle.cancel-decode",
        "lifecycle.interleaved",
        "lifecycle.recovery",
        "negotiation.no-image",
    ] {
        assert!(predicate.passed_tests.iter().any(|passed| passed == id), "{id}:\n{table}");
    }
    for finding in &predicate.checks {
        let open = finding.outcome == Outcome::NotApplicable;
        assert_eq!(open, finding.reason.is_some(), "{finding:?}");
    }
}

/// Without `--model` every model is tested: here families that have nothing in common but the engine,
/// two of them with recurrent states, with weights by chance, so that nothing but the back-end can be
/// right. What is too long for its context is refused for all of them alike.
#[test]
fn unrelated_families_pass_each_with_a_report_of_its_own() {
    let home = Home::new();
    let families = [
        Family::Qwen2,
        Family::Qwen3,
        Family::Gemma2,
        Family::Gemma3,
        Family::Mixtral,
        Family::Lfm2,
        Family::Qwen35,
    ];
    for family in families {
        let name = family.architecture();
        let file = home.path(&format!("{name}.gguf"));
        models::write(&Shape::tiny(family), "q8_0", 1, &file).unwrap();
        let done = home.run(&["import", file.to_str().unwrap(), "--name", name]);
        assert!(done.status.success(), "{}", text(&done.stderr));
    }
    let done = home.run(&["conformance", "run", "cpu", "--out", "report.json"]);
    assert!(done.status.success(), "{}\n{}", text(&done.stdout), text(&done.stderr));
    for family in families {
        let id = format!("{}:latest", family.architecture());
        let report = home.report(&format!("report-{}.json", id.replace(':', "-")));
        assert_eq!(report.predicate.model.id, id);
        let passed = &report.predicate.passed_tests;
        assert!(passed.len() > 30, "{id}: {passed:?}");
        for check in ["limits.context-fits", "limits.context-overflow"] {
            assert!(passed.iter().any(|passed| passed == check), "{id} {check}: {passed:?}");
        }
    }
}

/// A chat format with thought and tools, as Qwen's is in outline.
const TEMPLATE: &str = "\
{%- if tools %}<|im_start|>system
{{ tools | tojson }} Call as <tool_call></tool_call>.<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}";

/// Calls and thought by a model that knows nothing of either: what passes is the engine's doing. Its
/// calls are cut where it fills them with blanks, so of these the suite may say that it saw none; what
/// it saw is right.
#[test]
fn calls_and_thought_of_a_model_by_chance_pass() {
    let home = Home::new();
    let file = home.path("caller.gguf");
    models::write_chatty(&Shape::tiny(Family::Qwen3), "q8_0", 14, TEMPLATE, &file).unwrap();
    let done = home.run(&["import", file.to_str().unwrap(), "--name", "caller"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let done = home.run(&["conformance", "run", "cpu", "--out", "report.json"]);
    let table = text(&done.stdout);
    assert!(done.status.success(), "{table}\n{}", text(&done.stderr));
    let passed = home.report("report.json").predicate.passed_tests;
    for id in ["text.template", "text.system-role", "reasoning.off", "tools.none"] {
        assert!(passed.iter().any(|passed| passed == id), "{id}:\n{table}");
    }
}

#[test]
fn the_scripted_back_end_passes() {
    let home = Home::new();
    let done = home.run(&["conformance", "run", "scripted", "--model", "scripted"]);
    assert!(done.status.success(), "{}\n{}", text(&done.stdout), text(&done.stderr));
}

#[test]
fn a_lie_is_a_failure_with_a_signed_report() {
    let home = Home::with_liar();
    home.says(&["ledger", "keygen", "ada.key"]);
    let run = |model: &str, more: &[&str]| {
        let fixed = ["conformance", "run", "liar", "--model", model];
        home.run(&[&fixed[..], more].concat())
    };
    let done = run("no-ids", &["--probe", "probe-tools", "--out", "r.json", "--key", "ada.key"]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("2 checks failed"), "{}", text(&done.stderr));
    let table = text(&done.stdout);
    assert!(
        table.contains("tools.ids") && table.contains("FAILED  a call without an id"),
        "{table}"
    );

    let envelope: Envelope =
        serde_json::from_slice(&fs::read(home.path("r.json")).unwrap()).unwrap();
    let key = secret(&home.path("ada.key")).unwrap();
    let statement = envelope.verify(&key.verifying_key()).unwrap();
    assert_eq!(statement.predicate.failed_tests, ["tools.ids", "tools.parallel"]);
    let pin = fs::read_to_string(home.path("ledger/pins/liar.toml")).unwrap();
    assert!(pin.contains(statement.subject[0].sha256().trim_start_matches("sha256:")));

    // What shows nothing has passed nothing, and has not failed: it says that nothing is proven.
    let mute = run("mute", &["--check", "limits.stop", "--out", "mute.json"]);
    assert_eq!(mute.status.code(), Some(3), "{}", text(&mute.stderr));
    for said in [&mute.stdout, &mute.stderr] {
        assert!(text(said).contains("nothing is proven: no check applied"), "{}", text(said));
    }
    assert_eq!(home.report("mute.json").predicate.result, Verdict::Unproven);

    let honest = run("honest", &["--check", "tools.ids", "--check", "limits.stop"]);
    assert!(honest.status.success());
    assert!(text(&honest.stdout).contains("2 passed, 0 failed, 0 not applicable"));
}

#[test]
fn what_cannot_be_tested_is_named() {
    let home = Home::with_liar();
    for (arguments, words) in [
        (&["gone"][..], &["no back-end gone", "cpu"][..]),
        (&["cpu"], &["no model to test with"]),
        (&["liar", "--model", "gone"], &["no model gone", "honest"]),
        (&["liar", "--probe", "probe-gone"], &["probe-gone"]),
        (&["liar", "--check", "tools.gone"], &["no probe has the check tools.gone"]),
        (&["liar", "--key", "ada.key"], &["--out"]),
    ] {
        let done = home.run(&[&["conformance", "run"][..], arguments].concat());
        assert!(!done.status.success());
        for word in words {
            assert!(text(&done.stderr).contains(word), "{word}: {}", text(&done.stderr));
        }
    }
    // Evidence that was changed stops the host by its name, before anything is served.
    fs::create_dir(home.path("ledger/evidence")).unwrap();
    fs::write(home.path("ledger/evidence/odd.json"), "{}").unwrap();
    let done = home.run(&["conformance", "run", "liar", "--model", "honest"]);
    assert!(text(&done.stderr).contains("odd.json"), "{}", text(&done.stderr));
}
