//! A server that fails, in every way one does: what the guest is told names the back-end and what was
//! seen, and comes in time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use gristmill_core::{Code, Error};
use gristmill_sandbox::{Framing, Upstream as _};
use gristmill_upstream::Times;
use support::{Fake, SECRET, Step, client, config, drain, post, request, send, texts};
use tokio::{net::TcpListener, sync::Notify};

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// A chunk of an event stream.
fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// Where it fails.
enum At {
    /// `send` fails.
    Head,
    /// The body fails behind these frames.
    Body(&'static [&'static str]),
}

struct Case {
    name: &'static str,
    script: Vec<Step>,
    at: At,
    code: Code,
    /// In the sentence or the details.
    says: &'static [&'static str],
}

/// Long enough for a busy machine not to hit one by accident, short enough to wait for.
const SHORT: Duration = Duration::from_millis(300);

fn cases() -> Vec<Case> {
    let head = send(HEAD);
    let first = send(chunk("data: a\n\n"));
    vec![
        Case {
            name: "closed before the request was read",
            script: vec![Step::Close],
            at: At::Head,
            code: Code::UpstreamError,
            says: &["ended before its answer began"],
        },
        Case {
            name: "closed before the answer",
            script: vec![Step::Read, Step::Close],
            at: At::Head,
            code: Code::UpstreamError,
            says: &["ended before its answer began"],
        },
        Case {
            name: "reset before the answer",
            script: vec![Step::Read, Step::Reset],
            at: At::Head,
            code: Code::UpstreamError,
            says: &["ended before its answer began"],
        },
        Case {
            name: "closed within the head",
            script: vec![Step::Read, send("HTTP/1.1 200 OK\r\ncontent-"), Step::Close],
            at: At::Head,
            code: Code::UpstreamError,
            says: &["in the head of its answer", "HTTP/1.1 200 OK"],
        },
        Case {
            name: "an endless head",
            script: vec![Step::Read, send("HTTP/1.1 200 OK\r\nx: "), Step::Flood(vec![b'x'; 4096])],
            at: At::Head,
            code: Code::UpstreamError,
            says: &["longer than 65536 bytes"],
        },
        Case {
            name: "endless headers",
            script: vec![
                Step::Read,
                send("HTTP/1.1 200 OK\r\n"),
                Step::Flood(b"a: b\r\n".to_vec()),
            ],
            at: At::Head,
            code: Code::UpstreamError,
            says: &["128 headers"],
        },
        Case {
            name: "silence before the head",
            script: vec![Step::Read, Step::Hang],
            at: At::Head,
            code: Code::UpstreamTimeout,
            says: &["within 300 ms", "waiting for its answer to begin"],
        },
        Case {
            name: "silence within the head",
            script: vec![Step::Read, send("HTTP/1.1 200 OK\r\n"), Step::Hang],
            at: At::Head,
            code: Code::UpstreamTimeout,
            says: &["waiting for its answer to begin"],
        },
        Case {
            name: "silence within the body",
            script: vec![Step::Read, head.clone(), first.clone(), Step::Hang],
            at: At::Body(&["a"]),
            code: Code::UpstreamTimeout,
            says: &["waiting for more of its answer", "\"200\""],
        },
        Case {
            name: "half a frame, then the end of the connection",
            script: vec![
                Step::Read,
                head.clone(),
                first.clone(),
                send(chunk("data: {\"half\": ")),
                Step::Close,
            ],
            at: At::Body(&["a"]),
            code: Code::UpstreamError,
            says: &["in the middle of its answer", "text/event-stream"],
        },
        Case {
            name: "the end of the connection in place of the last chunk",
            script: vec![Step::Read, head.clone(), first.clone(), Step::Close],
            at: At::Body(&["a"]),
            code: Code::UpstreamError,
            says: &["in the middle of its answer"],
        },
        Case {
            name: "an endless line",
            script: vec![
                Step::Read,
                send("HTTP/1.1 200 OK\r\n\r\ndata: "),
                Step::Flood(vec![b'x'; 4096]),
            ],
            at: At::Body(&[]),
            code: Code::UpstreamError,
            says: &["longer than 65536 bytes"],
        },
        Case {
            name: "an endless event",
            script: vec![
                Step::Read,
                send("HTTP/1.1 200 OK\r\n\r\n"),
                Step::Flood(b"data: xxxxxxxxxxxxxxxx\n".to_vec()),
            ],
            at: At::Body(&[]),
            code: Code::UpstreamError,
            says: &["longer than 65536 bytes"],
        },
        Case {
            name: "a web page",
            script: vec![
                Step::Read,
                send("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<html>\x07 sk-never-shown"),
                Step::Close,
            ],
            at: At::Body(&[]),
            code: Code::UpstreamError,
            says: &["web page", "200 OK", "\"200\""],
        },
    ]
}

fn times() -> Times {
    Times { connect: Duration::from_secs(5), head: SHORT, idle: SHORT, total: SHORT * 20 }
}

