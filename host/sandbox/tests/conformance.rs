//! For every lie that a back-end can tell there is a check of the suite that fails, and an honest
//! back-end passes. A check that no lie fails would be worth nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod bent;
mod common;

use std::{collections::BTreeSet, fs, sync::Arc, time::Duration};

use bent::{Bend, Bent};
use common::{grant, guest, pin, sandbox};
use gristmill_ledger::Kind;
use gristmill_policies::Limits;
use gristmill_sandbox::{Backend, Check, Observed, Outcome, Plan, Probe, Sandbox, Services};
use gristmill_testing::components;

/// The whole suite, as built.
struct Suite(Vec<Arc<dyn Probe>>);

impl Suite {
    fn load(sandbox: &Sandbox) -> Self {
        let mut files: Vec<_> = fs::read_dir(components::components().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                path.file_name().unwrap().to_str().unwrap().starts_with("probe_")
                    && path.extension().is_some_and(|extension| extension == "wasm")
            })
            .collect();
        files.sort();
        assert_eq!(files.len(), 8, "{files:?}");
        let load = |path: &std::path::PathBuf| {
            let bytes = fs::read(path).unwrap();
            let name = path.file_stem().unwrap().to_str().unwrap().replace('_', "-");
            let grant = grant(Kind::Probe, Limits { cpu_ms: 10_000, ..Limits::default() });
            sandbox.load_probe(&bytes, &pin(&name, &bytes), &grant).unwrap()
        };
        Self(files.iter().map(load).collect())
    }

    async fn ids(&self) -> Vec<String> {
        let mut ids = Vec::new();
        for probe in &self.0 {
            ids.extend(probe.checks().await.unwrap());
        }
        ids
    }

    /// Every check in a call of its own, against a back-end of its own.
    async fn run(&self, backend: impl Fn() -> Arc<Observed>, model: &str) -> Vec<Check> {
        let mut results = Vec::new();
        for probe in &self.0 {
            for id in probe.checks().await.unwrap() {
                let plan = Plan {
                    model: model.into(),
                    checks: vec![id],
                    budget_ms: 60_000,
                    extras: Vec::new(),
                };
                results.extend(probe.run(backend(), plan).await.unwrap());
            }
        }
        results
    }
}

fn liar(sandbox: &Sandbox) -> Arc<dyn Backend> {
    let bytes = guest("liar");
    let limits = Limits::default();
    let grant = grant(Kind::Backend, limits);
    sandbox.load_backend(&bytes, &pin("liar", &bytes), &grant, Services::default()).unwrap()
}

fn failed(results: &[Check]) -> BTreeSet<&str> {
    let wrong = |check: &&Check| matches!(check.outcome, Outcome::Failed(_));
    results.iter().filter(wrong).map(|check| check.id.as_str()).collect()
}

fn not_applicable(results: &[Check]) -> BTreeSet<&str> {
    let out = |check: &&Check| matches!(check.outcome, Outcome::NotApplicable(_));
    results.iter().filter(out).map(|check| check.id.as_str()).collect()
}

