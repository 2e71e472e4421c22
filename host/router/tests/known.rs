//! What is known against a back-end is kept to: a block refuses by its name or lets the alternative
//! it names answer, a claim that a probe contradicts is no claim, and of those that have the very same weights
//! the one answers that was measured to be the fastest.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use gristmill_core::{
    Code, Error, Result,
    capability::{Claim, Descriptor, ModelInfo, Readiness, Reason, Support},
    event::{Event, Finish},
    request::{EmbedRequest, Embeddings, Prompt, Ranked, Request, RerankRequest, Tool, ToolChoice},
};
use gristmill_ledger::{
    evidence::{
        Evidence, Finding, Host, Model, Outcome, Resource, STATEMENT, Statement, TEST_RESULT,
        TestResult, Tested, Verdict,
    },
    performance::{HostFingerprint, Record, ResultClass},
};
use gristmill_policies::Block;
use gristmill_router::{
    Considered, Known, Limits, NoModels, NoResidency, Router, RouterConfig, Source,
};
use gristmill_sandbox::{Backend, Generation};

const WEIGHTS: &str = "sha256:aa";

/// Serves one model and says its own kind.
struct Server {
    kind: &'static str,
    digest: String,
    model: ModelInfo,
    /// The version it tells; none: it cannot be asked.
    version: Mutex<Option<&'static str>>,
    /// How often it was asked for its models.
    listed: AtomicU32,
}

impl Server {
    fn new(kind: &'static str, weights: Option<&str>) -> Arc<Self> {
        Arc::new(Self {
            kind,
            digest: format!("sha256:{kind}"),
            version: Mutex::new(Some("0.4.9")),
            listed: AtomicU32::new(0),
            model: ModelInfo {
                id: "gemma".into(),
                digest: weights.map(str::to_owned),
                family: Some("gemma3".into()),
                claims: vec![Claim::supported("inference.text"), Claim::supported("tools.calling")],
                ..ModelInfo::default()
            },
        })
    }
}

#[async_trait]
impl Backend for Server {
    fn digest(&self) -> &str {
        &self.digest
    }

    async fn describe(&self) -> Result<Descriptor> {
        Ok(Descriptor {
            id: self.kind.into(),
            kind: self.kind.into(),
            version: "1.0".into(),
            execution: "external".into(),
            claims: vec![Claim::supported("embeddings")],
            extras: Vec::new(),
        })
    }

    async fn models(&self) -> Result<Vec<ModelInfo>> {
        self.listed.fetch_add(1, Ordering::Relaxed);
        Ok(vec![self.model.clone()])
    }

