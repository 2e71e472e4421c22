//! The client behind a real component: what is refused is not dialled, and dropping a call closes the
//! server's socket in the time that is promised.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gristmill_core::{
    Code, Result,
    event::Event,
    request::{Prompt, Request},
};
use gristmill_ledger::{Kind, Pin};
use gristmill_policies::Grant;
use gristmill_sandbox::{Backend, Sandbox, SandboxConfig, Services, inspect};
use gristmill_testing::guests;
use support::{Fake, Step, client_of, granted, send};

/// The back-end that does as the prompt says, with this server behind `primary`.
fn backend(sandbox: &Sandbox, fake: &Fake) -> Arc<dyn Backend> {
    let bytes = guests::guest("hostile").unwrap();
    let found = inspect(&bytes).unwrap();
    let pin =
        Pin::first("hostile", "hostile.wasm", &bytes, found.kind, found.contract, found.imports);
    let everything = [
        "gristmill:contract/*",
        "wasi:cli/*",
        "wasi:clocks/*",
        "wasi:filesystem/*",
        "wasi:io/*",
        "wasi:random/*",
    ];
    let grant = Grant {
        imports: everything.iter().map(|&name| name.to_owned()).collect(),
        upstreams: [("primary".to_owned(), granted(""))].into(),
        ..Grant::none(Kind::Backend)
    };
    let services = Services { upstream: Some(Arc::new(client_of(fake))), ..Services::default() };
    sandbox.load_backend(&bytes, &pin, &grant, services).unwrap()
}

async fn answer(backend: &dyn Backend, prompt: &str) -> Result<String> {
    let request = Request::new("test", "hostile", Prompt::Text(prompt.into()));
    let mut generation = backend.generate(request).await?;
    let mut text = String::new();
    while let Some(events) = generation.next(8).await? {
        for event in events {
            if let Event::Text(piece) = event {
                text.push_str(&piece);
            }
        }
    }
    Ok(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_sees_status_headers_and_frames_and_nothing_that_is_not_granted_is_dialled() {
    let fake = Fake::answering(
        "HTTP/1.1 200 OK\r\nserver: sk-never-shown\r\nx-kind: plain\r\ncontent-length: 8\r\n\r\n\
         a\nb\r\nc\n\n",
    )
    .await;
    let sandbox = Sandbox::new(SandboxConfig::default()).unwrap();
    let backend = backend(&sandbox, &fake);
    for (prompt, code) in [
        ("upstream secondary /v1/x x", Code::Blocked),
        ("upstream primary /admin x", Code::Blocked),
        ("upstream primary //v1/x x", Code::InvalidRequest),
        ("upstream primary /v1/%2e%2e/admin x", Code::InvalidRequest),
    ] {
        assert_eq!(answer(&*backend, prompt).await.unwrap_err().code, code, "{prompt}");
    }
    assert_eq!(fake.connections(), 0);
    let seen = answer(&*backend, "upstream primary /v1/x x").await.unwrap();
    assert_eq!(
        seen, "200 Some(\"(key)\") None|a|b|c|",
        "the key is hidden, and x-kind is not told"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_call_closes_the_socket_before_and_within_the_answer() {
    let head = "HTTP/1.1 200 OK\r\n\r\nfirst\n";
    let fake =
        Fake::new(vec![vec![Step::Read, Step::Hang], vec![Step::Read, send(head), Step::Hang]])
            .await;
    let sandbox = Sandbox::new(SandboxConfig::default()).unwrap();
    let backend = backend(&sandbox, &fake);
    for asked in 1..=2 {
        let call = Arc::clone(&backend);
        let waiting = tokio::spawn(async move { answer(&*call, "upstream primary /v1/x x").await });
        while fake.requests().len() < asked {
            tokio::task::yield_now().await;
        }
        let stopped = Instant::now();
        waiting.abort();
        let gone = fake.gone().await;
        let late = gone.saturating_duration_since(stopped);
        assert!(late < Duration::from_millis(250), "{asked}: {late:?}");
    }
}