/// Lies of the guest's models, and exactly the checks that fail.
const LIES: &[(&str, &[&str])] = &[
    ("truncates", &["limits.context-overflow"]),
    ("reads-half", &["limits.context-fits"]),
    ("no-ids", &["tools.ids", "tools.parallel"]),
    ("same-ids", &["tools.ids", "tools.parallel", "tools.round-trip"]),
    ("names-another-model", &["lifecycle.answering-model"]),
    ("splits", &["text.unicode-answer", "text.logprobs"]),
    ("ignores-stop", &["limits.stop"]),
    ("leaks-stop", &["limits.stop"]),
    ("names-wrong-stop", &["limits.stop"]),
    ("ignores-max", &["limits.max-tokens", "limits.usage"]),
    ("stops-for-no-reason", &["limits.max-tokens"]),
    (
        "unbound",
        &[
            "structured.object",
            "structured.refused",
            "structured.regex",
            "structured.schema",
            "structured.streaming",
            "structured.types",
            "structured.unicode",
        ],
    ),
    ("takes-any-schema", &["structured.refused"]),
    ("unseeded", &["text.seed"]),
    ("moody", &["text.greedy", "text.streaming"]),
    ("streams-another", &["limits.stop", "text.streaming", "lifecycle.interleaved"]),
    ("miscounts", &["limits.usage"]),
    ("slow-clock", &["limits.timings"]),
    ("drops-marks", &["text.tokens-unicode"]),
    ("squeezes", &["text.tokens-ascii"]),
    ("forges", &["text.tokens-special"]),
    ("two-beginnings", &["text.bos-once"]),
    ("forgets-turns", &["text.template"]),
    ("ignores-system", &["text.system-role"]),
    ("no-logprobs", &["text.logprobs"]),
    ("rising-logprobs", &["text.logprobs"]),
    ("thinks-anyway", &["reasoning.off"]),
    ("leaks-thought", &["reasoning.on"]),
    (
        "stringly",
        &[
            "tools.array",
            "tools.boolean",
            "tools.null",
            "tools.number",
            "tools.object",
            "tools.parallel",
        ],
    ),
    ("translates", &["tools.string"]),
    (
        "no-arguments",
        &[
            "tools.array",
            "tools.boolean",
            "tools.empty",
            "tools.null",
            "tools.number",
            "tools.object",
            "tools.parallel",
            "tools.string",
        ],
    ),
    ("calls-anyway", &["tools.none"]),
    (
        "never-calls",
        &[
            "tools.array",
            "tools.boolean",
            "tools.channel",
            "tools.empty",
            "tools.fragments",
            "tools.ids",
            "tools.null",
            "tools.number",
            "tools.object",
            "tools.parallel",
            "tools.round-trip",
            "tools.streaming",
            "tools.string",
        ],
    ),
    ("calls-in-text", &["tools.channel"]),
    ("forgets-results", &["tools.round-trip"]),
    ("always-parallel", &["tools.parallel"]),
    ("streams-fewer", &["tools.fragments", "tools.streaming"]),
    ("one-piece", &["tools.fragments"]),
    ("shuffles", &["vectors.order"]),
    ("too-long", &["vectors.dimensions"]),
    ("embeds-all", &["vectors.overflow"]),
    ("worst-first", &["ranks.order", "ranks.top"]),
    ("all-ranks", &["ranks.top"]),
    ("blind", &["negotiation.image"]),
    (
        "modest-takes-all",
        &[
            "negotiation.no-audio",
            "negotiation.no-embeddings",
            "negotiation.no-image",
            "negotiation.no-logprobs",
            "negotiation.no-ranks",
            "negotiation.no-reasoning",
            "negotiation.no-schema",
            "negotiation.no-tools",
            "negotiation.unknown-constraint",
        ],
    ),
    ("any-constraint", &["negotiation.unknown-constraint"]),
    ("bad-digest", &["metadata.digest"]),
    ("two-contexts", &["metadata.context"]),
    ("both-kinds", &["metadata.dense"]),
    ("more-active", &["metadata.moe"]),
    ("foreign-format", &["metadata.quantization"]),
    ("over-accepts", &["metadata.speculation"]),
    ("counts-unread", &["text.system-role", "text.template", "tools.round-trip"]),
    ("reads-tail", &["limits.context-fits"]),
    ("drops-wide", &["text.logprobs", "text.unicode-answer"]),
    ("loses-tail", &["text.logprobs", "text.unicode-answer"]),
    ("no-others", &["text.logprobs"]),
    ("forges-inside", &["text.tokens-special"]),
    ("never-thinks", &["reasoning.on"]),
    ("all-thought", &["reasoning.on"]),
    ("thinks-in-secret", &["limits.usage", "reasoning.off"]),
    ("streams-past-stop", &["limits.stop"]),
    ("one-lump", &["text.streaming"]),
    ("counts-one", &["limits.usage", "text.logprobs"]),
    (
        "will-not-force",
        &[
            "tools.array",
            "tools.boolean",
            "tools.empty",
            "tools.null",
            "tools.number",
            "tools.object",
            "tools.string",
            "tools.channel",
            "tools.fragments",
            "tools.ids",
            "tools.parallel",
            "tools.round-trip",
            "tools.streaming",
        ],
    ),
    (
        "rambles",
        &[
            "structured.object",
            "structured.refused",
            "structured.regex",
            "structured.schema",
            "structured.streaming",
            "structured.types",
            "structured.unicode",
            "tools.array",
            "tools.boolean",
            "tools.channel",
            "tools.empty",
            "tools.fragments",
            "tools.ids",
            "tools.null",
            "tools.number",
            "tools.object",
            "tools.parallel",
            "tools.round-trip",
            "tools.streaming",
            "tools.string",
        ],
    ),
    (
        "drops-falsy",
        &["tools.array", "tools.boolean", "tools.number", "tools.object", "tools.string"],
    ),
    ("rounds", &["tools.number"]),
    (
        "unbound-wordless",
        &[
            "tools.array",
            "tools.boolean",
            "tools.empty",
            "tools.null",
            "tools.number",
            "tools.object",
            "tools.string",
        ],
    ),
    ("reuses-ids", &["tools.round-trip"]),
    ("swaps-arguments", &["tools.parallel"]),
    ("streams-no-ids", &["tools.streaming"]),
    ("empty-pieces", &["tools.fragments"]),
    ("spaces-calls-out", &["tools.channel"]),
    (
        "refuses-schemas",
        &[
            "structured.object",
            "structured.refused",
            "structured.regex",
            "structured.schema",
            "structured.streaming",
            "structured.types",
            "structured.unicode",
        ],
    ),
    ("loses-emoji", &["structured.unicode"]),
    ("reverses", &["vectors.order"]),
    ("other-dimensions", &["vectors.dimensions"]),
    ("ranks-by-place", &["ranks.order"]),
    ("one-score", &["ranks.order"]),
    ("prefixes", &["lifecycle.unknown-model"]),
    ("names-two-models", &["lifecycle.answering-model"]),
    ("glances", &["negotiation.image"]),
    ("deaf", &["negotiation.audio"]),
    ("dense-with-active", &["metadata.dense"]),
    ("numberless", &["metadata.context"]),
    ("one-expert", &["metadata.moe"]),
    ("routes-by-chance", &["metadata.routing", "text.greedy", "text.streaming"]),
    ("drafts-another", &["metadata.speculation"]),
    ("half-told", &["metadata.speculation"]),
    ("modest-says-nothing", &["negotiation.no-tools"]),
];