fn check(name: &str, error: &Error, code: &Code, says: &[&str]) {
    let shown = format!("{error} {:?}", error.details);
    assert_eq!(&error.code, code, "{name}: {shown}");
    for words in says {
        assert!(shown.contains(words), "{name}: {words:?} is not in {shown}");
    }
    assert!(error.message.starts_with("back-end fake: "), "{name}: {shown}");
    assert_eq!(error.detail("backend"), Some("fake"), "{name}");
    assert_eq!(error.detail("upstream"), Some("primary"), "{name}");
    assert!(!shown.contains(SECRET) && !shown.contains("127.0.0.1"), "{name}: {shown}");
    assert!(!shown.chars().any(char::is_control), "{name}: {shown}");
}

#[tokio::test]
async fn each_failure_says_who_and_what_was_seen() {
    for case in cases() {
        let name = case.name;
        let fake = Fake::new(vec![case.script]).await;
        let mut config = config(&fake.url());
        config.times = times();
        let client = client(config, "frame-bytes = 65536", &Arc::default());
        let begun = Instant::now();
        match (post(&client, Framing::Sse).await, case.at) {
            (Err(error), At::Head) => check(name, &error, &case.code, case.says),
            (Ok(mut response), At::Body(expected)) => {
                assert_eq!(response.status(), 200, "{name}");
                let (frames, error) = drain(&mut *response).await;
                assert_eq!(texts(&frames), expected, "{name}");
                let error = error.expect(name);
                check(name, &error, &case.code, case.says);
                // It stays failed.
                assert_eq!(response.next(1, 1).await.unwrap_err(), error, "{name}");
            }
            (Err(error), At::Body(_)) => panic!("{name}: {error}"),
            (Ok(_), At::Head) => panic!("{name}: answered"),
        }
        assert!(begun.elapsed() < SHORT * 20, "{name}: {:?}", begun.elapsed());
        assert_eq!(client.open(), (0, 0), "{name}: nothing is left open");
        assert_eq!(
            fake.connections(),
            1,
            "{name}: a request that may have arrived is not repeated"
        );
    }
}

#[tokio::test]
async fn reset_within_the_body() {
    let read = Arc::new(Notify::new());
    let script = vec![
        Step::Read,
        send(HEAD),
        send(chunk("data: a\n\n")),
        Step::Wait(Arc::clone(&read)),
        Step::Reset,
    ];
    let fake = Fake::new(vec![script]).await;
    let client = support::client_of(&fake);
    let mut response = post(&client, Framing::Sse).await.unwrap();
    assert_eq!(texts(&response.next(1, 1).await.unwrap().unwrap()), ["a"]);
    read.notify_one();
    let error = response.next(1, 1).await.unwrap_err();
    check("reset", &error, &Code::UpstreamError, &["in the middle of its answer"]);
    assert_eq!(client.open(), (0, 0));
}

#[tokio::test]
async fn nobody_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = client(config(&format!("http://{address}")), "", &Arc::default());
    let error = post(&client, Framing::Raw).await.err().unwrap();
    check("refused", &error, &Code::UpstreamUnavailable, &["refused the connection"]);
    assert!(!error.to_string().contains(&address.port().to_string()), "{error}");
}

#[tokio::test]
async fn no_connection_in_time() {
    // A queue of one that nobody empties: the system answers no further connection.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) =
        tokio::time::timeout(SHORT, tokio::net::TcpStream::connect(address)).await
    {
        waiting.push(stream.unwrap());
    }
    let mut config = config(&format!("http://{address}"));
    config.times.connect = SHORT;
    let client = client(config, "", &Arc::default());
    let error = post(&client, Framing::Raw).await.err().unwrap();
    check("connecting", &error, &Code::UpstreamTimeout, &["while connecting"]);
}

#[tokio::test]
async fn a_body_that_never_ends_ends() {
    let drip = send(chunk("data: a\n\n"));
    let mut script = vec![Step::Read, send(HEAD)];
    script.extend(vec![drip; 3]);
    script.push(Step::Hang);
    let fake = Fake::new(vec![script]).await;
    let mut config = config(&fake.url());
    config.times = Times { idle: Duration::from_secs(60), total: SHORT, ..times() };
    let client = client(config, "", &Arc::default());
    let mut response = post(&client, Framing::Sse).await.unwrap();
    let (frames, error) = drain(&mut *response).await;
    assert_eq!(texts(&frames), ["a", "a", "a"]);
    check("total", &error.unwrap(), &Code::UpstreamTimeout, &["while answering"]);
    fake.gone().await;
}

#[tokio::test]
async fn more_at_once_than_granted_is_told_to_wait() {
    let fake = Fake::new(vec![vec![Step::Read, send(HEAD), Step::Hang]]).await;
    let client = client(config(&fake.url()), "exchanges = 2", &Arc::default());
    let held = [post(&client, Framing::Sse).await, post(&client, Framing::Sse).await];
    let error = post(&client, Framing::Sse).await.err().unwrap();
    check("busy", &error, &Code::Busy, &["2 exchanges"]);
    assert!(error.retry_after_ms.is_some());
    drop(held);
    assert!(post(&client, Framing::Sse).await.is_ok());
}

#[tokio::test]
async fn a_name_without_a_server() {
    let fake = Fake::new(vec![vec![]]).await;
    let sent =
        support::client_of(&fake).send("other", request("GET", "/v1/x", ""), Framing::Raw).await;
    assert_eq!(sent.err().unwrap().code, Code::UpstreamUnavailable);
    assert_eq!(fake.connections(), 0);
}
