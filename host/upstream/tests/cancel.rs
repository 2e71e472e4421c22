//! Who stops waiting stops the server: the socket is closed at once, whatever was going on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::time::{Duration, Instant};

use gristmill_sandbox::Framing;
use support::{Fake, Step, client_of, post, send};

/// What is promised.
const PROMPT: Duration = Duration::from_millis(250);

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

#[tokio::test]
async fn while_the_answer_has_not_begun() {
    let fake = Fake::new(vec![vec![Step::Read, Step::Hang]]).await;
    let client = client_of(&fake);
    let waiting = tokio::spawn(async move {
        let _ = post(&client, Framing::Raw).await;
    });
    while fake.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    let stopped = Instant::now();
    waiting.abort();
    let gone = fake.gone().await;
    assert!(gone - stopped < PROMPT, "{:?}", gone - stopped);
}

#[tokio::test]
async fn while_it_streams() {
    let fake = Fake::new(vec![vec![Step::Read, send(HEAD), send("data: a\n\n"), Step::Hang]]).await;
    let client = client_of(&fake);
    let mut response = post(&client, Framing::Sse).await.unwrap();
    assert_eq!(response.next(1, 1).await.unwrap().unwrap().len(), 1);
    let stopped = Instant::now();
    drop(response);
    let gone = fake.gone().await;
    assert!(gone - stopped < PROMPT, "{:?}", gone - stopped);
    assert_eq!(client.open(), (0, 0));
}

#[tokio::test]
async fn while_somebody_waits_for_more() {
    let fake = Fake::new(vec![vec![Step::Read, send(HEAD), Step::Hang]]).await;
    let client = client_of(&fake);
    let mut response = post(&client, Framing::Sse).await.unwrap();
    let waiting = tokio::spawn(async move {
        let _ = response.next(1, 1).await;
    });
    tokio::task::yield_now().await;
    let stopped = Instant::now();
    waiting.abort();
    let gone = fake.gone().await;
    assert!(gone - stopped < PROMPT, "{:?}", gone - stopped);
}

#[tokio::test]
async fn while_the_server_sends_faster_than_anybody_reads() {
    let fake = Fake::new(vec![vec![
        Step::Read,
        send(HEAD),
        Step::Flood(b"data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n\n".to_vec()),
    ]])
    .await;
    let client = client_of(&fake);
    let mut response = post(&client, Framing::Sse).await.unwrap();
    for _ in 0..100 {
        let frames = response.next(8, 1 << 20).await.unwrap().unwrap();
        assert!((1..=8).contains(&frames.len()));
    }
    let stopped = Instant::now();
    drop(response);
    let gone = fake.gone().await;
    assert!(gone - stopped < PROMPT, "{:?}", gone - stopped);
}
