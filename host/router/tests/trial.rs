//! Before full traffic: a share of the requests by their id, or copies that nobody sees.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use common::{Bench, NAME, NEXT, WORSE, after, piece, rest};
use gristmill_core::{
    Error, Result,
    capability::{Descriptor, ModelInfo, Readiness},
    event::Event,
    request::{EmbedRequest, Embeddings, Ranked, Request, RerankRequest},
};
use gristmill_router::{Guardrail, Role, Rollout, Standing, Trial};
use gristmill_sandbox::{Backend, Generation};

/// A guardrail that lets everything pass.
fn blind() -> Guardrail {
    Guardrail { failed: 1.0, ..Guardrail::default() }
}

#[tokio::test]
async fn a_canary_answers_its_share_and_the_same_request_always_goes_the_same_way() {
    let mut bench = Bench::new().await;
    let canary = after(Trial::Canary { share: 0.25, window: 10_000 });
    let swapped = bench.router.promote(NAME, bench.component(NEXT), canary).await.unwrap();
    assert_eq!(swapped.standing, Standing::OnTrial);
    assert_eq!(bench.roles(), [(1, Role::Current), (2, Role::Candidate)]);

    let mut went = HashMap::new();
    for round in 0..2 {
        for n in 0..200 {
            let id = format!("req_{n}");
            let (generation, text) = bench.ask(&id, "2").await.unwrap();
            let name = if generation == 2 { "teller-next " } else { "teller " };
            assert_eq!(text, name.repeat(2), "told as from the one that answered");
            let before = went.insert(id, generation);
            assert!(round == 0 || before == Some(generation), "the same way again");
        }
    }
    let share = went.values().filter(|&&generation| generation == 2).count();
    assert!((30..=70).contains(&share), "about 50 of 200: {share}");
    let trial = bench.router.generations(NAME)[1].trial.unwrap();
    assert_eq!(trial.seen, 2 * share);
    bench.told();

    // What runs on a withdrawn candidate goes on there.
    let id = went.iter().find(|(_, generation)| **generation == 2).unwrap().0;
    let mut running = bench.begin(id, "2").await.unwrap();
    assert_eq!(piece(&mut running).await, "teller-next ");
    let swapped = bench.router.rollback(NAME).unwrap();
    assert_eq!((swapped.generation.generation, swapped.replaced.unwrap().generation), (1, 2));
    assert_eq!(bench.ask(id, "1").await.unwrap().0, 1);
    assert_eq!(rest(&mut running).await.unwrap(), "teller-next ");
    assert_eq!(bench.told(), ["2 withdrawn asked", "2 drained"]);
}

#[tokio::test]
async fn a_canary_that_does_well_gets_all_traffic() {
    let mut bench = Bench::new().await;
    let canary = after(Trial::Canary { share: 1.0, window: 5 });
    bench.router.promote(NAME, bench.component(NEXT), canary).await.unwrap();
    for n in 0..5 {
        assert_eq!(bench.roles()[1], (2, Role::Candidate), "after {n}");
        bench.ask(&format!("{n}"), "1").await.unwrap();
    }
    assert_eq!(bench.roles(), [(2, Role::Current), (1, Role::Previous)]);
    assert_eq!(bench.told()[2..], ["2 installed", "2 promoted", "1 drained"]);
}

#[tokio::test]
async fn a_request_that_a_canary_cannot_begin_is_answered_by_what_is_live() {
    let bench = Bench::new().await;
    let canary = Rollout { guard: blind(), ..after(Trial::Canary { share: 1.0, window: 10_000 }) };
    bench.router.promote(NAME, bench.component(WORSE), canary).await.unwrap();
    for word in ["fail", "trap"] {
        let answer = bench.ask(word, &format!("2 {word}")).await.unwrap();
        assert_eq!(answer, (1, "teller teller ".into()));
    }
    let candidate = &bench.router.generations(NAME)[1];
    assert_eq!((candidate.window.requests, candidate.window.failed), (2, 2), "and it counts");
    assert_eq!(bench.ask("good", "1").await.unwrap().0, 2);
}

