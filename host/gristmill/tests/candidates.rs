//! From a component's bytes to what runs, over HTTP: pinned, signed where the key is, qualified, promoted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::{fs, io::Write as _, net::TcpStream};

use gristmill_api::control::view::Base64;
use gristmill_fakes::Fake;
use gristmill_ledger::{Keeper, Pin, keys::Key, sha256};
use gristmill_testing::guests;
use serde_json::{Value, json};
use support::{Artifact, Home, Serving, exchange};

/// A host that runs the honest guest as `liar`, and an operator's key.
struct Host {
    home: Home,
    serving: Serving,
    key: String,
}

impl Host {
    fn new() -> Self {
        let home = Home::with_components()
            .set("GRISTMILL_PLUGINS_BACKEND", "liar")
            .set("GRISTMILL_PLUGINS_FAMILIES", "");
        let grants = home.path("policies/grants");
        fs::copy(grants.join("cpu.toml"), grants.join("liar.toml")).unwrap();
        let file = home.path("first.wasm");
        fs::write(&file, guests::guest("liar").unwrap()).unwrap();
        home.says(&["ledger", "pin", "liar", file.to_str().unwrap()]);
        home.says(&["ledger", "promote", "liar"]);
        let key = home.says(&["key", "add", "boss", "--operator"]);
        let serving = home.serve(&[]);
        Self { home, serving, key }
    }

    fn head(&self) -> String {
        format!("X-Api-Key: {}\r\n", self.key)
    }

    fn post(&self, verb: &str, body: &Value) -> (u16, Value) {
        let path = format!("/v1/ledger/{verb}");
        let (head, body) = (self.head(), body.to_string());
        let answer = exchange(&self.serving.address, "POST", &path, &head, &body);
        (answer.status, answer.json())
    }

    /// The answer of a verb that must be done.
    fn does(&self, verb: &str, body: &Value) -> Value {
        let (status, answer) = self.post(verb, body);
        assert_eq!(status, 200, "{verb}: {answer}");
        answer
    }

