//! What the control plane says of a running host, why a request goes where, and how it fails.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests may fail loudly"
)]

mod support;

use std::sync::Arc;

use async_trait::async_trait;
use axum::http::{Method, Request};
use gristmill_api::{
    ApiConfig, AppState, app,
    control::{Control, Kind, NoControl, Refused, view::*},
};
use gristmill_core::capability::{Claim, Reason, Support};
use gristmill_ledger::evidence::Evidence;
use gristmill_policies::Block;
use gristmill_router::{Known, Limits, Router, RouterConfig, Source};
use serde_json::{Value, json};
use support::{Bench, Double, Keyed, Memory, Shelf, hello};

/// A host with a ledger that has a problem, and remembers what it was told.
#[derive(Default)]
struct Told(std::sync::Mutex<Vec<String>>);

fn refused<T>(kind: Kind) -> Result<T, Refused> {
    Err(Refused::new(kind, "a-word", "a sentence"))
}

#[async_trait]
impl Control for Told {
    fn host(&self) -> HostFacts {
        NoControl.host()
    }
    async fn problems(&self) -> Vec<Problem> {
        let [part, code, message] =
            ["ledger", "invalid-pin", "pins/cpu.toml: no"].map(String::from);
        vec![Problem { part, code, message }]
    }
    async fn plugins(&self) -> Result<Vec<PluginPin>, Refused> {
        refused(Kind::Conflict)
    }
    async fn policies(&self) -> Result<Vec<Policy>, Refused> {
        refused(Kind::Failed)
    }
    async fn upstreams(&self) -> Result<Vec<UpstreamEntry>, Refused> {
        Ok(Vec::new())
    }
    async fn ledger(&self) -> Result<LedgerStatus, Refused> {
        refused(Kind::Conflict)
    }
    async fn log(&self, _: LogQuery) -> Result<LogPage, Refused> {
        Ok(LogPage { entries: Vec::new(), next: None })
    }
    async fn verify(&self) -> Result<Verified, Refused> {
        refused(Kind::Unsupported)
    }
    async fn pin(&self, by: &str, what: Propose) -> Result<Proposed, Refused> {
        self.0.lock().unwrap().push(format!("{by} pins {what:?}"));
        refused(Kind::Conflict)
    }
    async fn candidate(&self, name: String) -> Result<Proposed, Refused> {
        Ok(Proposed {
            name,
            sequence: 2,
            digest: support::DIGEST.into(),
            resolved: None,
            text: "name = \"cpu\"".into(),
            signed: Base64(vec![0xff, 0x00]),
            signatures: vec![Signer { key: "k".into(), name: None }],
            threshold: 1,
            wanting: Some("a signature".into()),
        })
    }
    async fn sign(&self, by: &str, what: Sign) -> Result<Proposed, Refused> {
        self.0.lock().unwrap().push(format!("{by} signs {}", what.name));
        refused(Kind::Conflict)
    }
    async fn qualify(&self, by: &str, what: Qualify) -> Result<Qualified, Refused> {
        self.0.lock().unwrap().push(format!("{by} qualifies {what:?}"));
        refused(Kind::Conflict)
    }
    async fn promote(&self, by: &str, what: Promote) -> Result<Swap, Refused> {
        self.0.lock().unwrap().push(format!("{by} promotes {}", what.name));
        Ok(Swap { name: what.name, digest: support::DIGEST.into(), backends: Vec::new() })
    }
    async fn rollback(&self, _: &str, _: Rollback) -> Result<Swap, Refused> {
        refused(Kind::NotFound)
    }
    async fn revoke(&self, _: &str, _: Revoke) -> Result<Revoked, Refused> {
        refused(Kind::Invalid)
    }
    async fn release(&self, by: &str, what: Release) -> Result<Released, Refused> {
        self.0.lock().unwrap().push(format!("{by} releases {what:?}"));
        Ok(Released { digests: vec![support::DIGEST.into()] })
    }
}

