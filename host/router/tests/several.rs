//! Several back-ends at once: who answers for a name, what a list says, and that one that is down
//! neither stops the others nor is stood in for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use gristmill_core::{
    Code, Error, Result,
    capability::{Descriptor, ModelInfo, Readiness},
    request::{EmbedRequest, Embeddings, Prompt, Ranked, Request, RerankRequest},
};
use gristmill_router::{
    Card, Limits, Models, NoModels, NoResidency, Progress, Record, Rollout, Router, RouterConfig,
    Source, SwapError,
};
use gristmill_sandbox::backend::{Backend, Generation};

/// A server's list of models, or its failure, or its bridge's, or silence.
#[derive(Clone)]
enum Says {
    Models(Vec<&'static str>),
    Down,
    Traps,
    Nothing,
}

struct Server {
    digest: &'static str,
    says: Mutex<Says>,
    asked: AtomicUsize,
}

impl Server {
    fn new(says: Says) -> Arc<Self> {
        Self::of("sha256:00", says)
    }

    fn of(digest: &'static str, says: Says) -> Arc<Self> {
        Arc::new(Self { digest, says: Mutex::new(says), asked: AtomicUsize::new(0) })
    }

    fn models(models: &[&'static str]) -> Arc<Self> {
        Self::new(Says::Models(models.to_vec()))
    }

    fn says(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    fn down() -> Error {
        Error::new(Code::UpstreamUnavailable, "it refused the connection")
    }
}

#[async_trait]
impl Backend for Server {
    fn digest(&self) -> &str {
        self.digest
    }

    async fn describe(&self) -> Result<Descriptor> {
        Ok(Descriptor {
            id: "server".into(),
            kind: "scripted".into(),
            version: "0".into(),
            execution: "external".into(),
            claims: Vec::new(),
            extras: Vec::new(),
        })
    }

    async fn models(&self) -> Result<Vec<ModelInfo>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let says = self.says.lock().unwrap().clone();
        match says {
            Says::Models(models) => Ok(models
                .into_iter()
                .map(|id| ModelInfo { id: id.to_owned(), ..ModelInfo::default() })
                .collect()),
            Says::Down => Err(Self::down()),
            Says::Traps => Err(Error::new(Code::PluginFault, "unreachable")),
            Says::Nothing => std::future::pending().await,
        }
    }

    async fn generate(&self, _: Request) -> Result<Box<dyn Generation>> {
        Err(Self::down())
    }

    async fn embed(&self, _: EmbedRequest) -> Result<Embeddings> {
        Err(Self::down())
    }

    async fn rerank(&self, _: RerankRequest) -> Result<Vec<Ranked>> {
        Err(Self::down())
    }

    async fn tokenize(&self, _: &str, _: &str, _: bool) -> Result<Vec<u32>> {
        Err(Self::down())
    }

    async fn detokenize(&self, _: &str, _: &[u32]) -> Result<Vec<u8>> {
        Err(Self::down())
    }

    async fn health(&self) -> Result<Readiness> {
        if matches!(*self.says.lock().unwrap(), Says::Nothing) {
            std::future::pending::<()>().await;
        }
        Err(Self::down())
    }
}

async fn router(servers: &[(&str, &Arc<Server>)]) -> Router {
    let router = Router::new(RouterConfig::default(), Arc::new(NoModels), Arc::new(NoResidency));
    for (name, server) in servers {
        let server = Arc::clone(server) as Arc<dyn Backend>;
        router.install(name, Source::Listed, Limits::default(), server).await.unwrap();
    }
    router
}

async fn chosen(router: &Router, name: &str) -> std::result::Result<(String, String), Code> {
    let plan = router.resolve(name).await.map_err(|error| error.code)?;
    let provenance = plan.provenance();
    Ok((provenance.backend, provenance.model))
}

fn answer(backend: &str, model: &str) -> std::result::Result<(String, String), Code> {
    Ok((backend.to_owned(), model.to_owned()))
}

#[tokio::test]
async fn a_name_goes_to_the_first_that_has_it_or_to_the_one_it_names() {
    let (one, two) = (Server::models(&["a", "b"]), Server::models(&["b", "c", "one/a", "x/y"]));
    let router = router(&[("one", &one), ("two", &two)]).await;
    for (name, expected) in [
        ("a", answer("one", "a")),
        ("b", answer("one", "b")),
        ("B:latest", answer("one", "b")),
        ("c", answer("two", "c")),
        ("two/b", answer("two", "b")),
        ("TWO/B", answer("two", "b")),
        ("one/b", answer("one", "b")),
        ("x/y", answer("two", "x/y")),
        ("two/x/y", answer("two", "x/y")),
        // A back-end's name in front is a back-end's name first.
        ("one/a", answer("one", "a")),
        ("two/one/a", answer("two", "one/a")),
        ("one/c", Err(Code::NotFound)),
        ("three/a", Err(Code::NotFound)),
        ("d", Err(Code::NotFound)),
    ] {
        assert_eq!(chosen(&router, name).await, expected, "{name}");
    }
}

#[tokio::test]
async fn a_list_has_every_model_under_a_name_that_reaches_it() {
    let (one, two) = (Server::models(&["a", "b"]), Server::models(&["b", "c"]));
    let down = Server::new(Says::Down);
    let router = router(&[("one", &one), ("down", &down), ("two", &two)]).await;
    let listed: Vec<_> =
        router.catalogue().await.unwrap().into_iter().map(|record| record.info.id).collect();
    assert_eq!(listed, ["a", "b", "two/b", "c"]);
    for (name, backend) in [("a", "one"), ("b", "one"), ("two/b", "two"), ("c", "two")] {
        assert_eq!(chosen(&router, name).await.unwrap().0, backend, "{name}");
    }
    let unreachable = router.unreachable();
    assert_eq!(unreachable.len(), 1);
    assert_eq!((unreachable[0].0.as_str(), &unreachable[0].1), ("down", &Server::down()));
}

#[tokio::test(start_paused = true)]
async fn nobody_answers_for_one_that_had_the_model_and_is_down() {
    let (one, two) = (Server::models(&["a"]), Server::models(&["a", "b"]));
    let router = router(&[("one", &one), ("two", &two)]).await;
    assert_eq!(chosen(&router, "a").await, answer("one", "a"));
    one.says(Says::Down);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(chosen(&router, "a").await, Err(Code::UpstreamUnavailable));
    assert_eq!(chosen(&router, "one/a").await, Err(Code::UpstreamUnavailable));
    assert_eq!(chosen(&router, "two/a").await, answer("two", "a"));
    assert_eq!(chosen(&router, "b").await, answer("two", "b"), "what it never had is not its");

    one.says(Says::Models(vec!["a"]));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(chosen(&router, "a").await, answer("one", "a"));
}

/// A store that cannot be read.
struct Unreadable;

#[async_trait]
impl Models for Unreadable {
    async fn list(&self) -> Result<Vec<Record>> {
        Err(Error::internal("the store cannot be read"))
    }

