//! A canary costs nobody an answer: what it may not or cannot begin is answered by what is live, and
//! judged by what is known of that.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use gristmill_core::{
    Code, Error, Result,
    capability::{Claim, Descriptor, ModelInfo, Readiness, Reason, Support},
    event::Event,
    request::{EmbedRequest, Embeddings, Prompt, Ranked, Request, RerankRequest, Tool, ToolChoice},
};
use gristmill_ledger::evidence::Evidence;
use gristmill_policies::{Block, ParameterPolicy, Rules};
use gristmill_router::{
    Known, Limits, NoModels, NoResidency, Rollout, Router, RouterConfig, Source, Trial,
};
use gristmill_sandbox::{Backend, Generation};

const NAME: &str = "server";

/// One version of a back-end: what it claims, how it fails, what it was asked.
struct Server {
    version: &'static str,
    claims: Vec<Claim>,
    failure: Option<Code>,
    asked: Mutex<Vec<Request>>,
}

impl Server {
    fn new(version: &'static str) -> Self {
        let claims = vec![Claim::supported("inference.text"), Claim::supported("tools.calling")];
        Self { version, claims, failure: None, asked: Mutex::default() }
    }

    fn failing(code: Code) -> Self {
        Self { failure: Some(code), ..Self::new("2.0") }
    }

    fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Backend for Server {
    fn digest(&self) -> &str {
        self.version
    }

    async fn describe(&self) -> Result<Descriptor> {
        Ok(Descriptor {
            id: NAME.into(),
            kind: NAME.into(),
            version: self.version.into(),
            execution: "library".into(),
            claims: self.claims.clone(),
            extras: Vec::new(),
        })
    }

    async fn models(&self) -> Result<Vec<ModelInfo>> {
        Ok(vec![ModelInfo { id: "m".into(), ..ModelInfo::default() }])
    }

    async fn generate(&self, request: Request) -> Result<Box<dyn Generation>> {
        self.asked.lock().unwrap().push(request);
        match &self.failure {
            Some(code) => Err(Error::new(code.clone(), "not this one")),
            None => Ok(Box::new(Over)),
        }
    }

    async fn embed(&self, _: EmbedRequest) -> Result<Embeddings> {
        Ok(Embeddings { dim: 1, rows: 1, data: vec![1.0], prompt_tokens: 1 })
    }

    async fn rerank(&self, _: RerankRequest) -> Result<Vec<Ranked>> {
        Err(Error::unsupported("no ranks"))
    }

    async fn tokenize(&self, _: &str, _: &str, _: bool) -> Result<Vec<u32>> {
        Ok(Vec::new())
    }

    async fn detokenize(&self, _: &str, _: &[u32]) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    async fn health(&self) -> Result<Readiness> {
        Ok(Readiness { ready: true, detail: "ready".into(), extras: Vec::new() })
    }
}

struct Over;

#[async_trait]
impl Generation for Over {
    async fn next(&mut self, _: u32) -> Result<Option<Vec<Event>>> {
        Ok(None)
    }
}

/// Version 1 live, this one on trial with every request.
async fn router(policies: &[(&str, &str)], blocks: Vec<Block>, candidate: Arc<Server>) -> Bench {
    let policy = |(id, text): &(&str, &str)| {
        ParameterPolicy::parse(id, &format!("reason = \"r\"\n{text}")).unwrap()
    };
    let rules = Rules::new(policies.iter().map(policy).collect(), Vec::new(), Vec::new()).unwrap();
    let router = Router::new(RouterConfig::default(), Arc::new(NoModels), Arc::new(NoResidency))
        .with_rules(rules)
        .with_known(Known::new(blocks, Vec::new(), Evidence::default()));
    let live = Arc::new(Server::new("1.0"));
    let backend = Arc::clone(&live) as Arc<dyn Backend>;
    router.install(NAME, Source::Listed, Limits::default(), backend).await.unwrap();
    let trial = Trial::Canary { share: 1.0, window: 1000 };
    let rollout = Rollout { trial, ..Rollout::default() };
    router.promote(NAME, candidate, rollout).await.unwrap();
    Bench { router, live }
}

struct Bench {
    router: Router,
    live: Arc<Server>,
}

fn block(capability: &str) -> Block {
    let text = format!(
        "backend = \"{NAME}\"\nversions = \">=2\"\ncapability = \"{capability}\"\n\
         reason = \"r\"\nevidence = \"e\"\nexpires = \"2999-01-01\""
    );
    Block::parse("new", &text).unwrap()
}

fn request() -> Request {
    let mut request = Request::new("r", "m", Prompt::Text("hello".into()));
    request.sampling.seed = Some(1);
    request.sampling.top_k = Some(2);
    request
}

fn tools() -> Request {
    let mut request = request();
    request.tools.push(Tool {
        name: "t".into(),
        description: None,
        parameters: "{}".into(),
        strict: None,
        extras: Vec::new(),
    });
    request.tool_choice = ToolChoice::Auto;
    request
}

#[tokio::test]
async fn who_answers_instead_of_a_canary_judges_the_request_as_it_came() {
    let policies = [
        ("old", "versions = \"<2\"\n[parameters.seed]\nclass = \"known-bad\"\naction = \"strip\""),
        (
            "new",
            "versions = \">=2\"\n[parameters.top_k]\nclass = \"known-bad\"\naction = \"strip\"",
        ),
    ];
    for code in [Code::PluginFault, Code::UpstreamError, Code::Unsupported] {
        let candidate = Arc::new(Server::failing(code.clone()));
        let Bench { router, live } = router(&policies, Vec::new(), candidate.clone()).await;
        let plan = router.resolve("m").await.unwrap();
        let answer = router.generate(&plan, request(), None).await.unwrap();
        assert_eq!(answer.provenance().generation, 1, "{code}");
        assert_eq!(answer.judgement().policy.as_deref(), Some("old"), "{code}");
        let sampling = |server: &Server| {
            let sampling = server.asked()[0].sampling.clone();
            (sampling.seed, sampling.top_k)
        };
        assert_eq!(sampling(&candidate), (Some(1), None), "{code}");
        assert_eq!(sampling(&live), (None, Some(2)), "{code}");
        let faulty = usize::from(code != Code::Unsupported);
        assert_eq!(router.generations(NAME)[1].window.failed, faulty, "{code}");
    }
}

#[tokio::test]
async fn what_is_live_refuses_by_its_own_policy() {
    let policies = [("old", "versions = \"<2\"\n[parameters.seed]\nclass = \"known-bad\"")];
    let candidate = Arc::new(Server::failing(Code::PluginFault));
    let Bench { router, live } = router(&policies, Vec::new(), candidate).await;
    let plan = router.resolve("m").await.unwrap();
    let error = router.generate(&plan, request(), None).await.err().unwrap();
    assert_eq!((error.code.clone(), error.detail("policy")), (Code::Blocked, Some("old")));
    assert!(live.asked().is_empty());
}

#[tokio::test]
async fn what_a_canary_may_not_answer_is_answered_by_what_is_live() {
    let reason = Reason { code: "no".into(), detail: "not yet".into() };
    let support = Support::Unsupported(reason);
    let without = Claim { name: "tools.calling".into(), support, value: None };
    let unable = || Server { claims: vec![without.clone()], ..Server::new("2.0") };
    let refuses = "versions = \">=2\"\n[parameters.seed]\nclass = \"known-bad\"";
    for (what, policies, blocks, candidate) in [
        ("it says it cannot", &[][..], vec![], unable()),
        ("a block forbids it", &[][..], vec![block("tools.calling")], Server::new("2.0")),
        ("a policy refuses it", &[("new", refuses)][..], vec![], Server::new("2.0")),
    ] {
        let candidate = Arc::new(candidate);
        let Bench { router, live } = router(policies, blocks, candidate.clone()).await;
        let plan = router.resolve("m").await.unwrap();
        let answer = router.generate(&plan, tools(), None).await.unwrap();
        assert_eq!(answer.provenance().generation, 1, "{what}");
        assert_eq!((candidate.asked().len(), live.asked().len()), (0, 1), "{what}");
        assert_eq!(live.asked()[0], tools(), "{what}");
        assert_eq!(router.generations(NAME)[1].window.requests, 0, "{what}: nobody's fault");
        if policies.is_empty() {
            let winner = router.explain("m", Some(&tools())).await.unwrap().winner;
            assert_eq!(winner.unwrap().generation, 1, "{what}");
        }
    }
}

#[tokio::test]
async fn vectors_that_a_canary_may_not_give_come_from_what_is_live() {
    for (blocks, generation) in [(vec![], 2), (vec![block("embeddings")], 1)] {
        let candidate = Arc::new(Server::new("2.0"));
        let Bench { router, .. } = router(&[], blocks, candidate).await;
        let plan = router.resolve("m").await.unwrap();
        let texts = EmbedRequest {
            model: "m".into(),
            inputs: vec!["a".into()],
            dimensions: None,
            truncate: false,
            extras: Vec::new(),
        };
        let given = router.embed(&plan, texts, None).await.unwrap();
        assert_eq!(given.by.generation, generation);
    }
}