    /// The words of a verb that must be refused with this status and code.
    fn refuses(&self, verb: &str, body: &Value, status: u16, code: &str) -> String {
        let (found, answer) = self.post(verb, body);
        assert_eq!((found, &answer["error"]["code"]), (status, &json!(code)), "{verb}: {answer}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    }

    fn get(&self, path: &str) -> (u16, String) {
        let answer = exchange(&self.serving.address, "GET", path, &self.head(), "");
        (answer.status, answer.body)
    }

    /// Digest and generation of what runs.
    fn runs(&self) -> (String, u64) {
        let backends: Value = serde_json::from_str(&self.get("/v1/backends").1).unwrap();
        let one = &backends["backends"][0];
        (one["digest"].as_str().unwrap().to_owned(), one["generation"].as_u64().unwrap())
    }

    fn pin(&self, component: &[u8]) -> Value {
        self.does("pin", &bytes(component))
    }

    fn qualifies(&self) -> Value {
        self.does("qualify", &json!({ "name": "liar", "model": "honest", "rounds": 4 }))
    }
}

fn bytes(component: &[u8]) -> Value {
    let component = Base64(component.to_vec());
    let source = json!({ "kind": "bytes", "component": component, "original": "next.wasm" });
    json!({ "name": "liar", "source": source })
}

/// Other bytes that do the same: a custom section behind them.
fn same() -> Vec<u8> {
    [&guests::guest("liar").unwrap()[..], b"\0\x05\x04same"].concat()
}

fn name() -> Value {
    json!({ "name": "liar" })
}

/// Also where nobody has to sign.
#[test]
fn what_was_taken_out_of_trust_is_not_tried_out() {
    let host = Host::new();
    host.pin(&same());
    host.home.says(&["ledger", "revoke", "--digest", &sha256(&same()), "--reason", "leaks"]);
    let body = json!({ "name": "liar", "model": "honest", "rounds": 4 });
    assert!(host.refuses("qualify", &body, 409, "revoked").contains("leaks"));
    host.home.refuses(&["ledger", "qualify", "liar", "--model", "honest"], "leaks");
}

#[test]
fn a_component_is_pinned_signed_elsewhere_qualified_and_promoted() {
    let host = Host::new();
    let (old, _) = host.runs();

    // The signer's machine has neither ledger nor components.
    let away = Home::empty();
    let public = away.says(&["ledger", "keygen", "ada.key"]);
    let id = Key { name: "ada".to_owned(), public: public.clone() }.id().unwrap();
    host.home.says(&["ledger", "trust", "ada", &public]);
    away.says(&["ledger", "keygen", "eve.key"]);

    let candidate = "/v1/ledger/candidate?name=liar";
    assert_eq!(host.get(candidate).0, 404);
    host.refuses(
        "sign",
        &json!({ "name": "liar", "public": public, "signature": "" }),
        409,
        "no-candidate",
    );
    let pinned = host.pin(&same());
    let pin = Pin::parse(pinned["text"].as_str().unwrap()).unwrap();
    assert_eq!((pin.sequence, pin.original.as_deref()), (2, Some("next.wasm")));
    assert_eq!(pinned["digest"], format!("sha256:{}", sha256(&same())));
    assert_eq!(pinned["signed"], serde_json::to_value(Base64(pin.signed().unwrap())).unwrap());
    assert_eq!(fs::read(host.home.path("plugins").join(&pin.file)).unwrap(), same());
    assert_eq!((&pinned["signatures"], &pinned["threshold"]), (&json!([]), &json!(1)));
    assert!(pinned["wanting"].as_str().unwrap().contains("found 0"), "{pinned}");
    assert_eq!(host.runs(), (old.clone(), 1), "nothing runs of it");
    host.refuses("promote", &name(), 409, "signature-threshold");
    // Nor does an operator's key alone have it tried out.
    let qualify = json!({ "name": "liar", "model": "honest", "rounds": 4 });
    host.refuses("qualify", &qualify, 409, "signature-threshold");

    let signature = |key: &str| -> Value {
        fs::write(away.path("liar.json"), host.get(candidate).1).unwrap();
        let sign = ["ledger", "sign", "liar", "--key", key, "--candidate", "liar.json"];
        serde_json::from_str(&away.says(&sign)).unwrap()
    };
    let early = signature("ada.key");
    let signed = host.does("sign", &early);
    assert_eq!(signed["signatures"], json!([{ "key": id, "name": "ada" }]));
    assert_eq!(signed["wanting"], Value::Null);
    away.refuses(
        &["ledger", "sign", "cpu", "--key", "ada.key", "--candidate", "liar.json"],
        "not for cpu",
    );
    away.refuses(
        &["ledger", "sign", "liar", "--key", "ada.key", "--candidate", "ada.key"],
        "ada.key",
    );
    // A key that nobody knows may sign, and counts for nothing.
    let signed = host.does("sign", &signature("eve.key"));
    let unknown = signed["signatures"].as_array().unwrap().iter().find(|one| one["key"] != *id);
    assert_eq!(unknown.unwrap()["name"], Value::Null);
    // Where keys are asked for, so is all that qualifies it.
    host.refuses("promote", &name(), 409, "evidence-missing");

    let qualified = host.qualifies();
    assert_eq!((&qualified["verdict"], &qualified["lost"]), (&json!("qualified"), &json!([])));
    let ratios = json!([
        { "what": "prefill", "ratio": 1.0, "pairs": 4 }, { "what": "decode", "ratio": 1.0, "pairs": 4 }
    ]);
    assert_eq!(qualified["ratios"], ratios);
    assert_eq!(qualified["performance"]["component-digest"], pin.sha256);
    let found: Value = serde_json::from_str(&host.get(candidate).1).unwrap();
    let pin = Pin::parse(found["text"].as_str().unwrap()).unwrap();
    assert_eq!(json!(pin.evidence), json!([qualified["evidence"]]));
    assert_eq!(pin.guardrail.unwrap().measured.len(), 1);
    assert!(pin.signatures.is_empty(), "what was signed was another text");
    let why = host.refuses("sign", &early, 409, "invalid-signature");
    assert!(why.contains("candidates/liar.toml") && why.contains("not of this candidate"), "{why}");
    host.does("sign", &signature("ada.key"));
    let swap = host.does("promote", &name());
    let new = format!("sha256:{}", pin.sha256);
    assert_eq!((&swap["digest"], &swap["backends"][0]["standing"]), (&json!(new), &json!("live")));
    assert_eq!(host.runs(), (new, 2));
    assert_eq!(host.get(candidate).0, 404);
    let log = host.home.says(&["ledger", "log", "liar"]);
    assert!(log.contains("promotion  liar sequence 2 [boss]"), "{log}");
    // The secret was never here.
    let secret = fs::read_to_string(away.path("ada.key")).unwrap();
    let files = |folder: &str| fs::read_dir(host.home.path(folder)).unwrap();
    for file in files("ledger").chain(files("data/gristmill")) {
        let text = fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&text).contains(secret.trim()));
    }
}

