//! Parameter policies are kept to on the way to the back-end that answers: what goes on is what they
//! let, and nothing that only the host may say.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use gristmill_core::{
    Code, Error, Result,
    capability::{Claim, Descriptor, ModelInfo, Readiness},
    event::{Event, Finish},
    request::{EmbedRequest, Embeddings, Prompt, Ranked, Request, RerankRequest},
};
use gristmill_ledger::evidence::Evidence;
use gristmill_policies::{Block, ParameterPolicy, Profile, Rules};
use gristmill_router::{
    Known, Limits, NoModels, NoResidency, Router, RouterConfig, Source,
    policy::{OPTION, PROFILE},
};
use gristmill_sandbox::{Backend, Generation};

/// A bridge of some kind that keeps what it was asked.
struct Server {
    kind: &'static str,
    asked: Mutex<Vec<Request>>,
    version_asked: AtomicUsize,
}

impl Server {
    fn new(kind: &'static str) -> Arc<Self> {
        Arc::new(Self { kind, asked: Mutex::default(), version_asked: AtomicUsize::new(0) })
    }

    fn last(&self) -> Request {
        self.asked.lock().unwrap().last().unwrap().clone()
    }
}

#[async_trait]
impl Backend for Server {
    fn digest(&self) -> &str {
        self.kind
    }

    async fn describe(&self) -> Result<Descriptor> {
        Ok(Descriptor {
            id: self.kind.into(),
            kind: self.kind.into(),
            version: "9.9".into(),
            execution: "external".into(),
            claims: vec![Claim::supported("inference.text")],
            extras: Vec::new(),
        })
    }

    async fn models(&self) -> Result<Vec<ModelInfo>> {
        Ok(vec![ModelInfo {
            id: "gemma4:e4b".into(),
            names: vec!["Gemma4:Latest".into()],
            digest: Some("sha256:aa".into()),
            family: Some("gemma4".into()),
            context_native: Some(8192),
            ..ModelInfo::default()
        }])
    }

    async fn generate(&self, request: Request) -> Result<Box<dyn Generation>> {
        self.asked.lock().unwrap().push(request);
        Ok(Box::new(Done(false)))
    }

    async fn embed(&self, _: EmbedRequest) -> Result<Embeddings> {
        Err(Error::unsupported("no vectors"))
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
        self.version_asked.fetch_add(1, Ordering::Relaxed);
        let extras = vec![("server-version".into(), "0.6.2".into())];
        Ok(Readiness { ready: true, detail: "ready".into(), extras })
    }
}

struct Done(bool);

#[async_trait]
impl Generation for Done {
    async fn next(&mut self, _: u32) -> Result<Option<Vec<Event>>> {
        let over = std::mem::replace(&mut self.0, true);
        Ok((!over).then(|| vec![Event::Finish(Finish::because("stop"))]))
    }
}

fn rules(policies: &[(&str, &str)], profiles: &[(&str, &str)]) -> Rules {
    let policy = |(id, text): &(&str, &str)| {
        ParameterPolicy::parse(id, &format!("reason = \"why\"\n{text}")).unwrap()
    };
    let profile = |(name, text): &(&str, &str)| {
        Profile::parse(name, &format!("description = \"for it\"\n{text}")).unwrap()
    };
    Rules::new(
        policies.iter().map(policy).collect(),
        profiles.iter().map(profile).collect(),
        vec!["x86_64".to_owned()],
    )
    .unwrap()
}

async fn router(rules: Rules, servers: &[Arc<Server>]) -> Router {
    let router = Router::new(RouterConfig::default(), Arc::new(NoModels), Arc::new(NoResidency))
        .with_rules(rules);
    for server in servers {
        let (name, limits) = (server.kind, Limits::default());
        router.install(name, Source::Listed, limits, server.clone()).await.unwrap();
    }
    router
}

fn request() -> Request {
    Request::new("r", "gemma4", Prompt::Text("hello".into()))
}

/// A request that sets everything.
fn full() -> Request {
    let mut request = request();
    let sampling = &mut request.sampling;
    sampling.temperature = Some(1.0);
    sampling.top_p = Some(0.95);
    sampling.top_k = Some(64);
    sampling.min_p = Some(0.1);
    sampling.typical_p = Some(0.2);
    sampling.repeat_penalty = Some(1.1);
    sampling.repeat_last_n = Some(-1);
    sampling.presence_penalty = Some(-2.0);
    sampling.frequency_penalty = Some(2.0);
    sampling.seed = Some(u64::MAX);
    sampling.logit_bias = vec![(1, 2.0)];
    request.max_tokens = Some(5);
    request.stop = vec!["x".into()];
    request.context = Some(4096);
    request
}

