//! Each way in which a server can fail, through each bridge: the code, the back-end's name, what was
//! seen; what came before it is delivered; never an end that looks clean, never a hang.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail loudly")]

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use gristmill_core::{Error, event::Event};
use gristmill_e2e::{Bridge, SHORT, request};
use tokio::time::timeout;

use gristmill_fakes::{Fake, Latch, SERVERS, Step, Transcript};

/// A fake whose next script is set before each request.
struct Stage {
    fake: Fake,
    steps: Arc<Mutex<Vec<Step>>>,
    bridge: Bridge,
}

impl Stage {
    async fn new(kind: &str) -> Self {
        let steps: Arc<Mutex<Vec<Step>>> = Arc::default();
        let playing = Arc::clone(&steps);
        let fake = Fake::start(move |_| playing.lock().unwrap().clone()).await;
        let bridge = Bridge::new(kind, &fake.url(), SHORT);
        Self { fake, steps, bridge }
    }

    async fn play(&self, steps: Vec<Step>) -> (Vec<Event>, Error) {
        *self.steps.lock().unwrap() = steps;
        let (events, error) = self.bridge.play(request("chat"), 16).await;
        (events, error.expect("an answer that fails"))
    }
}

/// Head and body of an answer of this kind, and the body's first half.
fn recorded(kind: &str) -> (Vec<u8>, Vec<u8>) {
    let transcript = Transcript::named(kind, "chat-text");
    let wire = transcript.wire();
    // The last event or line but two: content has come, an end has not.
    let half = wire.len() / 2;
    let (head, rest) = wire.split_at(half);
    (head.to_vec(), rest.to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bridge_names_what_happened() {
    for kind in SERVERS {
        let stage = Stage::new(kind).await;
        let (half, rest) = recorded(kind);
        let head_end = half.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let head = half.split_at(head_end).0.to_vec();
        let send = |bytes: &[u8]| Step::Send(bytes.to_vec());
        for (what, steps, code, begun) in [
            ("closed before its head", vec![Step::Close], "upstream-error", false),
            ("reset before its head", vec![Step::Reset], "upstream-error", false),
            ("silent before its head", vec![Step::Hang], "upstream-timeout", false),
            (
                "a head that is none",
                vec![Step::Send(b"hello\r\n\r\n".to_vec()), Step::Close],
                "upstream-error",
                false,
            ),
            ("silent after its head", vec![send(&head), Step::Hang], "upstream-timeout", false),
            ("closed in its body", vec![send(&half), Step::Close], "upstream-error", true),
            ("reset in its body", vec![send(&half), Step::Reset], "upstream-error", true),
            ("silent in its body", vec![send(&half), Step::Hang], "upstream-timeout", true),
        ] {
            let started = Instant::now();
            let (events, error) = stage.play(steps).await;
            let shown = format!("{kind} {what}: {events:?} {error:?}");
            assert_eq!(error.code.as_str(), code, "{shown}");
            assert!(error.detail("backend").is_some(), "{shown}");
            assert!(!events.iter().any(|event| matches!(event, Event::Finish(_))), "{shown}");
            // A reset may overtake bytes that were sent before it.
            if begun && what != "reset in its body" {
                let said = events.iter().any(|event| matches!(event, Event::Text(_)));
                assert!(said, "what came before the failure is delivered: {shown}");
            }
            assert!(started.elapsed() < Duration::from_secs(10), "{shown}");
        }
        // After all of that the bridge still works.
        *stage.steps.lock().unwrap() = vec![send(&half), send(&rest)];
        let (events, error) = stage.bridge.play(request("chat"), 16).await;
        assert_eq!(error, None, "{kind}");
        assert!(matches!(events.last(), Some(Event::Finish(_))), "{kind}: {events:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_is_an_unavailable_server() {
    for kind in SERVERS {
        let url = Fake::of(vec![]).await.url();
        let bridge = Bridge::new(kind, &url, SHORT);
        let (events, error) = bridge.play(request("chat"), 16).await;
        let error = error.unwrap();
        assert_eq!((error.code.as_str(), events.len()), ("upstream-unavailable", 0), "{kind}");
        assert_eq!(error.detail("backend"), Some("fake"), "{kind}: {error:?}");
        let health = bridge.backend.health().await;
        assert_eq!(health.unwrap_err().code.as_str(), "upstream-unavailable", "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_without_end_is_cut_and_its_connection_closed() {
    for kind in ["ollama", "vllm"] {
        let stage = Stage::new(kind).await;
        let transcript = Transcript::named(kind, "chat-text");
        let head =
            transcript.head.replace("Transfer-Encoding", "X").replace("transfer-encoding", "x");
        let mut start = format!("{head}\r\nconnection: close\r\n\r\ndata: ").into_bytes();
        start.extend(b"x");
        let steps = vec![Step::Send(start), Step::Endless(vec![b'x'; 1 << 16])];
        let (events, error) = stage.play(steps).await;
        assert_eq!((error.code.as_str(), events.len()), ("upstream-error", 0), "{kind}: {error:?}");
        stage.fake.gone().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_come_as_soon_as_they_are_sent_and_dropping_the_answer_closes_the_socket() {
    for kind in SERVERS {
        let stage = Stage::new(kind).await;
        let (half, _) = recorded(kind);
        let gate = Latch::default();
        *stage.steps.lock().unwrap() = vec![Step::Send(half), Step::Wait(gate.clone()), Step::Hang];
        let mut answer = stage.bridge.backend.generate(request("chat")).await.unwrap();
        let first = answer.next(1).await.unwrap().unwrap();
        assert!(matches!(first.as_slice(), [Event::Text(_)]), "{kind}: {first:?}");
        gate.reached().await;
        drop(answer);
        gate.open();
        timeout(Duration::from_secs(10), stage.fake.gone())
            .await
            .unwrap_or_else(|_| panic!("{kind}: the socket stays open"));
    }
}