/// Models that hide what a check looks for: it is not applicable, and has not passed.
const HIDE: &[(&str, &[&str])] = &[
    (
        "mute",
        &[
            "lifecycle.cancel-decode",
            "lifecycle.interleaved",
            "text.greedy",
            "text.seed",
            "text.streaming",
        ],
    ),
    ("always-greedy", &["text.seed"]),
    ("ascii", &["text.unicode-answer"]),
    (
        "tells-nothing",
        &[
            "limits.context-fits",
            "limits.max-tokens",
            "limits.usage",
            "text.bos-once",
            "text.system-role",
            "text.template",
        ],
    ),
    ("one-call", &["tools.parallel"]),
    ("drafts-nothing", &["metadata.speculation"]),
    ("refuses-all", &["negotiation.no-audio", "negotiation.no-image"]),
    ("no-specials", &["text.tokens-special"]),
    ("perceptive", &["metadata.routing"]),
];

/// Lies that need a memory, which guests do not have: the honest model behind a bent host.
const BENDS: &[(Bend, &[&str])] = &[
    (Bend::Nameless, &["metadata.descriptor"]),
    (Bend::UnknownWord, &["metadata.claims"]),
    (Bend::ListsTwice, &["metadata.model"]),
    (Bend::SharesNames, &["metadata.model"]),
    (Bend::SubstitutesVectors, &["lifecycle.unknown-model"]),
    (Bend::CrashesSilently, &["lifecycle.crash"]),
    (Bend::ForgetsWaiting, &["lifecycle.cancel-queue"]),
    (Bend::Substitutes, &["lifecycle.unknown-model"]),
    (Bend::Unwell, &["lifecycle.health", "lifecycle.recovery"]),
    (Bend::UnwellAfterFailure, &["lifecycle.recovery"]),
    (Bend::Mixes, &["lifecycle.interleaved"]),
    (
        Bend::KeepsPlaces,
        &["lifecycle.cancel-decode", "lifecycle.cancel-prefill", "lifecycle.cancel-queue"],
    ),
];

/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn honest_back_ends_pass() {
    let sandbox = sandbox();
    let suite = Suite::load(&sandbox);
    for (model, out) in [
        (
            "honest",
            &[
                "lifecycle.crash",
                "metadata.moe",
                "metadata.routing",
                "negotiation.audio",
                "negotiation.image",
                "negotiation.no-embeddings",
                "negotiation.no-logprobs",
                "negotiation.no-ranks",
                "negotiation.no-reasoning",
                "negotiation.no-schema",
                "negotiation.no-tools",
            ][..],
        ),
        (
            "perceptive",
            &[
                "lifecycle.crash",
                "metadata.dense",
                "metadata.routing",
                "metadata.speculation",
                "negotiation.no-audio",
                "negotiation.no-embeddings",
                "negotiation.no-image",
                "negotiation.no-logprobs",
                "negotiation.no-ranks",
                "negotiation.no-reasoning",
                "negotiation.no-schema",
                "negotiation.no-tools",
            ],
        ),
        ("modest", &[]),
    ] {
        let liar = liar(&sandbox);
        let observed = || Observed::new(Arc::clone(&liar), None, PATIENCE);
        let results = suite.run(observed, model).await;
        let wrong: Vec<_> =
            results.iter().filter(|check| matches!(check.outcome, Outcome::Failed(_))).collect();
        assert!(wrong.is_empty(), "{model}: {wrong:#?}");
        if model != "modest" {
            assert_eq!(not_applicable(&results), out.iter().copied().collect(), "{model}");
        }
        assert!(results.iter().all(|check| check.capability.is_some()));
        assert_eq!(sandbox.strikes(liar.digest()), 0);
    }
}

