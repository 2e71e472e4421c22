//! A component takes another's place: what runs stays where it began, what waits goes to the new
//! one, one step leads back, and what is refused changes nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::time::Duration;

use common::{Bench, FIRST, NAME, NEXT, WORSE, after, pends, piece, request, rest};
use gristmill_core::{
    Code,
    request::{EmbedRequest, RerankRequest},
};
use gristmill_router::{
    Guardrail, Limits, Role, Rollout, RouterConfig, Source, Standing, SwapError, Trial,
};

#[tokio::test]
async fn an_answer_stays_with_the_generation_it_began_with_and_the_next_one_tells_the_new() {
    let mut bench = Bench::new().await;
    let mut old = bench.begin("a", "3").await.unwrap();
    assert_eq!(piece(&mut old).await, "teller ");

    let next = bench.component(NEXT);
    let digest = next.digest().to_owned();
    let swapped = bench.router.promote(NAME, next, Rollout::default()).await.unwrap();
    assert_eq!((swapped.standing, swapped.generation.generation), (Standing::Live, 2));
    assert_eq!(swapped.generation.digest, digest);
    assert_eq!(swapped.replaced.unwrap().generation, 1);
    assert_eq!(bench.roles(), [(2, Role::Current), (1, Role::Previous)]);

    assert_eq!(bench.ask("b", "2").await.unwrap(), (2, "teller-next teller-next ".into()));
    assert_eq!(rest(&mut old).await.unwrap(), "teller teller ", "not a word of another");
    assert_eq!(old.provenance().generation, 1);
    assert_eq!(
        bench.told(),
        ["1 installed", "1 promoted", "2 installed", "2 promoted", "1 drained"]
    );
}

#[tokio::test]
async fn the_way_back_is_one_step_and_there_is_no_second() {
    let mut bench = Bench::new().await;
    assert_eq!(bench.router.rollback(NAME), Err(SwapError::NoPrevious(NAME.into())));
    bench.router.promote(NAME, bench.component(NEXT), Rollout::default()).await.unwrap();
    let mut newer = bench.begin("a", "2").await.unwrap();
    bench.told();

    let swapped = bench.router.rollback(NAME).unwrap();
    assert_eq!((swapped.generation.generation, swapped.replaced.unwrap().generation), (1, 2));
    assert_eq!(bench.ask("b", "1").await.unwrap(), (1, "teller ".into()));
    assert_eq!(bench.roles(), [(1, Role::Current), (2, Role::Leaving)]);
    assert_eq!(rest(&mut newer).await.unwrap(), "teller-next teller-next ");
    assert_eq!(bench.roles(), [(1, Role::Current)]);
    assert_eq!(bench.told(), ["2 rolled-back to 1 asked", "2 drained"]);
    assert_eq!(bench.router.rollback(NAME).unwrap_err().code(), "no-previous-generation");
    assert_eq!(bench.router.rollback("nobody").unwrap_err().code(), "unknown-backend");

    // A number is never given twice.
    let again = bench.router.promote(NAME, bench.component(NEXT), Rollout::default());
    assert_eq!(again.await.unwrap().generation.generation, 3);
}

#[tokio::test]
async fn asking_twice_changes_nothing() {
    let mut bench = Bench::new().await;
    let next = || bench.component(NEXT);
    let canary = || after(Trial::Canary { share: 0.5, window: 100 });
    for (rollout, component, standing, generation) in [
        (Rollout::default(), bench.component(FIRST), Standing::Unchanged, 1),
        (canary(), next(), Standing::OnTrial, 2),
        (canary(), next(), Standing::Unchanged, 2),
        // What is live is what is wanted: the trial of another ends.
        (Rollout::default(), bench.component(FIRST), Standing::Unchanged, 1),
        (canary(), next(), Standing::OnTrial, 3),
        // Without a trial: now.
        (Rollout::default(), next(), Standing::Live, 3),
        (canary(), next(), Standing::Unchanged, 3),
    ] {
        let swapped = bench.router.promote(NAME, component, rollout).await.unwrap();
        assert_eq!((swapped.standing, swapped.generation.generation), (standing, generation));
    }
    assert_eq!(bench.roles(), [(3, Role::Current), (1, Role::Previous)]);
    bench.told();
}

