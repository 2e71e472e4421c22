//! Bounds: body size and body time, header time, time in the queue, memory behind readers that do not read.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests may fail loudly"
)]

mod support;

use std::{sync::atomic::Ordering, time::Duration};

use axum::http::{Method, Request};
use gristmill_api::{ApiConfig, ServeConfig};
use gristmill_router::Limits;
use serde_json::{Value, json};
use support::{Beat, CHATS, Double, Play, ask, ask_at, bench, bench_with, hello, within};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
};

fn small() -> ApiConfig {
    ApiConfig {
        body_limit: 1 << 20,
        body_timeout: Duration::from_millis(200),
        ..ApiConfig::default()
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_a_413_in_the_dialect() {
    let bench = bench_with(Double::playing(hello()), small(), Limits::default()).await;
    for path in CHATS.into_iter().chain(["/tokenize", "/v1/rerank"]) {
        let reply = bench.raw(Method::POST, path, vec![b' '; (1 << 20) + 1]).await;
        assert_eq!(reply.status, 413, "{path}");
        assert!(reply.text().contains("limit of 1048576 bytes"), "{}", reply.text());
        let at_limit = bench.raw(Method::POST, path, vec![b' '; 1 << 20]).await;
        assert_eq!(at_limit.status, 400, "{path}");
    }
}

#[tokio::test]
async fn a_client_that_sends_everything_first_still_reads_its_413() {
    let bench = bench(Double::playing(hello())).await;
    let server = bench.listen(ServeConfig::default()).await;
    let size = 200_usize << 20;
    let mut client = server.connect().await;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size}\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let piece = vec![b' '; 1 << 20];
    for _ in 0..200 {
        within(client.write_all(&piece)).await.unwrap();
    }
    let mut answer = vec![0; 4096];
    let count = within(client.read(&mut answer)).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..count]);
    assert!(
        answer.starts_with("HTTP/1.1 413") && answer.contains("invalid_request_error"),
        "{answer}"
    );
}

#[tokio::test]
async fn pictures_of_several_mebibytes_are_no_problem() {
    let bench = bench(Double::playing(hello())).await;
    let picture = format!("iVBORw0KGgo{}", "A".repeat(3 << 20));
    let body = json!({ "model": "tiny", "stream": false,
        "messages": [{ "role": "user", "content": "?", "images": [picture] }] });
    assert_eq!(bench.post("/api/chat", body).await.status, 200);
}

#[tokio::test]
async fn pictures_of_several_mebibytes_pass_and_more_is_refused_in_json() {
    let bench = bench(Double::playing(hello())).await;
    let picture = format!("iVBORw0KGgo{}", "A".repeat(3 << 20));
    let url = format!("data:image/png;base64,{picture}");
    let chat = |part: Value| json!([{ "role": "user", "content": [part] }]);
    for (path, field, value) in [
        (
            "/v1/chat/completions",
            "messages",
            chat(json!({ "type": "image_url", "image_url": { "url": url } })),
        ),
        ("/v1/responses", "input", chat(json!({ "type": "input_image", "image_url": url }))),
        (
            "/v1/messages",
            "messages",
            chat(json!({ "type": "image", "source": { "type": "base64",
                "media_type": "image/png", "data": picture } })),
        ),
    ] {
        let mut body = ask_at(path, false);
        body[field] = value;
        let reply = bench.post(path, body).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        let over = bench.raw(Method::POST, path, vec![b' '; (128 << 20) + 1]).await;
        assert_eq!(over.status, 413, "{path}");
        assert!(over.json()["error"].is_object(), "{path}");
    }
}

#[tokio::test]
async fn bodies_in_flight_share_a_budget() {
    let config = ApiConfig { body_budget: 64 << 10, ..small() };
    let bench = bench_with(Double::playing(hello()), config, Limits::default()).await;
    let over = bench.raw(Method::POST, "/api/chat", vec![b' '; 65 << 10]).await;
    assert_eq!(over.status, 503);
    assert_eq!(over.header("retry-after"), "1");
    // What was held is free again.
    assert_eq!(bench.post("/api/chat", ask(false)).await.status, 200);
}

