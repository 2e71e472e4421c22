//! What is large passes, and what is too large is refused by name: pictures of a request, answers that
//! are read whole, many answers at the same time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail loudly")]

use std::fmt::Write as _;

use gristmill_core::{
    event::Event,
    request::{EmbedRequest, Media, Message, Part, Prompt, Request, Role},
};
use gristmill_e2e::{Bridge, request};
use gristmill_fakes::{Fake, Latch, Step, Transcript};
use gristmill_upstream::Times;

fn with_picture(bytes: usize) -> Request {
    let mut message = Message::text(Role::User, "what is this?");
    message.content.push(Part::Image(Media { mime: "image/png".into(), data: vec![7; bytes] }));
    Request { prompt: Prompt::Chat(vec![message]), ..request("chat") }
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_mebibytes_of_pictures_pass_and_more_are_refused() {
    for kind in ["vllm", "ollama"] {
        let fake = Fake::of(Transcript::named(kind, "chat-text").steps()).await;
        let bridge = Bridge::new(kind, &fake.url(), Times::default());
        let (events, error) = bridge.play(with_picture(16 << 20), 16).await;
        assert_eq!(error, None, "{kind}");
        assert!(matches!(events.last(), Some(Event::Finish(_))), "{kind}");
        let sent = fake.received().pop().unwrap().body.len();
        assert!(sent > (16 << 20) / 3 * 4, "{kind}: {sent} bytes");
        let (_, error) = bridge.play(with_picture((16 << 20) + 1), 16).await;
        assert_eq!(error.unwrap().code.as_str(), "invalid-request", "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_megabytes_is_read_and_an_endless_one_is_not() {
    let vector = vec!["0.123456"; 1000].join(",");
    let mut body = "{\"data\":[".to_owned();
    for index in 0..500 {
        let comma = if index == 0 { "" } else { "," };
        write!(body, "{comma}{{\"index\":{index},\"embedding\":[{vector}]}}").unwrap();
    }
    body += "]}";
    assert!(body.len() > 4 << 20);
    let embed = EmbedRequest {
        model: "m".into(),
        inputs: (0..500).map(|n| n.to_string()).collect(),
        dimensions: None,
        truncate: false,
        extras: vec![],
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let wire = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let fake = Fake::of(vec![Step::Send(wire.into_bytes())]).await;
    let bridge = Bridge::new("vllm", &fake.url(), Times::default());
    let vectors = bridge.backend.embed(embed.clone()).await.unwrap();
    assert_eq!((vectors.rows, vectors.dim), (500, 1000));

    let start = format!("{head}connection: close\r\n\r\n{{");
    let endless = vec![Step::Send(start.into_bytes()), Step::Endless(vec![b' '; 1 << 16])];
    let fake = Fake::of(endless).await;
    let bridge = Bridge::new("vllm", &fake.url(), Times::default());
    let error = bridge.backend.embed(embed).await.unwrap_err();
    assert_eq!(error.code.as_str(), "upstream-error", "{error:?}");
    fake.gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_answers_run_beside_each_other_and_models_are_listed_meanwhile() {
    let gate = Latch::default();
    let held = gate.clone();
    let transcript = Transcript::named("vllm", "chat-text");
    let fake = Fake::start(move |request| {
        if request.target == "GET /v1/models" {
            let body = r#"{"data":[{"id":"m"}]}"#;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
            return vec![Step::Send(format!("{head}: {}\r\n\r\n{body}", body.len()).into_bytes())];
        }
        vec![Step::Wait(held.clone()), Step::Send(transcript.wire())]
    })
    .await;
    let bridge = Bridge::new("vllm", &fake.url(), Times::default());
    let running: Vec<_> = (0..100)
        .map(|_| {
            let backend = std::sync::Arc::clone(&bridge.backend);
            tokio::spawn(async move {
                let mut answer = backend.generate(request("chat")).await?;
                let mut events = Vec::new();
                while let Some(more) = answer.next(16).await? {
                    events.extend(more);
                }
                Ok::<_, gristmill_core::Error>(events)
            })
        })
        .collect();
    for _ in 0..100 {
        gate.reached().await;
    }
    assert_eq!(bridge.backend.models().await.unwrap().len(), 1);
    for _ in 0..100 {
        gate.open();
    }
    for answer in running {
        let events = answer.await.unwrap().unwrap();
        assert!(matches!(events.last(), Some(Event::Finish(_))));
    }
}
