//! What is said of a request's way is what the router does, and every back-end is accounted for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::sync::Arc;

use common::{Bench, MODEL, NAME, NEXT, after, request};
use gristmill_core::{
    Code,
    request::{Constraint, Request},
};
use gristmill_policies::Block;
use gristmill_router::{
    Considered, Known, Limits, NoModels, NoResidency, Router, RouterConfig, Source, Trial,
};

/// Conditions that do not hold.
fn wrong(considered: &Considered) -> Vec<&str> {
    let wrong = considered.conditions.iter().filter(|condition| !condition.holds);
    wrong.map(|condition| condition.name.as_str()).collect()
}

async fn two(known: Known) -> Router {
    let bench = Bench::bare(RouterConfig::default(), 16);
    let router = Router::new(RouterConfig::default(), Arc::new(NoModels), Arc::new(NoResidency));
    let router = router.with_known(known);
    for (name, component) in [("one", "teller"), ("two", NEXT)] {
        let limits = Limits { active: 1, queued: 0, ..Limits::default() };
        router.install(name, Source::Listed, limits, bench.component(component)).await.unwrap();
    }
    router
}

#[tokio::test]
async fn the_winner_is_the_one_that_is_asked() {
    let router = two(Known::default()).await;
    for (asked, winner, losers) in [
        (MODEL, Some("one"), vec![("two", vec!["first"])]),
        ("two/teller", Some("two"), vec![("one", vec!["has-model"])]),
        ("one/teller", Some("one"), vec![("two", vec!["has-model"])]),
        ("nobody", None, vec![("one", vec!["has-model"]), ("two", vec!["has-model"])]),
        ("two/nobody", None, vec![("one", vec!["has-model"]), ("two", vec!["has-model"])]),
    ] {
        let explained = router.explain(asked, None).await.unwrap();
        let resolved = router.resolve(asked).await.map(|plan| plan.provenance());
        assert_eq!(explained.winner, resolved.clone().ok(), "{asked}");
        assert_eq!(explained.refusal, resolved.err(), "{asked}");
        assert_eq!(explained.winner.map(|by| by.backend).as_deref(), winner, "{asked}");
        assert_eq!(explained.candidates.len(), 2, "each one once");
        for (name, conditions) in losers {
            let loser = explained.candidates.iter().find(|found| found.backend == name).unwrap();
            assert_eq!((wrong(loser), loser.wins), (conditions, false), "{asked}");
        }
        let wins = explained.candidates.iter().filter(|considered| considered.wins).count();
        assert_eq!(wins, usize::from(winner.is_some()));
    }
}

#[tokio::test]
async fn every_refusal_is_told_with_its_reason() {
    let text = "backend = \"teller\"\nversions = \"<9\"\ncapability = \"structured_output\"\n\
                reason = \"loses braces\"\nevidence = \"report 7\"\nexpires = \"2999-01-01\"\n";
    let known = Known::new(
        vec![Block::parse("no-json", text).unwrap()],
        Vec::new(),
        gristmill_ledger::evidence::Evidence::default(),
    );
    let router = two(known).await;
    let mut json: Request = request("r", "1");
    json.constraint = Some(Constraint::JsonObject);
    let explained = router.explain(MODEL, Some(&json)).await.unwrap();
    assert_eq!(explained.refusal.unwrap().code, Code::Blocked);
    assert_eq!(explained.winner, None, "nothing is substituted");
    assert_eq!(wrong(&explained.candidates[0]), ["unblocked"]);
    let refusal = explained.candidates[0].refusal.as_ref().unwrap();
    assert!(refusal.message.contains("loses braces"), "{refusal}");

    // A full queue is no reason to go elsewhere, and is told.
    let plan = router.resolve(MODEL).await.unwrap();
    let running = router.generate(&plan, request("a", "1000000"), None).await.unwrap();
    let explained = router.explain(MODEL, Some(&request("b", "1"))).await.unwrap();
    assert_eq!(wrong(&explained.candidates[0]), ["has-room"]);
    assert_eq!(explained.candidates[0].refusal.as_ref().unwrap().code, Code::Busy);
    assert_eq!(explained.winner.unwrap().backend, "one");
    drop(running);
}

#[tokio::test]
async fn a_canary_is_told_for_the_request_it_takes_and_scores_are_what_was_measured() {
    let bench = Bench::new().await;
    let canary = after(Trial::Canary { share: 0.5, window: 1000 });
    bench.router.promote(NAME, bench.component(NEXT), canary).await.unwrap();
    let mut both = [0, 0];
    for n in 0..40 {
        let id = n.to_string();
        let explained = bench.router.explain(MODEL, Some(&request(&id, "1"))).await.unwrap();
        let (generation, _) = bench.ask(&id, "1").await.unwrap();
        assert_eq!(explained.winner.unwrap().generation, generation);
        both[usize::try_from(generation).unwrap() - 1] += 1;
    }
    assert!(both.iter().all(|&count| count > 0), "{both:?}");
    let explained = bench.router.explain(MODEL, None).await.unwrap();
    let score = &explained.candidates[0].score;
    assert_eq!((score.requests, score.failed), (both[0], 0));
    assert!(score.first_event.is_some() && score.per_event.is_some());
}