#[tokio::test]
async fn a_body_that_stops_coming_is_a_408() {
    let bench = bench_with(Double::playing(hello()), small(), Limits::default()).await;
    let server = bench.listen(ServeConfig::default()).await;
    let mut client = server.connect().await;
    client
        .write_all(b"POST /api/chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        .await
        .unwrap();
    let mut answer = String::new();
    within(client.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("{\"error\":"), "{answer}");
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let bench = bench(Double::playing(hello())).await;
    let config =
        ServeConfig { header_timeout: Duration::from_millis(200), ..ServeConfig::default() };
    let server = bench.listen(config).await;
    let mut client = server.connect().await;
    client.write_all(b"POST /api/chat HTTP/1.1\r\nhost: loc").await.unwrap();
    let mut answer = Vec::new();
    within(client.read_to_end(&mut answer)).await.unwrap();
    // Others are served meanwhile and afterwards.
    assert!(server.call("/api/chat", &ask(false)).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn compressed_bodies_are_refused() {
    let bench = bench(Double::playing(hello())).await;
    let request =
        Request::post("/api/chat").header("content-encoding", "gzip").body("x".into()).unwrap();
    assert_eq!(bench.send(request).await.status, 415);
}

fn endless() -> Play {
    Play::Beats(vec![Beat::Endless("x".repeat(4096))])
}

/// The frames of a body in chunks of HTTP/1.1, as far as they have come.
fn unchunked(bytes: &[u8]) -> Vec<u8> {
    let at = |bytes: &[u8], end: &[u8]| bytes.windows(end.len()).position(|part| part == end);
    let head = at(bytes, b"\r\n\r\n").unwrap() + 4;
    let mut rest = &bytes[head..];
    let mut body = Vec::new();
    while let Some(line) = at(rest, b"\r\n") {
        let size = std::str::from_utf8(&rest[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let Some(chunk) = rest.get(line + 2..line + 2 + size) else { break };
        body.extend_from_slice(chunk);
        rest = rest.get(line + 4 + size..).unwrap_or_default();
    }
    body
}

#[tokio::test]
async fn no_character_is_ever_cut_for_a_slow_reader() {
    let flood = "😀漢ü".repeat(500);
    let bench = bench(Double::playing(Play::Beats(vec![Beat::Endless(flood)]))).await;
    let server = bench.listen(ServeConfig::default()).await;
    for path in CHATS {
        let mut client = server.begin(path, &ask_at(path, true)).await;
        let mut bytes = Vec::new();
        // An odd size, so that reads end in the middle of characters.
        let mut piece = [0; 4099];
        while bytes.len() < 1 << 20 {
            let count = within(client.read(&mut piece)).await.unwrap();
            bytes.extend_from_slice(&piece[..count]);
        }
        drop(client);
        let body = unchunked(&bytes);
        let end = if path == "/api/chat" { "\n" } else { "\n\n" };
        let text = String::from_utf8_lossy(&body).into_owned();
        let (whole, _) = text.rsplit_once(end).unwrap();
        assert!(!whole.contains('\u{fffd}'), "{path}");
        for frame in whole.split(end) {
            let data = frame.rsplit_once("data: ").map_or(frame, |(_, data)| data);
            serde_json::from_str::<Value>(data).unwrap_or_else(|_| panic!("{path}: {frame}"));
        }
    }
    bench.double.left(0).await;
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_given_up() {
    let bench = bench(Double::playing(endless())).await;
    let config =
        ServeConfig { stall_timeout: Duration::from_millis(200), ..ServeConfig::default() };
    let server = bench.listen(config).await;
    let client = server.begin("/api/chat", &ask(true)).await;
    bench.double.begun(1).await;
    within(async {
        while bench.double.alive() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(client);
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_readers_that_do_not_read_cost_little_and_hurt_nobody() {
    const READERS: usize = 1000;
    let double = Double::new(|request| match request.stop.first().map(String::as_str) {
        Some("never") => endless(),
        _ => hello(),
    });
    let limits = Limits { active: READERS + 10, queued: 10, ..Limits::default() };
    let bench = bench_with(double, ApiConfig::default(), limits).await;
    let server = bench.listen(ServeConfig::default()).await;
    let before = resident();
    let mut body = ask(true);
    body["options"] = json!({ "stop": ["never"] });
    let mut readers = Vec::with_capacity(READERS);
    for _ in 0..READERS {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(server.address).await.unwrap();
        stream.write_all(&support::request("/api/chat", &body)).await.unwrap();
        readers.push(stream);
    }
    bench.double.begun(READERS).await;
    // Others are served while the thousand stall.
    for _ in 0..100 {
        assert!(server.call("/api/chat", &ask(false)).await.starts_with("HTTP/1.1 200"));
    }
    // A slow reader gets what it reads: one byte at a time, many times.
    for _ in 0..200 {
        within(readers[0].read_exact(&mut [0])).await.unwrap();
    }
    let pulled = bench.double.pulled.lock().unwrap().clone();
    let stalled = pulled.iter().map(|count| count.load(Ordering::Relaxed)).max().unwrap();
    let grown = resident().saturating_sub(before);
    println!("most pulled for one: {} KiB; memory grown by {} MiB", stalled >> 10, grown >> 20);
    // Socket buffers and one batch, not the answer.
    assert!(stalled < 8 << 20, "{stalled} bytes were pulled for a reader that does not read");
    assert!(grown < 300 << 20, "memory grew by {grown} bytes");
    drop(readers);
    within(async {
        while bench.double.alive() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_that_waited_too_long_has_its_real_status_streaming_or_not() {
    let double = Double::playing(Play::Beats(vec![Beat::Hang]));
    let limits = Limits { active: 1, queued: 1, wait: Duration::from_millis(20) };
    let bench = bench_with(double, ApiConfig::default(), limits).await;
    let server = bench.listen(ServeConfig::default()).await;
    let _first = server.begin(CHATS[0], &ask_at(CHATS[0], true)).await;
    bench.double.begun(1).await;
    for path in CHATS {
        for stream in [true, false] {
            let refused = server.call(path, &ask_at(path, stream)).await;
            assert!(refused.starts_with("HTTP/1.1 503"), "{path}: {refused}");
            assert!(
                refused.contains("retry-after: ") && refused.contains("within 20ms"),
                "{refused}"
            );
        }
    }
    assert_eq!(bench.double.requests.lock().unwrap().len(), 1, "none of them ran");
}
