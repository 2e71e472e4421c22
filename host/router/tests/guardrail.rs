//! A generation that is worse goes by itself, and one that breaks its sandbox too often does not come
//! back until somebody lets it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::time::Duration;

use common::{Bench, MODEL, NAME, NEXT, WORSE, after, request, rest};
use gristmill_core::Code;
use gristmill_router::{
    Guardrail, Happened, Limits, Role, Rollout, RouterConfig, Source, Strikes, Trial, Why,
    swap::guard::Rule,
};

/// Half the guest's nap: what does not nap may still be slow on a busy machine, so only one thing is
/// looked at at a time.
const LIMIT: Duration = Duration::from_millis(10);

fn guard() -> Guardrail {
    Guardrail { window: 20, least: 4, failed: 0.3, slow: 0.5, ..Guardrail::default() }
}

fn patient() -> RouterConfig {
    RouterConfig {
        strikes: Strikes { most: 1000, ..Strikes::default() },
        ..RouterConfig::default()
    }
}

fn limits() -> Limits {
    Limits { active: 64, queued: 64, ..Limits::default() }
}

#[tokio::test]
async fn a_generation_that_breaks_its_guardrail_is_gone_back_from_or_withdrawn() {
    let first_event = Guardrail { first_event: Some(LIMIT), ..guard() };
    let per_event = Guardrail { per_event: Some(LIMIT), ..guard() };
    let canary = Trial::Canary { share: 1.0, window: 10_000 };
    for (prompt, guard, rule) in [
        ("1 fail", guard(), Rule::Failed),
        ("1 trap", guard(), Rule::Failed),
        ("1 breaks", guard(), Rule::Failed),
        ("1 cheats", guard(), Rule::Failed),
        ("1 late", first_event, Rule::FirstEvent),
        ("3 slow", per_event, Rule::PerEvent),
    ] {
        for trial in [Trial::None, canary] {
            let mut bench = Bench::with(patient(), limits()).await;
            let rollout = Rollout { guard: guard.clone(), ..after(trial) };
            bench.router.promote(NAME, bench.component(WORSE), rollout).await.unwrap();
            let mut why = None;
            for n in 0..4 {
                // Some of these fail; that is the point.
                let _ = bench.ask(&n.to_string(), prompt).await;
                while let Ok(event) = bench.events.try_recv() {
                    match event.what {
                        Happened::RolledBack { to, why: found } => {
                            assert_eq!((trial, to.generation), (Trial::None, 1));
                            why = Some(found);
                        }
                        Happened::Withdrawn(found) => {
                            assert_eq!(trial, canary);
                            why = Some(found);
                        }
                        _ => {}
                    }
                }
                if why.is_some() {
                    break;
                }
            }
            let Some(Why::Guardrail(breach)) = why else { panic!("{prompt} {trial}: {why:?}") };
            assert_eq!(breach.rule, rule, "{prompt} {trial}: {breach}");
            assert!(breach.found > breach.allowed && breach.requests <= 4, "{breach}");
            assert_eq!(bench.ask("after", prompt).await.unwrap().0, 1, "{prompt} {trial}");
        }
    }
}

#[tokio::test]
async fn what_callers_do_wrong_and_what_is_watched_no_more_moves_nothing() {
    let bench = Bench::with(patient(), limits()).await;
    bench.router.promote(NAME, bench.component(NEXT), after(Trial::None)).await.unwrap();
    let plan = bench.router.resolve(MODEL).await.unwrap();
    for n in 0..50 {
        // Somebody who goes away, and somebody who asks for what is not there.
        drop(bench.begin(&n.to_string(), "1000000").await.unwrap());
        let mut unknown = request("x", "1");
        unknown.constraint = Some(gristmill_core::request::Constraint::JsonObject);
        let _ = bench.router.generate(&plan, unknown, None).await;
    }
    assert_eq!(bench.roles()[0], (2, Role::Current));

    let proven = Guardrail { watch: Duration::ZERO, ..guard() };
    let rollout = Rollout { guard: proven, ..Rollout::default() };
    bench.router.promote(NAME, bench.component(WORSE), rollout).await.unwrap();
    for n in 0..30 {
        assert!(bench.ask(&n.to_string(), "1 fail").await.is_err());
    }
    assert_eq!(bench.roles()[0], (3, Role::Current));
}

#[tokio::test]
async fn strikes_put_a_digest_in_quarantine_until_it_is_released() {
    let strikes = Strikes { most: 3, within: Duration::from_secs(3600) };
    let config = RouterConfig { strikes, ..RouterConfig::default() };
    let mut bench = Bench::with(config, limits()).await;
    let lenient = || Rollout {
        guard: Guardrail { failed: 1.0, ..Guardrail::default() },
        ..Rollout::default()
    };
    let worse = bench.component(WORSE);
    let digest = worse.digest().to_owned();
    bench.router.promote(NAME, worse, lenient()).await.unwrap();
    bench.told();
    let mut good = bench.begin("good", "2").await.unwrap();
    // Two traps and a broken contract; a failing server is no fault of the plugin.
    for (n, prompt) in ["1 trap", "1 fail", "1 cheats", "1 fail", "1 trap"].iter().enumerate() {
        assert_eq!(bench.roles()[0], (2, Role::Current));
        let error = bench.ask(&n.to_string(), prompt).await.unwrap_err();
        let fault = !prompt.contains("fail");
        assert_eq!(error.code == Code::PluginFault, fault, "{prompt}: {error}");
    }
    assert_eq!(bench.told(), ["0 quarantined", "2 rolled-back to 1 quarantined"]);
    assert_eq!(bench.ask("after", "1 trap").await.unwrap(), (1, "teller ".into()));
    assert_eq!(rest(&mut good).await.unwrap(), "teller-worse teller-worse ", "neighbours go on");
    assert_eq!(bench.router.quarantined()[0].digest, digest);

    let refused = bench.router.promote(NAME, bench.component(WORSE), lenient()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), "quarantined");
    assert!(refused.to_string().contains("3 faults"), "{refused}");
    let error = bench
        .router
        .install("other", Source::Listed, limits(), bench.component(WORSE))
        .await
        .unwrap_err();
    assert_eq!((error.code.clone(), error.detail("digest")), (Code::Blocked, Some(&*digest)));

    assert!(bench.router.release(&digest) && !bench.router.release(&digest));
    bench.router.promote(NAME, bench.component(WORSE), lenient()).await.unwrap();
    assert_eq!(bench.ask("again", "1").await.unwrap(), (3, "teller-worse ".into()));
    // By hand, and there is no way back to what is in quarantine.
    let first = bench.router.generations(NAME)[1].generation.digest.clone();
    assert!(bench.router.quarantine(&first, "known bad"));
    assert_eq!(bench.router.rollback(NAME).unwrap_err().code(), "quarantined");
}

#[tokio::test]
async fn without_a_predecessor_what_is_in_quarantine_serves_on() {
    let strikes = Strikes { most: 2, within: Duration::from_secs(3600) };
    let config = RouterConfig { strikes, ..RouterConfig::default() };
    let bench = Bench::bare(config, 16);
    let worse = bench.component(WORSE);
    bench.router.install(NAME, Source::Listed, limits(), worse).await.unwrap();
    for n in 0..5 {
        let error = bench.ask(&n.to_string(), "1 trap").await.unwrap_err();
        assert_eq!(error.code, Code::PluginFault);
    }
    let report = &bench.router.generations(NAME)[0];
    assert_eq!((report.quarantined, report.faults), (true, 2));
    assert_eq!(bench.ask("good", "1").await.unwrap(), (1, "teller-worse ".into()));
}