    async fn show(&self, _: &str) -> Result<Card> {
        Err(Error::internal("the store cannot be read"))
    }

    async fn pull(&self, _: &str, _: Progress) -> Result<Record> {
        Err(Error::internal("the store cannot be read"))
    }

    async fn remove(&self, _: &str) -> Result<()> {
        Err(Error::internal("the store cannot be read"))
    }

    async fn copy(&self, _: &str, _: &str) -> Result<()> {
        Err(Error::internal("the store cannot be read"))
    }
}

#[tokio::test]
async fn the_store_is_read_for_those_that_serve_it_and_nobody_stands_in_for_it() {
    let router = Router::new(RouterConfig::default(), Arc::new(Unreadable), Arc::new(NoResidency));
    let two = Server::models(&["a"]) as Arc<dyn Backend>;
    router.install("two", Source::Listed, Limits::default(), two).await.unwrap();
    assert_eq!(chosen(&router, "a").await, answer("two", "a"));
    assert_eq!(chosen(&router, "two/a").await, answer("two", "a"));

    let one = Server::models(&[]) as Arc<dyn Backend>;
    router.install("one", Source::Store, Limits::default(), one).await.unwrap();
    assert_eq!(chosen(&router, "a").await, answer("two", "a"), "it comes first");
    assert_eq!(chosen(&router, "one/a").await, Err(Code::Internal));
    assert_eq!(chosen(&router, "b").await, Err(Code::Internal));
}

#[tokio::test]
async fn a_failed_answer_is_the_failure() {
    let (one, two) = (Server::models(&["a"]), Server::models(&["a"]));
    let router = router(&[("one", &one), ("two", &two)]).await;
    let plan = router.resolve("a").await.unwrap();
    let request = Request::new("id", "a", Prompt::Text("x".into()));
    let error = router.generate(&plan, request, None).await.err().unwrap();
    assert_eq!(error, Server::down());
}

#[tokio::test(start_paused = true)]
async fn one_that_is_silent_costs_the_others_little() {
    let (silent, two) = (Server::new(Says::Nothing), Server::models(&["a"]));
    let router = router(&[("silent", &silent), ("two", &two)]).await;
    let begun = tokio::time::Instant::now();
    for _ in 0..100 {
        assert_eq!(chosen(&router, "a").await, answer("two", "a"));
    }
    assert!(begun.elapsed() <= Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(silent.asked.load(Ordering::SeqCst), 1, "it is not asked for every request");
    assert_eq!(chosen(&router, "silent/a").await, Err(Code::UpstreamTimeout));
    assert_eq!(router.catalogue().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_traps_is_one_strike_however_many_are_told_and_whoever_asked() {
    let one = Server::new(Says::Traps);
    let router = router(&[("one", &one)]).await;
    let faults = || router.generations("one")[0].faults;
    for _ in 0..5 {
        assert_eq!(chosen(&router, "a").await, Err(Code::PluginFault));
    }
    assert_eq!((one.asked.load(Ordering::SeqCst), faults()), (1, 1));

    let later = || tokio::time::advance(Duration::from_millis(1100));
    later().await;
    assert!(router.catalogue().await.unwrap().is_empty());
    assert_eq!(faults(), 2);
    later().await;
    assert_eq!(chosen(&router, "one/a").await, Err(Code::PluginFault));
    assert_eq!(faults(), 3);
    later().await;
    assert!(router.explain("a", None).await.unwrap().refusal.is_some());
    assert_eq!((one.asked.load(Ordering::SeqCst), faults()), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn all_are_asked_at_once_whether_they_are_ready() {
    let (one, two) = (Server::new(Says::Nothing), Server::new(Says::Nothing));
    let three = Server::models(&["a"]);
    let router = router(&[("one", &one), ("two", &two), ("three", &three)]).await;
    let begun = tokio::time::Instant::now();
    let checks = router.checks().await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let named: Vec<_> = checks.iter().map(|check| check.backend.as_deref()).collect();
    assert_eq!(named, [Some("one"), Some("two"), Some("three")]);
    assert!(checks.iter().all(|check| !check.ready));

    for name in ["one", "two", "three"] {
        router.retire(name);
    }
    let none = router.checks().await;
    assert_eq!((none.len(), none[0].ready, &none[0].backend), (1, false, &None));
}

#[tokio::test(start_paused = true)]
async fn a_swap_makes_nobody_wait_for_a_list_forward_or_back() {
    let one = Server::models(&["a"]);
    let router = router(&[("one", &one)]).await;
    assert_eq!(chosen(&router, "a").await, answer("one", "a"));
    let two = Server::of("sha256:01", Says::Models(vec!["a"]));
    let promote = |server: &Arc<Server>| {
        router.promote("one", Arc::clone(server) as Arc<dyn Backend>, Rollout::default())
    };
    promote(&two).await.unwrap();
    let asked = |server: &Server| server.asked.load(Ordering::SeqCst);
    assert_eq!((asked(&one), asked(&two)), (1, 1), "asked before it answers");
    assert_eq!(chosen(&router, "a").await, answer("one", "a"));
    assert_eq!(asked(&two), 1);

    tokio::time::advance(Duration::from_secs(3600)).await;
    one.says(Says::Models(vec!["a", "b"]));
    router.rollback("one").unwrap();
    assert_eq!(chosen(&router, "a").await, answer("one", "a"));
    assert_eq!(asked(&one), 1, "its list is believed again");
    assert_eq!(chosen(&router, "b").await, answer("one", "b"), "and what is not in it asked for");

    // A candidate whose server is down is refused; what is live stays.
    let down = Server::of("sha256:02", Says::Down);
    let SwapError::Candidate { error, .. } = promote(&down).await.unwrap_err() else {
        panic!("expected it to be the candidate's failure")
    };
    assert_eq!(error, Server::down());
    assert_eq!(chosen(&router, "a").await, answer("one", "a"));
}