#[test]
fn what_is_no_component_or_no_pin_is_not_pinned() {
    let host = Host::new();
    let plugins = || fs::read_dir(host.home.path("plugins")).unwrap().count();
    let before = plugins();
    let with = |field: &str, value: Value| {
        let mut body = bytes(&same());
        body[field] = value;
        body
    };
    for (body, status, code) in [
        (bytes(b"\0asm"), 409, "invalid-component"),
        (bytes(b""), 409, "invalid-component"),
        (with("name", json!("../liar")), 409, "invalid-pin"),
        (with("name", json!("Liar")), 409, "invalid-pin"),
        (with("evidence", json!(["none"])), 409, "invalid-pin"),
        (with("expires", json!("tomorrow")), 400, "invalid-request"),
        (with("not_before", json!("2026-12-01")), 400, "invalid-request"),
        (
            with("source", json!({ "kind": "registry", "reference": "/etc/passwd" })),
            409,
            "invalid-source",
        ),
        (
            with("source", json!({ "kind": "registry", "reference": "oci:127.0.0.1:1/x:1" })),
            409,
            "source-unavailable",
        ),
    ] {
        host.refuses("pin", &body, status, code);
        assert_eq!(plugins(), before, "{code}: nothing is kept of it");
    }
    assert!(!host.home.path("ledger/candidates/liar.toml").exists());
    assert_eq!(host.get("/v1/ledger/candidate?name=../pins/liar").0, 409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_fetches_what_it_is_told_to_pin_from_a_registry() {
    let (artifact, host) = (Artifact::new(same()), Host::new());
    let resolved = artifact.digest();
    let registry = Fake::start(move |request| artifact.answer(&request.target)).await;
    let at = registry.url().replace("http://", "oci:");
    let source = json!({ "kind": "registry", "reference": format!("{at}/team/liar:1.0") });
    let body = json!({ "name": "liar", "source": source, "expires": "2999-01-01T00:00:00Z" });
    let pinned = host.does("pin", &body);
    assert_eq!(pinned["resolved"], format!("{at}/team/liar@{resolved}"));
    let pin = Pin::parse(pinned["text"].as_str().unwrap()).unwrap();
    assert_eq!(pin.original, Some(format!("{at}/team/liar:1.0")));
    assert_eq!(pin.expires.unwrap().to_string(), "2999-01-01T00:00:00Z");
    let swap = host.does("promote", &name());
    let digest = format!("sha256:{}", sha256(&same()));
    assert_eq!(swap["digest"], digest);
    assert_eq!(host.runs(), (digest, 2));
}

/// It says what to do, and nothing is measured while the ledger is held.
#[test]
fn a_host_does_not_measure_in_a_promotion() {
    let host = Host::new();
    host.pin(&same());
    host.qualifies();
    // They decide between back-ends, from then on.
    host.serving.says("measurements read again");
    let file = host.home.path("ledger/candidates/liar.toml");
    let mut pin = Pin::parse(&fs::read_to_string(&file).unwrap()).unwrap();
    pin.guardrail.as_mut().unwrap().measured[0].host_class = "aarch64-neon-8".to_owned();
    fs::write(file, pin.to_toml().unwrap()).unwrap();
    let why = host.refuses("promote", &name(), 409, "guardrail-unmeasured");
    assert!(why.contains("`gristmill ledger promote liar`"), "{why}");
    assert_eq!(host.runs().1, 1);
    // The command measures it, and the host follows.
    host.home.says(&["ledger", "promote", "liar"]);
    host.serving.says("follows the ledger");
    assert_eq!(host.runs(), (format!("sha256:{}", sha256(&same())), 2));
}

#[test]
fn measurements_that_cannot_be_read_keep_nothing_from_starting() {
    let host = Host::new();
    let folder = host.home.path("ledger/performance");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("liar-0.json"), "{").unwrap();
    host.serving.says("measurements refused (invalid-performance)");
    let again = host.home.serve(&[]);
    assert_eq!(again.chat("honest", false).0, 401, "it serves, and asks for a key");
    host.home.refuses(&["ledger", "verify"], "1 things are wrong");
}

#[test]
fn what_loses_over_http_is_withdrawn_and_what_it_lost_is_told() {
    let host = Host::new();
    let (old, _) = host.runs();
    host.refuses("qualify", &json!({ "name": "liar", "model": "honest" }), 409, "no-candidate");
    for (guest, word) in [
        ("liar_slower", "decode is at 0.500 of what is in force"),
        ("liar_worse", "it fails tools.ids"),
    ] {
        host.pin(&guests::guest(guest).unwrap());
        let told = host.qualifies();
        assert_eq!(told["verdict"], "lost");
        assert!(told["lost"].to_string().contains(word), "{told}");
        let report = format!("evidence/liar-{}.json", told["evidence"].as_str().unwrap());
        assert!(host.home.path("ledger").join(report).exists(), "why is kept");
        assert_eq!(host.get("/v1/ledger/candidate?name=liar").0, 404, "{guest}");
    }
    host.pin(&same());
    let nobody = json!({ "name": "liar", "model": "nobody" });
    assert!(host.refuses("qualify", &nobody, 409, "not-comparable").contains("nobody"));
    let family = json!({ "name": "llama", "model": "honest" });
    host.refuses("qualify", &family, 409, "no-candidate");
    assert_eq!(host.get("/v1/ledger/candidate?name=liar").0, 200, "nothing was said against it");
    assert_eq!(host.runs(), (old, 1));
}

/// A probe has no traffic and is loaded when it is asked to test, with the grant of then.
#[test]
fn a_probe_is_asked_under_the_grant_that_lies_there_if_its_pin_allows_that() {
    let host = Host::new();
    let probe = host.home.path("plugins/probe_tools.wasm");
    let approve = || {
        host.home.says(&["ledger", "pin", "probe-tools", probe.to_str().unwrap()]);
        host.does("promote", &json!({ "name": "probe-tools" }));
    };
    approve();
    let grant = host.home.path("policies/grants/probe-tools.toml");
    let shared = fs::read_to_string(host.home.path("policies/grants/probe.toml")).unwrap();
    assert!(shared.contains("\n[limits]\n"), "{shared}");
    fs::write(&grant, format!("{shared}host-call-bytes = 1\n")).unwrap();
    host.pin(&same());
    let body = json!({ "name": "liar", "model": "honest" });
    let why = host.refuses("qualify", &body, 409, "not-comparable");
    assert!(why.contains("probe-tools refused (grant-changed)"), "{why}");

    approve();
    let why = host.refuses("qualify", &body, 409, "not-comparable");
    assert!(why.contains("probe-tools") && why.contains("more bytes to the host"), "{why}");
    fs::remove_file(&grant).unwrap();
    approve();
    assert_eq!(host.qualifies()["verdict"], "qualified");
}

#[test]
fn one_candidate_is_measured_at_a_time_to_the_end_even_if_nobody_waits() {
    let host = Host::new();
    host.pin(&same());
    // Whoever wants to read the ledger to change it waits for this one.
    let keeper = Keeper::open(&host.home.path("ledger"), None).unwrap();
    let body = json!({ "name": "liar", "model": "honest", "rounds": 4 });
    let mut caller = TcpStream::connect(&host.serving.address).unwrap();
    let (head, text) = (host.head(), body.to_string());
    write!(
        caller,
        "POST /v1/ledger/qualify HTTP/1.0\r\nHost: localhost\r\n{head}Content-Length: {}\r\n\r\n{text}",
        text.len()
    )
    .unwrap();
    host.serving.says("a candidate is held against what is in force");
    let why = host.refuses("qualify", &body, 409, "qualify-running");
    assert!(why.contains("wait"), "{why}");
    drop((caller, keeper));
    let said = host.serving.says("a candidate was held against what is in force");
    assert!(said.contains("Qualified") && said.contains("boss"), "{said}");
    let (_, candidate) = host.get("/v1/ledger/candidate?name=liar");
    let candidate: Value = serde_json::from_str(&candidate).unwrap();
    assert!(candidate["text"].as_str().unwrap().contains("[guardrail]"), "{candidate}");
    // And then there is room for the next.
    assert_eq!(host.qualifies()["verdict"], "qualified");
}