/// A host with two back-ends: `here` with the shelf, `there` with a list of its own.
async fn host(config: ApiConfig, block: Option<&str>) -> (Bench, Arc<Told>, Arc<Double>) {
    let (here, there) = (Double::playing(hello()), Double::playing(hello()));
    let blocks = block.map(|more| {
        let text = format!(
            "backend = \"scripted\"\nversions = \"*\"\ncapability = \"tools.calling\"\n\
             reason = \"loses calls\"\nevidence = \"e\"\nexpires = \"2999-01-01\"\n{more}"
        );
        Block::parse("no-tools", &text).unwrap()
    });
    let known = Known::new(blocks.into_iter().collect(), Vec::new(), Evidence::default());
    let shelf = Arc::new(Shelf::default());
    let router =
        Router::new(RouterConfig::default(), shelf, Arc::new(Memory::default())).with_known(known);
    let limits = Limits::default();
    router.install("here", Source::Store, limits, here.clone()).await.unwrap();
    router.install("there", Source::Listed, limits, there.clone()).await.unwrap();
    let told = Arc::new(Told::default());
    let state = AppState::with_control(config, Arc::new(router), told.clone());
    (Bench { app: app(state.clone()), state, double: here }, told, there)
}

async fn get(bench: &Bench, path: &str) -> Value {
    let reply = bench.get(path).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply.json()
}

#[tokio::test]
async fn it_says_what_runs() {
    let (bench, _, there) = host(ApiConfig::default(), None).await;
    there.claims.lock().unwrap().push(Claim {
        name: "reranking".into(),
        support: Support::Unsupported(Reason { code: "no".into(), detail: "it cannot".into() }),
        value: None,
    });
    *there.ready.lock().unwrap() = false;
    let load = json!({ "model": "tiny", "messages": [] });
    assert_eq!(bench.post("/api/chat", load).await.status, 200);

    let runtime = get(&bench, "/v1/runtime").await;
    assert_eq!(runtime["models"][0]["model"], "tiny");
    assert_eq!(runtime["problems"][0]["code"], "invalid-pin");
    assert_eq!((&runtime["active"], &runtime["waiting"]), (&json!(0), &json!(0)));

    let backends = get(&bench, "/v1/backends").await;
    let of = |place: usize, field: &str| backends["backends"][place][field].clone();
    assert_eq!(
        (of(0, "name"), of(0, "models"), of(0, "ready")),
        (json!("here"), json!("store"), json!(true))
    );
    assert_eq!(
        (of(1, "name"), of(1, "models"), of(1, "ready")),
        (json!("there"), json!("list"), json!(false))
    );
    assert_eq!((of(0, "digest"), of(0, "generation")), (json!(support::DIGEST), json!(1)));

    let capabilities = get(&bench, "/v1/capabilities").await;
    let models = capabilities["models"].as_array().unwrap();
    let names: Vec<_> = models.iter().map(|model| model["model"].as_str().unwrap()).collect();
    assert_eq!(names, ["tiny", "listed/one"]);
    let claim = |model: &Value, name: &str| {
        let claims = model["claims"].as_array().unwrap();
        claims.iter().find(|claim| claim["name"] == name).unwrap()["support"].clone()
    };
    assert_eq!(claim(&models[0], "tools.calling"), "supported");
    let one = get(&bench, "/v1/capabilities?model=TinyModel").await;
    assert_eq!(one["models"].as_array().unwrap().len(), 1);
    assert_eq!(bench.get("/v1/capabilities?model=nobody").await.status, 404);
}

#[tokio::test]
async fn a_model_that_is_gone_since_it_was_listed_is_left_out() {
    let shelf = Arc::new(Shelf::leaving());
    let router = Router::new(RouterConfig::default(), shelf, Arc::new(Memory::default()));
    let double = Double::playing(hello());
    router.install("here", Source::Store, Limits::default(), double.clone()).await.unwrap();
    let state = AppState::new(ApiConfig::default(), Arc::new(router));
    let bench = Bench { app: app(state.clone()), state, double };
    assert_eq!(get(&bench, "/v1/capabilities").await["models"], json!([]));
}

#[tokio::test]
async fn readyz_tells_of_the_ledger_and_serves_on() {
    let (bench, ..) = host(ApiConfig::default(), None).await;
    let ready = get(&bench, "/readyz").await;
    assert_eq!(ready["ready"], true);
    let problem =
        json!({ "part": "ledger", "code": "invalid-pin", "message": "pins/cpu.toml: no" });
    assert_eq!(ready["problems"], json!([problem]));
}

/// The conditions of a candidate that do not hold.
fn broken(candidate: &Value) -> Vec<&str> {
    let conditions = candidate["conditions"].as_array().unwrap();
    let broken = conditions.iter().filter(|condition| condition["holds"] == false);
    broken.map(|condition| condition["name"].as_str().unwrap()).collect()
}