#[tokio::test]
async fn every_lie_fails_its_checks_and_every_check_fails_for_a_lie() {
    let sandbox = sandbox();
    let suite = Suite::load(&sandbox);
    let liar = liar(&sandbox);
    let mut caught = BTreeSet::new();
    let mut wrong = Vec::new();
    let mut note = |name: String, expected: &[&str], results: &[Check]| {
        let expected: BTreeSet<_> = expected.iter().copied().collect();
        let found = failed(results);
        caught.extend(found.iter().map(|&id| id.to_owned()));
        if found != expected {
            let detail: Vec<_> = results
                .iter()
                .filter(|check| found.contains(&*check.id) != expected.contains(&*check.id))
                .map(|check| format!("  {} {:?} | {}", check.id, check.outcome, check.evidence))
                .collect();
            wrong.push(format!("{name}:\n{}", detail.join("\n")));
        }
    };
    for (lie, expected) in LIES {
        let observed = || Observed::new(Arc::clone(&liar), None, PATIENCE);
        note((*lie).to_owned(), expected, &suite.run(observed, lie).await);
    }
    for (bend, expected) in BENDS {
        let hangs = matches!(bend, Bend::KeepsPlaces | Bend::ForgetsWaiting);
        let patience = if hangs { Duration::from_secs(2) } else { PATIENCE };
        let observed = || Observed::new(Bent::new(Arc::clone(&liar), *bend), None, patience);
        let mut results = suite.run(observed, "honest").await;
        if hangs {
            // What hangs is waited for; what does not may take its time on a busy machine.
            results.retain(|check| check.id.starts_with("lifecycle.cancel"));
        }
        note(format!("{bend:?}"), expected, &results);
    }
    assert!(wrong.is_empty(), "expected and found differ:\n{}", wrong.join("\n"));
    let uncaught: Vec<_> =
        suite.ids().await.into_iter().filter(|id| !caught.contains(id)).collect();
    assert!(uncaught.is_empty(), "no lie fails these, so they prove nothing: {uncaught:?}");
}

#[tokio::test]
async fn what_cannot_be_seen_has_not_passed() {
    let sandbox = sandbox();
    let suite = Suite::load(&sandbox);
    let liar = liar(&sandbox);
    for (model, expected) in HIDE {
        let observed = || Observed::new(Arc::clone(&liar), None, PATIENCE);
        let results = suite.run(observed, model).await;
        for id in *expected {
            let check = results.iter().find(|check| check.id == *id).unwrap();
            assert!(
                matches!(check.outcome, Outcome::NotApplicable(_)),
                "{model}: {id} {:?} | {}",
                check.outcome,
                check.evidence
            );
        }
    }
    // An answer that just ends is none, whichever check asked for it.
    let observed = || Observed::new(Bent::new(Arc::clone(&liar), Bend::NoFinish), None, PATIENCE);
    let results = suite.run(observed, "honest").await;
    let found = failed(&results);
    for id in ["limits.stop", "text.greedy", "text.streaming", "tools.ids", "structured.schema"] {
        assert!(found.contains(id), "{id} passes without a finish");
    }
}

#[tokio::test]
async fn the_page_lists_every_check_with_its_capability() {
    let sandbox = sandbox();
    let suite = Suite::load(&sandbox);
    let page = fs::read_to_string(components::root().join("docs/conformance.md")).unwrap();
    let liar = liar(&sandbox);
    let results = suite.run(|| Observed::new(Arc::clone(&liar), None, PATIENCE), "honest").await;
    assert_eq!(results.len(), suite.ids().await.len());
    for check in results {
        let capability = check.capability.unwrap();
        let row = format!("| `{}` | `{capability}` |", check.id);
        assert!(page.contains(&row), "docs/conformance.md lacks the row {row}");
    }
}