    async fn generate(&self, _: Request) -> Result<Box<dyn Generation>> {
        Ok(Box::new(Done(false)))
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
        let version = *self.version.lock().unwrap();
        let down = || Error::new(Code::UpstreamUnavailable, "it refused the connection");
        let extras = vec![("server-version".into(), version.ok_or_else(down)?.into())];
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

async fn router(known: Known, servers: &[Arc<Server>]) -> Router {
    let router = Router::new(RouterConfig::default(), Arc::new(NoModels), Arc::new(NoResidency))
        .with_known(known);
    for server in servers {
        let (name, limits) = (server.kind, Limits::default());
        router.install(name, Source::Listed, limits, server.clone()).await.unwrap();
    }
    router
}

fn block(id: &str, text: &str) -> Block {
    let whole = format!(
        "versions = \"<0.5\"\nreason = \"loses ids\"\nevidence = \"report 7\"\n\
         expires = \"2999-01-01\"\n{text}"
    );
    Block::parse(id, &whole).unwrap()
}

fn knows(blocks: Vec<Block>) -> Known {
    Known::new(blocks, vec!["x86_64".into()], Evidence::default())
}

fn tools() -> Request {
    let mut request = Request::new("r", "gemma", Prompt::Text("hello".into()));
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

fn plain() -> Request {
    Request { tools: Vec::new(), ..tools() }
}

async fn outcome(router: &Router, request: Request) -> Result<String> {
    let plan = router.resolve("gemma").await?;
    let answer = router.generate(&plan, request, None).await?;
    assert_eq!(*answer.provenance(), answer.plan().provenance(), "its plan says who answered");
    Ok(answer.provenance().backend.clone())
}

const NO_TOOLS: &str = "backend = \"ollama\"\ncapability = \"tools.calling\"\n";

#[tokio::test]
async fn blocks_and_evidence_are_replaced_while_requests_come_each_for_itself() {
    let ollama = Server::new("ollama", Some(WEIGHTS));
    let router = router(knows(Vec::new()), &[ollama]).await;
    assert_eq!(outcome(&router, tools()).await.unwrap(), "ollama");
    router.know(router.known().with_blocks(vec![block("lost-ids", NO_TOOLS)]));
    assert_eq!(outcome(&router, tools()).await.unwrap_err().detail("block"), Some("lost-ids"));
    assert!(embed(&router).await.is_ok());
    let evidence = Evidence::of(vec![report("sha256:ollama", "embeddings", Outcome::Failed)]);
    router.know(router.known().with_evidence(evidence));
    assert_eq!(embed(&router).await.unwrap_err().code, Code::Unsupported);
    assert_eq!(outcome(&router, tools()).await.unwrap_err().code, Code::Blocked, "still");
    router.know(router.known().with_blocks(Vec::new()));
    assert_eq!(outcome(&router, tools()).await.unwrap(), "ollama");
    assert_eq!(embed(&router).await.unwrap_err().code, Code::Unsupported, "still");
}

#[tokio::test]
async fn a_block_refuses_what_it_names_by_its_name() {
    let ollama = Server::new("ollama", Some(WEIGHTS));
    let vllm = Server::new("vllm", Some(WEIGHTS));
    let router = router(knows(vec![block("lost-ids", NO_TOOLS)]), &[ollama, vllm]).await;
    let error = outcome(&router, tools()).await.unwrap_err();
    assert_eq!(error.code, Code::Blocked);
    for (detail, value) in [
        ("block", "lost-ids"),
        ("reason", "loses ids"),
        ("capability", "tools.calling"),
        ("backend", "ollama"),
    ] {
        assert_eq!(error.detail(detail), Some(value));
    }
    // A dialect that shows the sentence alone shows all of it.
    for word in ["lost-ids", "loses ids", "report 7", "2999-01-01"] {
        assert!(error.message.contains(word), "{error}");
    }
    assert_eq!(outcome(&router, plain()).await.unwrap(), "ollama", "nothing else is blocked");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_down_is_asked_for_its_version_again_soon() {
    let ollama = Server::new("ollama", None);
    *ollama.version.lock().unwrap() = None;
    let router =
        router(knows(vec![block("lost-ids", NO_TOOLS)]), std::slice::from_ref(&ollama)).await;
    let code = |error: Error| error.code;
    assert_eq!(outcome(&router, tools()).await.map_err(code), Err(Code::Blocked), "unknown");
    *ollama.version.lock().unwrap() = Some("0.6");
    assert_eq!(outcome(&router, tools()).await.map_err(code), Err(Code::Blocked), "just asked");
    tokio::time::advance(Duration::from_millis(1100)).await;
    assert_eq!(outcome(&router, tools()).await.unwrap(), "ollama", "repaired, and back");
}

#[tokio::test]
async fn only_the_alternative_that_the_block_names_answers_instead() {
    let instead = |name: &str| format!("{NO_TOOLS}alternative = \"{name}\"\n");
    let ollama = || Server::new("ollama", Some(WEIGHTS));
    let vllm = |weights| Server::new("vllm", weights);
    let also = || block("also", "backend = \"vllm\"\ncapability = \"inference.text\"\n");
    for (what, blocks, servers, expected) in [
        (
            "tested, live, same weights",
            vec![block("b", &instead("vllm"))],
            vec![ollama(), vllm(Some("aa"))],
            Some("vllm"),
        ),
        (
            "the same name, weights unknown",
            vec![block("b", &instead("vllm"))],
            vec![ollama(), vllm(None)],
            Some("vllm"),
        ),
        (
            "other weights",
            vec![block("b", &instead("vllm"))],
            vec![ollama(), vllm(Some("bb"))],
            None,
        ),
        ("not live", vec![block("b", &instead("vllm"))], vec![ollama()], None),
        (
            "another one than named",
            vec![block("b", &instead("mlx"))],
            vec![ollama(), vllm(Some("aa"))],
            None,
        ),
        (
            "blocked itself",
            vec![block("b", &instead("vllm")), also()],
            vec![ollama(), vllm(Some("aa"))],
            None,
        ),
    ] {
        let router = router(knows(blocks), &servers).await;
        match (outcome(&router, tools()).await, expected) {
            (Ok(found), Some(expected)) => assert_eq!(found, expected, "{what}"),
            (Err(error), None) => assert_eq!(error.code, Code::Blocked, "{what}"),
            (found, _) => panic!("{what}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn a_plan_that_answers_alone_takes_no_alternative() {
    let instead = block("b", &format!("{NO_TOOLS}alternative = \"vllm\"\n"));
    let ollama = Server::new("ollama", Some(WEIGHTS));
    let servers = [ollama, Server::new("vllm", Some(WEIGHTS))];
    let router = router(knows(vec![instead]), &servers).await;
    assert_eq!(outcome(&router, tools()).await.unwrap(), "vllm");
    let plan = router.resolve("gemma").await.unwrap().alone();
    let error = router.generate(&plan, tools(), None).await.err().unwrap();
    assert_eq!((error.code.clone(), error.detail("backend")), (Code::Blocked, Some("ollama")));

    // The plan of its answer is as alone as it was.
    let first = router.generate(&plan, plain(), None).await.unwrap();
    let error = router.generate(first.plan(), tools(), None).await.err().unwrap();
    assert_eq!((error.code.clone(), error.detail("backend")), (Code::Blocked, Some("ollama")));
}

#[tokio::test]
async fn embeddings_are_blocked_like_answers() {
    let no = "backend = \"ollama\"\ncapability = \"embeddings\"\n";
    let router = router(knows(vec![block("e", no)]), &[Server::new("ollama", None)]).await;
    assert_eq!(embed(&router).await.unwrap_err().code, Code::Blocked);
    assert!(outcome(&router, plain()).await.is_ok());
}

async fn embed(router: &Router) -> Result<Embeddings> {
    let plan = router.resolve("gemma").await?;
    let request = EmbedRequest {
        model: "gemma".into(),
        inputs: vec!["a".into()],
        dimensions: None,
        truncate: false,
        extras: Vec::new(),
    };
    Ok(router.embed(&plan, request, None).await?.what)
}

#[tokio::test]
async fn embeddings_that_a_probe_contradicts_are_refused() {
    for (found, refused) in [(Outcome::Failed, true), (Outcome::Passed, false)] {
        let evidence = Evidence::of(vec![report("sha256:ollama", "embeddings", found)]);
        let known = Known::new(Vec::new(), Vec::new(), evidence);
        let router = router(known, &[Server::new("ollama", Some(WEIGHTS))]).await;
        let error = embed(&router).await.err();
        assert_eq!(error.map(|error| error.code), refused.then_some(Code::Unsupported));
    }
}

/// A report in which a check of this capability failed, or passed.
fn report(component: &str, capability: &str, outcome: Outcome) -> Statement {
    Statement {
        kind: STATEMENT.into(),
        subject: vec![Resource::new("ollama", component)],
        predicate_type: TEST_RESULT.into(),
        predicate: TestResult {
            result: Verdict::Failed,
            configuration: Vec::new(),
            passed_tests: Vec::new(),
            failed_tests: Vec::new(),
            backend: Tested {
                name: "ollama".into(),
                id: "ollama".into(),
                kind: "ollama".into(),
                version: "1.0".into(),
                server_version: Some("0.4.9".into()),
            },
            model: Model {
                id: "gemma".into(),
                digest: Some(WEIGHTS.into()),
                family: None,
                quantization: None,
            },
            host: Host {
                os: "linux".into(),
                arch: "x86_64".into(),
                isa: "scalar".into(),
                threads: 1,
                runtime: "0.1.0".into(),
            },
            date: "2026-11-29T12:00:00Z".into(),
            checks: vec![Finding {
                id: "tools.ids".into(),
                capability: capability.into(),
                probe: "probe-tools".into(),
                outcome,
                reason: Some("a call without an id".into()),
                evidence: String::new(),
            }],
            content_digest: None,
        },
    }
}

#[tokio::test]
async fn a_claim_that_a_probe_contradicts_is_no_claim() {
    for (component, found, cleared) in [
        ("sha256:ollama", Outcome::Failed, true),
        ("sha256:ollama", Outcome::Passed, false),
        ("sha256:ollama", Outcome::NotApplicable, false),
        ("sha256:another", Outcome::Failed, false),
    ] {
        let evidence = Evidence::of(vec![report(component, "tools.calling", found)]);
        let known = Known::new(Vec::new(), Vec::new(), evidence);
        let router = router(known, &[Server::new("ollama", Some(WEIGHTS))]).await;
        let plan = router.resolve("gemma").await.unwrap();
        let claim = plan.claim("tools.calling").unwrap().clone();
        let mut claims: Vec<_> = plan.claims().map(|claim| &*claim.name).collect();
        claims.sort_unstable();
        assert_eq!(claims, ["embeddings", "inference.text", "tools.calling"], "the back-end's too");
        let infos = [
            plan.info().clone(),
            router.catalogue().await.unwrap()[0].info.clone(),
            router.show(router.resolve("gemma").await.unwrap()).await.unwrap().record.info,
        ];
        if !cleared {
            assert_eq!(claim.support, Support::Supported, "{component} {found:?}");
            assert!(outcome(&router, tools()).await.is_ok());
            continue;
        }
        let Support::Unsupported(reason) = claim.support else { panic!("{claim:?}") };
        assert_eq!(reason.code, "probe");
        assert!(reason.detail.contains("tools.ids") && reason.detail.contains("without an id"));
        for info in infos {
            let of = |claim: &&Claim| claim.name == "tools.calling";
            let claims: Vec<_> = info.claims.iter().filter(of).collect();
            assert_eq!(claims.len(), 1);
            assert!(matches!(claims[0].support, Support::Unsupported(_)), "wherever it is shown");
        }
        let error = outcome(&router, tools()).await.unwrap_err();
        assert_eq!(error.code, Code::Unsupported);
        assert!(error.message.contains("probe tools.ids"), "{error}");
        assert!(outcome(&router, plain()).await.is_ok());
    }
}

/// That `component` writes so many tokens a second with these weights.
fn measured(component: &str, weights: &str, decode: f64) -> Record {
    Record {
        component: component.into(),
        component_digest: component.into(),
        host: HostFingerprint::default(),
        model: "gemma".into(),
        model_digest: Some(weights.into()),
        quantization: "Q4_0".into(),
        placement: "cpu".into(),
        threads: 2,
        prefill_tokens: 512,
        decode_tokens: 128,
        prefill_per_second: 512.0,
        decode_per_second: decode,
        memory: BTreeMap::new(),
        result: ResultClass::Steady,
        date: "2026-11-30T12:00:00Z".parse().unwrap(),
    }
}

#[tokio::test]
async fn of_the_same_weights_the_fastest_as_measured_answers() {
    let ollama = || measured("ollama", "aa", 64.0);
    let vllm = |decode| measured("vllm", "aa", decode);
    let unsteady = Record { result: ResultClass::Unsteady, ..vllm(128.0) };
    let later = Record { date: "2026-11-30T13:00:00Z".parse().unwrap(), ..vllm(32.0) };
    let nothing = Vec::new;
    let lost = || vec![block("b", "backend = \"vllm\"\ncapability = \"tools.calling\"\n")];
    let deaf = |server: &mut Server| server.model.claims.truncate(1);
    let other = |server: &mut Server| server.model.digest = Some("sha256:bb".into());
    let unnamed = |server: &mut Server| server.model.digest = None;
    let denies = |server: &mut Server| {
        let reason = Reason { code: "no".into(), detail: "not here".into() };
        let support = Support::Unsupported(reason);
        server.model.claims.push(Claim { name: "logprobs".into(), support, value: None });
    };
    let narrow = |server: &mut Server| server.model.claims[1].value = Some("1024".into());
    let same = |_: &mut Server| {};
    for (what, records, blocks, change, expected) in [
        ("nothing is known", vec![], nothing(), same as fn(&mut Server), "ollama"),
        ("faster", vec![ollama(), vllm(128.0)], nothing(), same, "vllm"),
        ("not faster", vec![ollama(), vllm(64.0)], nothing(), same, "ollama"),
        ("the first was not measured", vec![vllm(128.0)], nothing(), same, "ollama"),
        ("not steady", vec![ollama(), unsteady], nothing(), same, "ollama"),
        ("no longer faster", vec![ollama(), later, vllm(128.0)], nothing(), same, "ollama"),
        ("other weights", vec![ollama(), vllm(128.0)], nothing(), other, "ollama"),
        ("weights unknown", vec![ollama(), vllm(128.0)], nothing(), unnamed, "ollama"),
        ("it can do less", vec![ollama(), vllm(128.0)], nothing(), deaf, "ollama"),
        ("it denies more", vec![ollama(), vllm(128.0)], nothing(), denies, "ollama"),
        ("it claims another value", vec![ollama(), vllm(128.0)], nothing(), narrow, "ollama"),
        ("blocked for something", vec![ollama(), vllm(128.0)], lost(), same, "ollama"),
    ] {
        let mut second = Server::new("vllm", Some("aa"));
        change(Arc::get_mut(&mut second).unwrap());
        let asks = records.iter().any(|it| it.component == "vllm") && records.len() > 1;
        let servers = [Server::new("ollama", Some(WEIGHTS)), Arc::clone(&second)];
        let router = router(knows(blocks).with_measured(records), &servers).await;
        let before = second.listed.load(Ordering::Relaxed);
        assert_eq!(outcome(&router, plain()).await.unwrap(), expected, "{what}");
        assert!(asks || second.listed.load(Ordering::Relaxed) == before, "{what}: nobody asks it");
        let named = router.resolve("ollama/gemma").await.unwrap();
        assert_eq!(named.provenance().backend, "ollama", "{what}: it is asked by its name");

        let explained = router.explain("gemma", Some(&plain())).await.unwrap();
        assert_eq!(explained.winner.unwrap().backend, expected, "{what}");
        let [first, second] = &explained.candidates[..] else { panic!("{what}") };
        let said = |candidate: &Considered, name: &str| {
            let found = candidate.conditions.iter().find(|condition| condition.name == name);
            found.map(|condition| condition.holds)
        };
        let slower = expected == "vllm";
        assert_eq!(said(first, "fastest"), slower.then_some(false), "{what}");
        assert_eq!(said(second, "fastest"), slower.then_some(true), "{what}");
        assert_eq!(said(second, "first"), (!slower).then_some(false), "{what}");
        if slower {
            assert_eq!((first.takes, second.takes), (Some(3.0), Some(2.0)));
            let told = &second.conditions.last().unwrap().detail;
            assert_eq!(told, "it has the weights of ollama and takes 2.000 s, that one 3.000 s");
        }
    }
    // Which of two servers behind one component was measured, nobody knows.
    let mut third = Server::new("mlx", Some("aa"));
    Arc::get_mut(&mut third).unwrap().digest = "sha256:vllm".into();
    let servers = [Server::new("ollama", Some("aa")), Server::new("vllm", Some("aa")), third];
    let known = knows(nothing()).with_measured(vec![ollama(), vllm(128.0)]);
    assert_eq!(outcome(&router(known, &servers).await, plain()).await.unwrap(), "ollama");
}
