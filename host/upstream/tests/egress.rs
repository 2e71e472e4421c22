//! Every way to make the host send something else, somewhere else, or believe what it should not: a
//! row each in `egress.toml`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::{
    net::IpAddr,
    process::Command,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use gristmill_sandbox::{Framing, HttpRequest, Upstream as _};
use gristmill_upstream::{Credential, Endpoint, Times};
use support::{Fake, Names, SECRET, client, config, drain, send, texts};

/// A row, with what is usual where it says nothing.
struct Row(toml::Table);

impl Row {
    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|value| value.as_str().unwrap_or_else(|| panic!("{key} is a text")))
    }

    fn list(&self, key: &str) -> Vec<&str> {
        let values = self.0.get(key).map(|value| value.as_array().unwrap());
        values.into_iter().flatten().map(|value| value.as_str().unwrap()).collect()
    }

    fn number(&self, key: &str) -> Option<usize> {
        self.0.get(key).map(|value| value.as_integer().unwrap().try_into().unwrap())
    }
}

const KEYS: &[&str] = &[
    "name",
    "url",
    "grant",
    "key-header",
    "resolves",
    "method",
    "path",
    "headers",
    "body",
    "answer",
    "framing",
    "times",
    "expect",
    "says",
    "frames",
    "ends",
    "connections",
    "requests",
    "sent",
    "unsent",
];

async fn run(row: &Row) {
    let name = row.text("name").unwrap();
    for key in row.0.keys() {
        assert!(KEYS.contains(&key.as_str()), "{name}: unknown key {key}");
    }
    let answer = row.text("answer").unwrap_or("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let fake = Fake::new(vec![vec![support::Step::Read, send(answer), support::Step::Close]]).await;
    let url = row.text("url").unwrap_or("http://HERE");
    let url = url
        .replace("HERE", &fake.address.to_string())
        .replace("PORT", &fake.address.port().to_string());

    let expect = row.text("expect").unwrap();
    if expect == "config" {
        let error = Endpoint::parse(&url).expect_err(name).to_string();
        assert!(error.contains(row.text("says").unwrap()), "{name}: {error}");
        return;
    }
    let mut config = config(&url);
    config.endpoint = Endpoint::parse(&url).unwrap_or_else(|error| panic!("{name}: {error}"));
    config.times = Times {
        connect: Duration::from_millis(row.number("times").unwrap_or(5_000) as u64),
        ..Times::default()
    };
    if let Some(header) = row.text("key-header") {
        config.credential = Some(Credential::new(SECRET, Some(header)).unwrap());
    }
    let names = Arc::new(Names {
        answers: row
            .list("resolves")
            .iter()
            .map(|answer| answer.split(' ').map(|ip| ip.parse::<IpAddr>().unwrap()).collect())
            .collect(),
        ..Names::default()
    });
    let client = client(config, row.text("grant").unwrap_or_default(), &names);
    let framing = match row.text("framing").unwrap_or("raw") {
        "raw" => Framing::Raw,
        "lines" => Framing::Lines,
        "sse" => Framing::Sse,
        other => panic!("{name}: framing {other}"),
    };

    // A row may ask several times; the last answer is looked at.
    let mut outcome = None;
    for _ in 0..row.number("requests").unwrap_or(1) {
        let request = HttpRequest {
            method: row.text("method").unwrap_or("GET").into(),
            path: row.text("path").unwrap_or("/v1/x").into(),
            headers: row
                .list("headers")
                .iter()
                .map(|line| line.split_once(": ").unwrap())
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            body: row.text("body").unwrap_or_default().into(),
        };
        outcome = Some(match client.send("primary", request, framing).await {
            Ok(mut response) => {
                let (frames, error) = drain(&mut *response).await;
                Ok((response.status().to_string(), texts(&frames), error))
            }
            Err(error) => Err(error),
        });
    }
    let mut dialled = 1;
    let shown = match outcome.unwrap() {
        Ok((status, frames, error)) => {
            assert_eq!(status, expect, "{name}: {frames:?} {error:?}");
            if row.0.contains_key("frames") {
                assert_eq!(frames, row.list("frames"), "{name}");
            }
            let ends = error.as_ref().map_or("well", |error| error.code.as_str());
            assert_eq!(ends, row.text("ends").unwrap_or("well"), "{name}: {error:?}");
            error.map(|error| format!("{error} {:?}", error.details)).unwrap_or_default()
        }
        Err(error) => {
            assert_eq!(error.code.as_str(), expect, "{name}: {error}");
            if expect != "upstream-error" {
                dialled = 0;
            }
            format!("{error} {:?}", error.details)
        }
    };
    if let Some(words) = row.text("says") {
        assert!(shown.contains(words), "{name}: {words:?} is not in {shown:?}");
    }
    let port = fake.address.port().to_string();
    assert!(!shown.contains(SECRET) && !shown.contains(&port), "{name}: {shown}");
    let expected = row.number("connections").unwrap_or(dialled);
    assert_eq!(fake.connections(), expected, "{name}: connections");
    let asked = names.asked.load(Ordering::SeqCst);
    assert!(asked <= row.number("requests").unwrap_or(1), "{name}: resolved {asked} times");
    let sent = fake.requests().join("");
    for words in row.list("sent") {
        assert!(sent.contains(words), "{name}: {words:?} is not in {sent:?}");
    }
    for words in row.list("unsent") {
        assert!(
            !sent.to_lowercase().contains(&words.to_lowercase()),
            "{name}: {words:?} is in {sent:?}"
        );
    }
}

#[tokio::test]
async fn every_row_holds() {
    let table: toml::Table = include_str!("egress.toml").parse().unwrap();
    let rows = table["row"].as_array().unwrap();
    assert!(rows.len() >= 60, "{} rows", rows.len());
    let mut failed = Vec::new();
    for row in rows {
        let row = Row(row.as_table().unwrap().clone());
        if let Err(error) = tokio::spawn(async move { run(&row).await }).await {
            failed.push(error.to_string());
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Proxies are a matter of the environment, so this asks itself with another one.
#[tokio::test]
async fn proxies_in_the_environment_are_not_looked_at() {
    if std::env::var_os("EGRESS_PROXIED").is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "proxies_in_the_environment_are_not_looked_at"]);
        for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"] {
            again.env(name, "http://127.0.0.1:1");
        }
        let done = again.env("EGRESS_PROXIED", "1").env_remove("no_proxy").output().unwrap();
        let told = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let fake = Fake::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let response = support::client_of(&fake)
        .send("primary", support::request("GET", "/v1/x", ""), Framing::Raw)
        .await;
    assert_eq!(response.unwrap().status(), 200);
    assert_eq!(fake.connections(), 1);
}
