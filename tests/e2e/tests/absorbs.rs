//! Every recorded answer, sent over TCP to the real component through the real client, becomes the
//! events written beside it: sent at once, and byte by byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail loudly")]

use std::sync::{Arc, Mutex};

use gristmill_e2e::{Bridge, listing, request};
use gristmill_fakes::{Fake, Step, Transcript};
use gristmill_upstream::Times;

/// The host looks at these before the bridge does, and has a sentence of its own.
const HOSTS_OWN: [&str; 1] = ["error-html-page"];

async fn absorbs(kind: &str) {
    let steps: Arc<Mutex<Vec<Step>>> = Arc::default();
    let playing = Arc::clone(&steps);
    let fake = Fake::start(move |_| playing.lock().unwrap().clone()).await;
    let bridge = Bridge::new(kind, &fake.url(), Times::default());
    let mut wrong = String::new();
    for transcript in Transcript::of(kind) {
        for (way, script) in [("at once", transcript.steps()), ("bytes", transcript.trickle())] {
            *steps.lock().unwrap() = script;
            let answer = bridge.play(request(&transcript.case), 16).await;
            let (found, wanted) = (listing(&answer), &transcript.events);
            let same = if HOSTS_OWN.contains(&transcript.case.as_str()) {
                found.starts_with("error upstream-error ")
            } else {
                found == *wanted
            };
            if !same {
                wrong += &format!("{} {way}:\n{found}instead of\n{wanted}\n", transcript.case);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ollama() {
    absorbs("ollama").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vllm() {
    absorbs("vllm").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn llama_server() {
    absorbs("llama-server").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mlx() {
    absorbs("mlx").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_compatible() {
    absorbs("openai-compatible").await;
}