#[tokio::test]
async fn what_is_refused_changes_nothing() {
    let mut bench = Bench::new().await;
    bench.told();
    let shares = [0.0, -0.1, 1.1, f64::NAN];
    let wrong = shares.map(|share| after(Trial::Canary { share, window: 10 })).into_iter().chain([
        after(Trial::Canary { share: 0.5, window: 0 }),
        after(Trial::Canary { share: 0.5, window: 10_001 }),
        after(Trial::Shadow { share: 1.0, window: 9, active: 0, differing: 0.1 }),
        after(Trial::Shadow { share: 1.0, window: 9, active: 1, differing: 1.1 }),
        guarded(Guardrail { least: 0, ..Guardrail::default() }),
        guarded(Guardrail { window: 10, ..Guardrail::default() }),
        guarded(Guardrail { failed: f64::NAN, ..Guardrail::default() }),
        guarded(Guardrail { slow: 2.0, ..Guardrail::default() }),
        guarded(Guardrail { slower: Some(0.5), ..Guardrail::default() }),
    ]);
    for rollout in wrong {
        let refused = bench.router.promote(NAME, bench.component(NEXT), rollout.clone()).await;
        assert_eq!(refused.unwrap_err().code(), "invalid-rollout", "{rollout:?}");
    }
    // It traps when it is asked what it is.
    let broken = bench.component("describe");
    let refused = bench.router.promote(NAME, broken, Rollout::default()).await.unwrap_err();
    assert_eq!(refused.code(), "candidate-failed");
    assert_eq!(gristmill_core::Error::from(refused).code, Code::PluginFault);
    let next = bench.component(NEXT);
    let nowhere = bench.router.promote("nobody", next, Rollout::default()).await.unwrap_err();
    assert_eq!(nowhere.code(), "unknown-backend");

    assert_eq!(bench.told(), [""; 0]);
    assert_eq!(bench.roles(), [(1, Role::Current)]);
    assert_eq!(bench.ask("a", "1").await.unwrap(), (1, "teller ".into()));
}

fn guarded(guard: Guardrail) -> Rollout {
    Rollout { guard, ..Rollout::default() }
}

#[tokio::test]
async fn a_request_that_waits_through_a_swap_is_answered_by_what_answers_then() {
    let one = Limits { active: 1, queued: 8, ..Limits::default() };
    let bench = Bench::with(RouterConfig::default(), one).await;
    let running = bench.begin("a", "1000000").await.unwrap();
    let mut waiting = Box::pin(bench.ask("b", "1"));
    pends(&mut waiting).await;
    let mut leaving = Box::pin(bench.ask("c", "1"));
    pends(&mut leaving).await;
    assert_eq!(bench.router.load_now()[0].waiting, 2);

    bench.router.promote(NAME, bench.component(NEXT), Rollout::default()).await.unwrap();
    assert_eq!(bench.router.load_now()[0].waiting, 2, "the queue is the name's");
    pends(&mut waiting).await;
    drop(running);
    assert_eq!(waiting.await.unwrap(), (2, "teller-next ".into()));
    assert_eq!(leaving.await.unwrap(), (2, "teller-next ".into()));
}

#[tokio::test]
async fn what_is_bound_anew_takes_the_place_of_the_same_component_and_leaves_no_way_back() {
    let mut bench = Bench::new().await;
    bench.router.promote(NAME, bench.component(NEXT), Rollout::default()).await.unwrap();
    let mut old = bench.begin("a", "2").await.unwrap();
    bench.told();
    let anew = || Rollout { anew: true, ..Rollout::default() };
    let same = bench.router.promote(NAME, bench.component(NEXT), Rollout::default()).await;
    assert_eq!(same.unwrap().standing, Standing::Unchanged);
    let swapped = bench.router.promote(NAME, bench.component(NEXT), anew()).await.unwrap();
    assert_eq!((swapped.standing, swapped.generation.generation), (Standing::Live, 3));
    assert_eq!(bench.roles(), [(3, Role::Current), (2, Role::Leaving)]);
    assert_eq!(bench.router.rollback(NAME), Err(SwapError::NoPrevious(NAME.into())));
    assert_eq!(bench.ask("b", "1").await.unwrap(), (3, "teller-next ".into()));
    assert_eq!(rest(&mut old).await.unwrap(), "teller-next teller-next ");
    assert_eq!(bench.told(), ["3 installed", "3 promoted", "2 drained"]);

    // A trial of the same component ends: what is on trial was bound otherwise.
    let canary = after(Trial::Canary { share: 0.5, window: 100 });
    bench.router.promote(NAME, bench.component(FIRST), canary).await.unwrap();
    let swapped = bench.router.promote(NAME, bench.component(FIRST), anew()).await.unwrap();
    assert_eq!((swapped.standing, swapped.generation.generation), (Standing::Live, 5));
    assert_eq!(bench.roles(), [(5, Role::Current)]);
}

