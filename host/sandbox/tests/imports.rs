//! What guests reach through their imports, and what they do not.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use common::{Scripted, answer, hostile, request, sandbox, text};
use gristmill_core::{Code, Error, Result, event::Event};
use gristmill_kernels::Pool;
use gristmill_policies::Limits;
use gristmill_sandbox::{Backend, Frame, Framing, HttpRequest, Response, Services, Upstream};

async fn refusal(backend: &dyn Backend, prompt: &str) -> Error {
    answer(backend, prompt).await.expect_err(prompt)
}

#[tokio::test]
async fn the_world_outside_is_empty() {
    let sandbox = sandbox();
    let backend = hostile(&sandbox, Limits::default(), Services::default());
    let seen = text(&answer(&*backend, "inert").await.unwrap());
    assert_eq!(seen, "env=0 args=0 root=false file=false stdin=0");
}

#[tokio::test]
async fn what_the_host_does_not_have_is_refused_by_name() {
    let sandbox = sandbox();
    let backend = hostile(&sandbox, Limits::default(), Services::default());
    for prompt in ["engine", "kernels", "onnx"] {
        let error = refusal(&*backend, prompt).await;
        assert_eq!(error.code, Code::Unsupported, "{prompt}: {error}");
    }
    assert_eq!(sandbox.strikes(backend.digest()), 0);
}

struct Recorded(Arc<Mutex<Vec<(String, HttpRequest, Framing)>>>);

struct Canned(u32);

#[async_trait]
impl Upstream for Recorded {
    async fn send(
        &self,
        grant: &str,
        request: HttpRequest,
        framing: Framing,
    ) -> Result<Box<dyn Response>> {
        self.0.lock().unwrap().push((grant.to_owned(), request, framing));
        Ok(Box::new(Canned(0)))
    }
}

#[async_trait]
impl Response for Canned {
    fn status(&self) -> u16 {
        200
    }

    fn header(&self, name: &str) -> Option<String> {
        name.eq_ignore_ascii_case("x-kind").then(|| "canned".to_owned())
    }

    async fn next(&mut self, _max_frames: u32, _max_bytes: u32) -> Result<Option<Vec<Frame>>> {
        self.0 += 1;
        let frame = |text: &str| Frame { event: None, data: text.as_bytes().to_vec() };
        Ok((self.0 <= 2).then(|| vec![frame("a"), frame("b")]))
    }
}

#[tokio::test]
async fn servers_are_reached_by_the_names_of_the_grant_alone() {
    let sandbox = sandbox();
    let alone = hostile(&sandbox, Limits::default(), Services::default());
    let error = refusal(&*alone, "upstream primary /v1 x").await;
    assert_eq!(error.code, Code::UpstreamUnavailable, "{error}");
    assert_eq!(error.detail("upstream"), Some("primary"));

    let sent = Arc::new(Mutex::new(Vec::new()));
    let servers = Recorded(Arc::clone(&sent));
    let services = Services { upstream: Some(Arc::new(servers)), ..Services::default() };
    let backend = hostile(&sandbox, Limits::default(), services);
    for (prompt, code) in [
        ("upstream secondary /v1 x", Code::Blocked),
        ("upstream http://host /v1 x", Code::Blocked),
        ("upstream primary /v2 x", Code::Blocked),
        ("upstream primary //host/v1 x", Code::InvalidRequest),
        ("upstream primary http://host/ x", Code::InvalidRequest),
        ("upstream primary /v1 a\r\nhost:b", Code::InvalidRequest),
    ] {
        assert_eq!(refusal(&*backend, prompt).await.code, code, "{prompt}");
    }
    assert!(sent.lock().unwrap().is_empty(), "nothing refused was sent");

    let seen = text(&answer(&*backend, "upstream primary /v1 x").await.unwrap());
    assert_eq!(seen, "200 None Some(\"canned\")|a|b|a|b");
    let sent = sent.lock().unwrap();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].0.as_str(), sent[0].2), ("primary", Framing::Lines));
    assert_eq!(sent[0].1.headers, [("x-test".to_owned(), "x".to_owned())]);
}

#[tokio::test]
async fn kernels_compute_in_the_host() {
    let sandbox = sandbox();
    let services = Services { pool: Some(Arc::new(Pool::new(2, false))), ..Services::default() };
    let backend = hostile(&sandbox, Limits::default(), services);
    let seen = text(&answer(&*backend, "kernels").await.unwrap());
    assert_eq!(
        seen,
        "(2, 3) F32 [-2.0, -2.0] [1.0, 4.0, 2.0, 5.0] [4.0, 5.0, 6.0] \
         [\"invalid-request\", \"invalid-request\", \"invalid-request\", \"unsupported\"]"
    );
}

#[tokio::test]
async fn the_engine_is_reached_by_handles() {
    let sandbox = sandbox();
    let services = Services { engine: Some(Arc::new(Scripted::default())), ..Services::default() };
    let backend = hostile(&sandbox, Limits::default(), services);
    assert_eq!(refusal(&*backend, "engine").await.code, Code::NotFound);
    for prompt in ["engine", "session"] {
        let mut request = request(prompt);
        request.model = "scripted".into();
        let mut generation = backend.generate(request).await.unwrap();
        let mut events = Vec::new();
        while let Some(more) = generation.next(8).await.unwrap() {
            events.extend(more);
        }
        assert_eq!(text(&events), "from the engine", "{prompt}");
        assert!(matches!(events.last(), Some(Event::Finish(_))));
    }
}
