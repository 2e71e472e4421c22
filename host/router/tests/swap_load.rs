//! Swaps under load: nobody is dropped, nobody gets two generations in one answer, nobody waits for
//! a swap. Five seconds; `GRISTMILL_SWAP_SECONDS=60` and `--no-capture` make it the bench, which
//! prints what it found and holds it to the bounds.
//!
//! The pause is what ten requests, a millisecond apart around each swap, take to begin: to be resolved,
//! given their generation and taken by its component. The same is measured at times without a swap,
//! which says what the machine adds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::{
    collections::HashMap,
    env,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{Bench, FIRST, MODEL, NAME, NEXT, piece, request, rest};
use gristmill_router::{Limits, Rollout, Router, RouterConfig, Source};
use gristmill_sandbox::Backend;
use tokio::{task::JoinSet, time::sleep_until};

/// Longest pause of new requests during a swap, at the 99th percentile.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest rollback.
const ROLLBACK: Duration = Duration::from_millis(100);
/// Between requests: 200 a second.
const PERIOD: Duration = Duration::from_millis(5);
/// Requests around a swap, a millisecond apart.
const AROUND: u64 = 10;

fn wide() -> Limits {
    Limits { active: 2000, queued: 2000, ..Limits::default() }
}

/// Who says what: component name by digest.
type Names = Arc<HashMap<String, String>>;

/// One request, streamed piece by piece or taken whole. How long it took to begin.
async fn one(router: Arc<Router>, names: Names, n: u64, streaming: bool) -> Duration {
    let since = Instant::now();
    let plan = router.resolve(MODEL).await.unwrap();
    let id = format!("req_{n}");
    let mut answer = router.generate(&plan, request(&id, "8"), None).await.unwrap();
    let begun = since.elapsed();
    let name = format!("{} ", names[&answer.provenance().digest]);
    let mut said = String::new();
    if streaming {
        for _ in 0..8 {
            said.push_str(&piece(&mut answer).await);
            tokio::task::yield_now().await;
        }
    }
    said.push_str(&rest(&mut answer).await.unwrap());
    assert_eq!(said, name.repeat(8), "all of it, and of one generation");
    begun
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    times.get((times.len() * percent / 100).min(last)).copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swap_every_second_under_load_costs_nobody_a_request() {
    let seconds: u64 = env::var("GRISTMILL_SWAP_SECONDS").map_or(5, |text| text.parse().unwrap());
    let bench = Bench::bare(RouterConfig::default(), 512);
    let components: Vec<Arc<dyn Backend>> = vec![bench.component(FIRST), bench.component(NEXT)];
    let says = ["teller", "teller-next"];
    let digests = components.iter().map(|component| component.digest().to_owned());
    let names: Names = Arc::new(digests.zip(says.map(str::to_owned)).collect());
    let first = Arc::clone(&components[0]);
    bench.router.install(NAME, Source::Listed, wide(), first).await.unwrap();

    // The load: a request every period, every other one streamed.
    let load = tokio::spawn({
        let (router, names) = (Arc::clone(&bench.router), Arc::clone(&names));
        async move {
            let start = tokio::time::Instant::now();
            let mut requests = JoinSet::new();
            for n in 0..seconds * 200 {
                sleep_until(start + PERIOD * u32::try_from(n).unwrap()).await;
                requests.spawn(one(Arc::clone(&router), Arc::clone(&names), n, n % 2 == 0));
            }
            requests.join_all().await
        }
    });
    let (mut paused, mut idle) = (Vec::new(), Vec::new());
    let (mut promotions, mut rollbacks) = (Vec::new(), Vec::new());
    let mut swaps = 0;
    while !load.is_finished() {
        for (swap, times) in [(false, &mut idle), (true, &mut paused)] {
            let start = tokio::time::Instant::now() + Duration::from_millis(480);
            let mut probes = JoinSet::new();
            for n in 0..AROUND {
                let (router, names) = (Arc::clone(&bench.router), Arc::clone(&names));
                probes.spawn(async move {
                    sleep_until(start + Duration::from_millis(n)).await;
                    one(router, names, 1_000_000 + n, false).await
                });
            }
            sleep_until(start + Duration::from_millis(AROUND / 2)).await;
            let since = Instant::now();
            if swap && swaps % 3 == 2 {
                bench.router.rollback(NAME).unwrap();
                rollbacks.push(since.elapsed());
            } else if swap {
                let live = bench.router.generations(NAME)[0].generation.digest.clone();
                let other = components.iter().find(|component| component.digest() != live).unwrap();
                let rollout = Rollout::default();
                bench.router.promote(NAME, Arc::clone(other), rollout).await.unwrap();
                promotions.push(since.elapsed());
            }
            swaps += u64::from(swap);
            times.extend(probes.join_all().await);
        }
    }
    let mut begun = load.await.unwrap();

    let slowest = rollbacks.iter().max().copied().unwrap();
    println!(
        "{} requests and {} around swaps, 0 failed; {swaps} swaps in {seconds} s\n\
         a request begins after {:?} at p50, {:?} at p99\n\
         pause of new requests during a swap: {:?} at p50, {:?} at p99 (bound {PAUSE:?});\n\
         the same without a swap: {:?} at p50, {:?} at p99\n\
         promotion, proving included: {:?} at most; rollback: {slowest:?} at most (bound {ROLLBACK:?})",
        begun.len(),
        paused.len(),
        percentile(&mut begun, 50),
        percentile(&mut begun, 99),
        percentile(&mut paused, 50),
        percentile(&mut paused, 99),
        percentile(&mut idle, 50),
        percentile(&mut idle, 99),
        promotions.iter().max().unwrap(),
    );
    assert_eq!(begun.len() as u64, seconds * 200);
    assert!(swaps >= seconds - 1);
    assert!(slowest < ROLLBACK, "{slowest:?}");
    // Five swaps meet fifty requests, so that their 99th percentile would be the one that a busy
    // machine did not run. The bench meets enough.
    let held = if seconds < 60 { 90 } else { 99 };
    let pause = percentile(&mut paused, held);
    assert!(pause < PAUSE, "pause of {pause:?} at p{held}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_open_streams_live_through_a_swap_and_a_rollback() {
    let bench = Bench::bare(RouterConfig::default(), 1100);
    let first = bench.component(FIRST);
    bench.router.install(NAME, Source::Listed, wide(), first).await.unwrap();
    let next = bench.component(NEXT);

    let mut streams = Vec::new();
    for n in 0..1000 {
        let mut answer = bench.begin(&format!("req_{n}"), "4").await.unwrap();
        assert_eq!(piece(&mut answer).await, "teller ");
        streams.push(answer);
    }
    assert_eq!(bench.router.generations(NAME)[0].running, 1000);
    bench.router.promote(NAME, next, Rollout::default()).await.unwrap();
    assert_eq!(bench.ask("new", "1").await.unwrap(), (2, "teller-next ".into()));
    let newer = bench.begin("newer", "4").await.unwrap();
    let half = streams.split_off(500);
    for mut answer in half {
        assert_eq!(rest(&mut answer).await.unwrap(), "teller teller teller ");
    }

    let since = Instant::now();
    bench.router.rollback(NAME).unwrap();
    assert!(since.elapsed() < ROLLBACK, "{:?}", since.elapsed());
    assert_eq!(bench.ask("back", "1").await.unwrap(), (1, "teller ".into()));
    for mut answer in streams {
        assert_eq!(rest(&mut answer).await.unwrap(), "teller teller teller ");
    }
    let mut newer = newer;
    assert_eq!(rest(&mut newer).await.unwrap(), "teller-next ".repeat(4));
}