#[tokio::test]
async fn what_the_new_generation_does_not_serve_the_old_one_answers_to_whoever_waited() {
    let one = Limits { active: 1, queued: 8, ..Limits::default() };
    let bench = Bench::with(RouterConfig::default(), one).await;
    let running = bench.begin("a", "1000000").await.unwrap();
    let mut waiting = Box::pin(bench.ask("b", "1"));
    pends(&mut waiting).await;
    // It serves one model, and that has another name.
    let other = bench.component("hostile");
    bench.router.promote(NAME, other, Rollout::default()).await.unwrap();
    drop(running);
    assert_eq!(waiting.await.unwrap(), (1, "teller ".into()));
    assert_eq!(bench.ask("c", "1").await.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn vectors_and_ranks_tell_who_gave_them() {
    let one = Limits { active: 1, queued: 8, ..Limits::default() };
    let bench = Bench::with(RouterConfig::default(), one).await;
    let plan = bench.router.resolve("teller").await.unwrap();
    let running = bench.begin("a", "1000000").await.unwrap();
    let texts = EmbedRequest {
        model: "teller".into(),
        inputs: vec!["a".into(), "b".into()],
        dimensions: None,
        truncate: false,
        extras: Vec::new(),
    };
    let documents = RerankRequest {
        model: "teller".into(),
        query: "q".into(),
        documents: vec!["a".into()],
        top_n: None,
        extras: Vec::new(),
    };
    let mut vectors = Box::pin(bench.router.embed(&plan, texts, None));
    pends(&mut vectors).await;
    let mut ranks = Box::pin(bench.router.rerank(&plan, documents));
    pends(&mut ranks).await;
    bench.router.promote(NAME, bench.component(NEXT), Rollout::default()).await.unwrap();
    drop(running);
    let vectors = vectors.await.unwrap();
    assert_eq!((vectors.by.generation, vectors.what.rows), (2, 2));
    let ranks = ranks.await.unwrap();
    assert_eq!((ranks.by.generation, ranks.what.len()), (2, 1));
}

#[tokio::test]
async fn further_choices_of_a_request_come_from_whoever_gave_the_first() {
    let bench = Bench::new().await;
    let plan = bench.router.resolve("teller").await.unwrap();
    let mut first = bench.router.generate(&plan, request("a", "1"), None).await.unwrap();
    assert_eq!(rest(&mut first).await.unwrap(), "teller ");
    bench.router.promote(NAME, bench.component(NEXT), Rollout::default()).await.unwrap();

    let again = bench.router.generate(first.plan(), request("a", "1"), None).await.unwrap();
    assert_eq!(again.provenance(), first.provenance());
    let fresh = bench.router.generate(&plan, request("b", "1"), None).await.unwrap();
    assert_eq!(fresh.provenance().generation, 2, "a plan that nobody answered is not bound");
}

#[tokio::test]
async fn after_the_deadline_an_answer_of_the_old_generation_ends_by_name() {
    let mut bench = Bench::new().await;
    let mut old = bench.begin("a", "1000000").await.unwrap();
    assert_eq!(piece(&mut old).await, "teller ");
    bench.told();
    let now = Rollout { drain: Duration::ZERO, ..Rollout::default() };
    bench.router.promote(NAME, bench.component(NEXT), now).await.unwrap();

    let error = rest(&mut old).await.unwrap_err();
    assert_eq!(error.code, Code::Drained);
    assert!(error.message.contains("was replaced"), "{error}");
    assert_eq!(old.next(1).await.unwrap(), None, "nothing follows");
    let first = bench.router.generate(old.plan(), request("a", "1"), None).await;
    assert_eq!(first.err().unwrap().code, Code::Drained, "bound to what may not answer");
    assert_eq!(bench.told(), ["2 installed", "2 promoted", "1 drained"]);

    // The way back takes the deadline away.
    bench.router.rollback(NAME).unwrap();
    assert_eq!(bench.ask("b", "2").await.unwrap(), (1, "teller teller ".into()));
}

#[tokio::test]
async fn a_retired_name_drains() {
    let one = Limits { active: 1, queued: 8, ..Limits::default() };
    let mut bench = Bench::with(RouterConfig::default(), one).await;
    let mut running = bench.begin("a", "3").await.unwrap();
    let mut waiting = Box::pin(bench.begin("b", "1"));
    pends(&mut waiting).await;
    assert!(bench.router.retire(NAME) && !bench.router.retire(NAME));
    assert_eq!(bench.ask("c", "1").await.unwrap_err().code, Code::NotFound);
    assert!(bench.router.generations(NAME).is_empty());
    assert_eq!(rest(&mut running).await.unwrap(), "teller teller teller ");
    let mut waiting = waiting.await.unwrap();
    assert_eq!(rest(&mut waiting).await.unwrap(), "teller ");
    drop(waiting);
    let told = bench.told();
    assert_eq!(told[..3], ["1 installed", "1 promoted", "1 retired"]);
    assert_eq!(told.last().unwrap(), "1 drained");

    let again = bench.component(WORSE);
    let number = bench.router.install(NAME, Source::Listed, one, again).await.unwrap();
    assert_eq!(number, 2, "a name that comes back goes on counting");
}