fn shadow(window: usize, active: usize, differing: f64) -> Rollout {
    after(Trial::Shadow { share: 1.0, window, active, differing })
}

#[tokio::test]
async fn a_shadow_that_says_the_same_is_promoted_and_one_that_differs_is_withdrawn() {
    for (prompt, component, end) in [
        ("2 same", NEXT, "2 promoted"),
        ("2", NEXT, "2 withdrawn guardrail"),
        ("2 same breaks", WORSE, "2 withdrawn guardrail"),
    ] {
        let mut bench = Bench::new().await;
        let candidate = bench.component(component);
        bench.router.promote(NAME, candidate, shadow(3, 8, 0.0)).await.unwrap();
        for n in 0..3 {
            let (generation, text) = bench.ask(&n.to_string(), prompt).await.unwrap();
            assert_eq!(generation, 1, "{prompt}: real answers are the live one's");
            assert!(!text.contains("next") && !text.contains("worse"), "{text}");
        }
        // The copies end when they end.
        bench.until(end).await;
    }
}

/// Begins every answer and never says a word.
struct Silent;

#[async_trait]
impl Backend for Silent {
    fn digest(&self) -> &str {
        "sha256:silent"
    }

    async fn describe(&self) -> Result<Descriptor> {
        Ok(Descriptor {
            id: "silent".into(),
            kind: "silent".into(),
            version: "0".into(),
            execution: "library".into(),
            claims: Vec::new(),
            extras: Vec::new(),
        })
    }

    async fn models(&self) -> Result<Vec<ModelInfo>> {
        Ok(vec![ModelInfo { id: "teller".into(), ..ModelInfo::default() }])
    }

    async fn generate(&self, _: Request) -> Result<Box<dyn Generation>> {
        Ok(Box::new(Self))
    }

    async fn embed(&self, _: EmbedRequest) -> Result<Embeddings> {
        Err(Error::unsupported("silent"))
    }

    async fn rerank(&self, _: RerankRequest) -> Result<Vec<Ranked>> {
        Err(Error::unsupported("silent"))
    }

    async fn tokenize(&self, _: &str, _: &str, _: bool) -> Result<Vec<u32>> {
        Err(Error::unsupported("silent"))
    }

    async fn detokenize(&self, _: &str, _: &[u32]) -> Result<Vec<u8>> {
        Err(Error::unsupported("silent"))
    }

    async fn health(&self) -> Result<Readiness> {
        Err(Error::unsupported("silent"))
    }
}

#[async_trait]
impl Generation for Silent {
    async fn next(&mut self, _: u32) -> Result<Option<Vec<Event>>> {
        std::future::pending().await
    }
}

/// Lets the copies run until so many do.
async fn copies(bench: &Bench, expected: usize) {
    while bench.router.generations(NAME)[1].running != expected {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn copies_delay_nobody_are_bounded_and_end_with_their_answer_or_their_trial() {
    let mut bench = Bench::new().await;
    bench.router.promote(NAME, Arc::new(Silent), shadow(10, 2, 0.0)).await.unwrap();
    bench.told();
    for n in 0..5 {
        let answer = bench.ask(&n.to_string(), "2").await.unwrap();
        assert_eq!(answer, (1, "teller teller ".into()));
    }
    copies(&bench, 2).await;
    let trial = bench.router.generations(NAME)[1].trial.unwrap();
    assert_eq!((trial.seen, trial.skipped), (0, 3));

    // The trial's end is the copies' end.
    bench.router.rollback(NAME).unwrap();
    let mut told = bench.told();
    while told.len() < 2 {
        tokio::task::yield_now().await;
        told.extend(bench.told());
    }
    assert_eq!(told, ["2 withdrawn asked", "2 drained"]);

    // So is the end of an answer that nobody wants any more.
    bench.router.promote(NAME, Arc::new(Silent), shadow(10, 2, 0.0)).await.unwrap();
    let real = bench.begin("a", "1000000").await.unwrap();
    copies(&bench, 1).await;
    drop(real);
    copies(&bench, 0).await;
}