/// What the back-end is asked, and what is told.
async fn sent(rules: Rules, request: Request) -> Result<(Request, Vec<String>)> {
    let server = Server::new("ollama");
    let router = router(rules, std::slice::from_ref(&server)).await;
    let plan = router.resolve("gemma4").await?;
    let answer = router.generate(&plan, request, None).await?;
    let told = &answer.judgement().verdicts;
    Ok((server.last(), told.iter().map(|it| it.told(it.control.as_str())).collect()))
}

#[tokio::test]
async fn without_rules_a_request_goes_on_as_it_came() {
    for asked in [request(), full()] {
        let (got, told) = sent(Rules::default(), asked.clone()).await.unwrap();
        assert_eq!(got, Request { model: "gemma4:e4b".into(), ..asked });
        assert!(told.is_empty());
    }
}

#[tokio::test]
async fn every_control_can_be_taken_out_and_none_is_put_in() {
    let strip = "unlisted = \"unverified\"\nactions.unverified = \"strip\"\ncontext = \
                 { backend-managed = true, override-supported = true, override-verified = false, action = \"strip\" }";
    let (got, told) = sent(rules(&[("strip", strip)], &[]), full()).await.unwrap();
    assert_eq!(got, Request { model: "gemma4:e4b".into(), ..request() });
    assert_eq!(told.len(), 14, "{told:?}");
    let (got, told) = sent(rules(&[("strip", strip)], &[]), request()).await.unwrap();
    assert_eq!(got, Request { model: "gemma4:e4b".into(), ..request() });
    assert!(told.is_empty());
}

#[tokio::test]
async fn what_passes_goes_on_as_it_came() {
    let pass = "unlisted = \"unverified\"\nactions.unverified = \"pass\"";
    let (got, told) = sent(rules(&[("pass", pass)], &[]), full()).await.unwrap();
    assert_eq!(got, Request { model: "gemma4:e4b".into(), ..full() });
    assert_eq!(told.len(), 13, "all but the context: {told:?}");
    // What a profile put in passes too.
    let seeded = [("seeded", "parameters.seed = 7")];
    let mut asked = full();
    asked.sampling.seed = None;
    asked.extras.push((PROFILE.into(), "seeded".into()));
    let (got, _) = sent(rules(&[("pass", pass)], &seeded), asked).await.unwrap();
    assert_eq!((got.sampling.seed, got.sampling.logit_bias), (Some(7), vec![(1, 2.0)]));
}

#[tokio::test]
async fn every_control_can_be_put_in_with_its_value() {
    let all = "[parameters]\ntemperature = 0.7\ntop_k = 0\ntop_p = 0.95\nmin_p = 0.05\ntypical_p = 0.9\n\
        repeat_penalty = 1.1\nrepeat_last_n = -1\npresence_penalty = -0.5\nfrequency_penalty = 0.5\n\
        seed = 9007199254740991\nnum_predict = 4294967295\nnum_ctx = 4096\nstop = [\"a\", \"b\"]";
    let verified =
        "context = { backend-managed = true, override-supported = true, override-verified = true }";
    let mut asked = request();
    asked.extras.push((PROFILE.into(), "all".into()));
    let (got, told) = sent(rules(&[("v", verified)], &[("all", all)]), asked).await.unwrap();
    assert_eq!(told.len(), 13, "{told:?}");
    let sampling = &got.sampling;
    assert_eq!(
        (sampling.temperature, sampling.top_k, sampling.top_p),
        (Some(0.7), Some(0), Some(0.95))
    );
    assert_eq!((sampling.min_p, sampling.typical_p), (Some(0.05), Some(0.9)));
    assert_eq!((sampling.repeat_penalty, sampling.repeat_last_n), (Some(1.1), Some(-1)));
    assert_eq!((sampling.presence_penalty, sampling.frequency_penalty), (Some(-0.5), Some(0.5)));
    assert_eq!(sampling.seed, Some(9_007_199_254_740_991));
    assert_eq!((got.max_tokens, got.context), (Some(u32::MAX), Some(4096)));
    assert_eq!(got.stop, ["a", "b"]);
    // Only a context that was tested is called so, and the host's own words end here.
    assert_eq!(got.extras, [("context".to_owned(), "verified".to_owned())]);
}

#[tokio::test]
async fn what_only_the_host_may_say_is_nobody_elses() {
    let mut asked = request();
    asked.context = Some(4096);
    for (name, value) in [
        ("context", "verified"),
        ("host.anything", "x"),
        (&format!("{OPTION}num_thread"), ""),
        ("kept", "y"),
    ] {
        asked.extras.push((name.into(), value.into()));
    }
    let (got, _) = sent(Rules::default(), asked.clone()).await.unwrap();
    assert_eq!(got.extras, [("kept".to_owned(), "y".to_owned())]);
    let refuse = "[parameters.num_thread]\nclass = \"unverified\"";
    let error = sent(rules(&[("p", refuse)], &[]), asked).await.unwrap_err();
    assert_eq!(
        error.detail("control"),
        Some("num_thread"),
        "an option without a field is judged too"
    );
}