async fn explain(bench: &Bench, model: &str, capabilities: &[&str]) -> Value {
    let reply =
        bench.post("/v1/route", json!({ "model": model, "capabilities": capabilities })).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[tokio::test]
async fn a_route_is_explained_and_taken_as_explained() {
    let (bench, ..) = host(ApiConfig::default(), None).await;
    for (model, winner) in
        [("tiny", "here"), ("listed/one", "there"), ("there/listed/one", "there")]
    {
        let route = explain(&bench, model, &[]).await;
        assert_eq!(route["winner"]["backend"], winner, "{route}");
        assert_eq!(route["refusal"], Value::Null);
        for candidate in route["candidates"].as_array().unwrap() {
            let wins = candidate["backend"] == winner;
            assert_eq!(candidate["wins"], wins, "{route}");
            assert_eq!(broken(candidate).is_empty(), wins, "{route}");
            assert!(candidate["score"]["requests"].is_u64(), "{route}");
        }

        let chat = json!({ "model": model, "stream": false,
            "messages": [{ "role": "user", "content": "x" }] });
        let reply = bench.post("/api/chat", chat).await;
        assert_eq!(reply.header("x-gristmill-backend"), winner);
        assert_eq!(reply.header("x-gristmill-model"), route["winner"]["model"]);
    }
    let route = explain(&bench, "nobody", &[]).await;
    assert_eq!((&route["winner"], &route["refusal"]["code"]), (&Value::Null, &json!("not-found")));
    // What was measured is of the requests that came.
    let here = &explain(&bench, "tiny", &[]).await["candidates"][0];
    assert_eq!(here["score"]["requests"], 1, "{here}");
}

#[tokio::test]
async fn each_refusal_has_its_reason() {
    let (bench, ..) = host(ApiConfig::default(), Some("")).await;
    let route = explain(&bench, "tiny", &["tools.calling"]).await;
    assert_eq!(route["winner"], Value::Null);
    assert_eq!(route["refusal"]["code"], "blocked");
    assert_eq!(broken(&route["candidates"][0]), ["unblocked"]);
    assert_eq!(route["candidates"][0]["refusal"]["code"], "blocked");
    assert!(route["refusal"]["message"].as_str().unwrap().contains("loses calls"), "{route}");
    assert_eq!(explain(&bench, "tiny", &[]).await["winner"]["backend"], "here");

    for (need, capability) in [
        ("logprobs", "logprobs"),
        ("structured_output", "structured_output"),
        ("reasoning.control", "reasoning.control"),
        ("multimodal.vision", "multimodal.vision"),
        ("multimodal.audio", "multimodal.audio"),
    ] {
        bench.double.claims.lock().unwrap().push(Claim {
            name: capability.into(),
            support: Support::Unsupported(Reason { code: "no".into(), detail: "it is not".into() }),
            value: None,
        });
        // What a back-end is, it says when it is installed.
        let (limits, again) = (Limits::default(), bench.double.clone());
        bench.state.router.install("here", Source::Store, limits, again).await.unwrap();
        let route = explain(&bench, "tiny", &["inference.text", need]).await;
        assert_eq!(route["refusal"]["code"], "unsupported", "{route}");
        assert_eq!(broken(&route["candidates"][0]), [capability]);
    }
}

#[tokio::test]
async fn every_failure_has_the_one_envelope_with_the_requests_id() {
    let keyed = Keyed::new();
    let key = keyed.add("boss", |key| key.operator = true);
    let (bench, told, _) = host(keyed.config(), None).await;
    let post = Method::POST;
    for (method, path, body, status, code) in [
        (Method::GET, "/v1/plugins", "", 409, "a-word"),
        (Method::GET, "/v1/model-policies", "", 500, "a-word"),
        (Method::GET, "/v1/ledger", "", 409, "a-word"),
        (Method::GET, "/v1/ledger/nothing", "", 404, "no-such-route"),
        (Method::DELETE, "/v1/runtime", "", 405, "method-not-allowed"),
        (post.clone(), "/v1/ledger/verify", "{}", 501, "a-word"),
        (post.clone(), "/v1/ledger/rollback", r#"{"name": "x"}"#, 404, "a-word"),
        (
            post.clone(),
            "/v1/ledger/revoke",
            r#"{"kind": "key", "key": "k", "reason": "r"}"#,
            400,
            "a-word",
        ),
        (post.clone(), "/v1/ledger/promote", "{", 400, "invalid-request"),
        (post.clone(), "/v1/route", r#"{"model": ""}"#, 400, "invalid-request"),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("x-api-key", &key)
            .header("x-request-id", "my-request.1")
            .body(body.to_owned().into())
            .unwrap();
        let reply = bench.send(request).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        let error = reply.json();
        let message = error["error"]["message"].as_str().unwrap();
        assert!(!message.is_empty());
        let whole = json!({ "code": code, "message": message, "request_id": "my-request.1" });
        assert_eq!(error, json!({ "error": whole }), "{path}");
        assert_eq!(reply.header("x-gristmill-error"), code);
    }
    let reply = bench.by(Some(&key), post, "/v1/ledger/promote", r#"{"name": "cpu"}"#).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(*told.0.lock().unwrap(), ["boss promotes cpu"], "and once, by name");
    let release = r#"{"kind": "name", "name": "cpu", "reason": "mended"}"#;
    let reply = bench.by(Some(&key), Method::POST, "/v1/ledger/release", release).await;
    assert_eq!(reply.json(), json!({ "digests": [support::DIGEST] }));
    let told = told.0.lock().unwrap();
    assert!(told[1].starts_with("boss releases Name") && told[1].contains("mended"), "{told:?}");
}

#[tokio::test]
async fn a_candidate_is_pinned_signed_and_qualified_in_the_name_of_the_key() {
    let keyed = Keyed::new();
    let key = keyed.add("boss", |key| key.operator = true);
    let (bench, told, _) = host(keyed.config(), None).await;
    let post = async |path: &str, body: Value| {
        bench.by(Some(&key), Method::POST, path, &body.to_string()).await
    };
    let source = json!({ "kind": "bytes", "component": "AGFzbQ==" });
    let body = json!({ "name": "cpu", "source": source, "version": "1", "evidence": ["e"] });
    assert_eq!(post("/v1/ledger/pin", body).await.status, 409);
    let source = json!({ "kind": "registry", "reference": "oci:here/cpu:1" });
    assert_eq!(
        post("/v1/ledger/pin", json!({ "name": "cpu", "source": source })).await.status,
        409
    );
    let sign = json!({ "name": "cpu", "public": "p", "signature": "s" });
    assert_eq!(post("/v1/ledger/sign", sign).await.status, 409);
    let qualify = json!({ "name": "cpu", "model": "m", "rounds": 1000, "tolerance": 0 });
    assert_eq!(post("/v1/ledger/qualify", qualify).await.status, 409);
    for (field, value) in [("rounds", json!(0)), ("rounds", json!(1001)), ("tolerance", json!(1.0))]
    {
        let mut body = json!({ "name": "cpu", "model": "m" });
        body[field] = value;
        let reply = post("/v1/ledger/qualify", body).await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("x-gristmill-error")),
            (400, "invalid-request")
        );
        assert!(reply.text().contains(field), "{}", reply.text());
    }
    let told = told.0.lock().unwrap().clone();
    let begins = ["boss pins", "boss pins", "boss signs cpu", "boss qualifies"];
    assert_eq!(told.len(), begins.len(), "{told:?}");
    for (told, begins) in told.iter().zip(begins) {
        assert!(told.starts_with(begins), "{told}");
    }
    // Of a component its length is told and not its content.
    assert!(told[0].contains("Bytes { component: 4 bytes, original: None }"), "{}", told[0]);
    assert!(told[1].contains("oci:here/cpu:1"), "{}", told[1]);

    let found = bench.by(Some(&key), Method::GET, "/v1/ledger/candidate?name=cpu", "").await.json();
    assert_eq!((&found["signed"], &found["name"]), (&json!("/wA="), &json!("cpu")));
    assert!(found.get("resolved").is_none(), "{found}");
}

#[tokio::test]
async fn a_component_beyond_the_limit_of_bodies_is_refused_before_it_is_held() {
    let keyed = Keyed::new();
    let key = keyed.add("boss", |key| key.operator = true);
    let (bench, told, _) = host(ApiConfig { body_limit: 4096, ..keyed.config() }, None).await;
    let source = json!({ "kind": "bytes", "component": "A".repeat(8192) });
    let body = json!({ "name": "cpu", "source": source }).to_string();
    let reply = bench.by(Some(&key), Method::POST, "/v1/ledger/pin", &body).await;
    assert_eq!((reply.status.as_u16(), reply.header("x-gristmill-error")), (413, "too-large"));
    assert!(told.0.lock().unwrap().is_empty());
}