#[tokio::test]
async fn a_refusal_names_policy_control_class_and_reason() {
    let context = |supported, verified| {
        format!(
            "context = {{ backend-managed = true, override-supported = {supported}, override-verified = {verified} }}\n\
             [parameters.seed]\nclass = \"known-bad\""
        )
    };
    let ctx = |length| Request { context: Some(length), ..request() };
    let mut seeded = request();
    seeded.sampling.seed = Some(1);
    for (policy, asked, code, control, class) in [
        (context(true, false), seeded, Code::Blocked, "seed", "known-bad"),
        (context(true, false), ctx(4096), Code::Blocked, "num_ctx", "override-unverified"),
        (context(false, false), ctx(4096), Code::Unsupported, "num_ctx", "override-unsupported"),
        (context(true, true), ctx(8193), Code::Unsupported, "num_ctx", "beyond-native-max"),
    ] {
        let error = sent(rules(&[("strict", &policy)], &[]), asked).await.unwrap_err();
        assert_eq!(error.code, code, "{error}");
        for (detail, value) in [
            ("policy", "strict"),
            ("control", control),
            ("field", control),
            ("class", class),
            ("reason", "why"),
        ] {
            assert_eq!(error.detail(detail), Some(value), "{error}");
        }
        for word in ["strict", control, class, "why", "gemma4:e4b", "ollama"] {
            assert!(error.message.contains(word), "{word}: {error}");
        }
    }
    let mut asked = request();
    asked.extras.push((PROFILE.into(), "nobody".into()));
    let error = sent(Rules::default(), asked).await.unwrap_err();
    assert_eq!((error.code, error.message.contains("nobody")), (Code::InvalidRequest, true));
}

#[tokio::test]
async fn the_version_behind_a_bridge_is_asked_for_where_it_matters_and_counts() {
    let seed = "[parameters.seed]\nclass = \"known-bad\"\naction = \"strip\"";
    for (range, asks, strips) in [
        ("", false, true),
        ("versions = \">=0.6, <0.7\"\n", true, true),
        ("versions = \">=9\"\n", true, false),
    ] {
        let server = Server::new("ollama");
        let policy = format!("{range}{seed}");
        let router = router(rules(&[("p", &policy)], &[]), std::slice::from_ref(&server)).await;
        let plan = router.resolve("gemma4").await.unwrap();
        let mut asked = request();
        asked.sampling.seed = Some(1);
        router.generate(&plan, asked, None).await.unwrap();
        assert_eq!(server.version_asked.load(Ordering::Relaxed) > 0, asks, "{range}");
        assert_eq!(server.last().sampling.seed.is_none(), strips, "{range}");
    }
}

#[tokio::test]
async fn who_answers_is_judged_by_its_own_policy() {
    let block = "backend = \"ollama\"\nversions = \"*\"\ncapability = \"inference.text\"\nreason = \"r\"\n\
                 evidence = \"e\"\nexpires = \"2999-01-01\"\nalternative = \"vllm\"";
    let known =
        Known::new(vec![Block::parse("b", block).unwrap()], Vec::new(), Evidence::default());
    let (ollama, vllm) = (Server::new("ollama"), Server::new("vllm"));
    let policies = [
        ("first", "backend = \"ollama\"\n[parameters.seed]\nclass = \"known-bad\""),
        ("second", "backend = \"vllm\"\n[parameters.top_k]\nclass = \"required\"\nvalue = 7"),
    ];
    let router = router(rules(&policies, &[]), &[ollama, vllm.clone()]).await.with_known(known);
    let plan = router.resolve("gemma4").await.unwrap();
    let mut asked = request();
    asked.sampling.seed = Some(1);
    let answer = router.generate(&plan, asked, None).await.unwrap();
    assert_eq!(answer.judgement().policy.as_deref(), Some("second"));
    assert_eq!((vllm.last().sampling.top_k, vllm.last().sampling.seed), (Some(7), Some(1)));
}

#[tokio::test]
async fn rules_are_replaced_whole_while_the_router_runs() {
    let server = Server::new("ollama");
    let router = router(Rules::default(), std::slice::from_ref(&server)).await;
    let plan = router.resolve("gemma4").await.unwrap();
    for (wanted, policy) in [(Some(3), "value = 3"), (Some(4), "value = 4")] {
        let policy = format!("[parameters.top_k]\nclass = \"required\"\n{policy}");
        router.policy().replace(rules(&[("p", &policy)], &[]));
        router.generate(&plan, request(), None).await.unwrap();
        assert_eq!(server.last().sampling.top_k, wanted);
    }
    assert_eq!(router.policy().rules().policies().len(), 1);
}
