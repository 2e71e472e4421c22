//! Connections serve again when that is safe, and a dead one is replaced when nothing can happen twice.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::time::Duration;

use gristmill_core::Code;
use gristmill_sandbox::{Framing, Upstream as _};
use support::{Fake, Step, client_of, drain, post, repeating, request, send, texts};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const EVENTS: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                      9\r\ndata: a\n\n\r\nE\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

async fn get(client: &gristmill_upstream::Client) -> Vec<String> {
    let sent = client.send("primary", request("GET", "/v1/x", ""), Framing::Raw).await;
    texts(&drain(&mut *sent.unwrap()).await.0)
}

#[tokio::test]
async fn one_connection_serves_one_request_after_the_other() {
    let answer = [Step::Read, send(OK)];
    let fake = Fake::new(vec![answer.iter().cycle().take(20).cloned().collect()]).await;
    let client = client_of(&fake);
    for _ in 0..10 {
        assert_eq!(get(&client).await, ["ok"]);
        assert_eq!(client.open(), (0, 1));
    }
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn a_reader_that_stops_at_the_last_event_does_not_cost_the_connection() {
    let answer = [Step::Read, send(EVENTS)];
    let fake = Fake::new(vec![answer.iter().cycle().take(20).cloned().collect()]).await;
    let client = repeating(&fake);
    for _ in 0..5 {
        let mut response = post(&client, Framing::Sse).await.unwrap();
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| last != "[DONE]") {
            seen.extend(texts(&response.next(1, 1 << 20).await.unwrap().unwrap()));
        }
        assert_eq!(seen, ["a", "[DONE]"]);
        drop(response);
    }
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_died_waiting_is_replaced_for_what_is_safe_to_repeat() {
    // The first connection answers once, takes the next request and breaks.
    let dying = vec![Step::Read, send(OK), Step::Read, Step::Reset];
    let fresh = vec![Step::Read, send(OK)];
    let fake = Fake::new(vec![dying.clone(), fresh.clone()]).await;
    let client = client_of(&fake);
    assert_eq!(get(&client).await, ["ok"]);
    assert_eq!(get(&client).await, ["ok"], "GET came again on a new connection");
    assert_eq!(fake.connections(), 2);

    // What may not be repeated never meets a connection that waited.
    let fake = Fake::new(vec![dying.clone(), fresh.clone()]).await;
    let client = client_of(&fake);
    assert_eq!(get(&client).await, ["ok"]);
    let mut answer = post(&client, Framing::Raw).await.unwrap();
    assert_eq!(texts(&drain(&mut *answer).await.0), ["ok"]);
    assert_eq!((fake.requests().len(), fake.connections()), (2, 2), "POST was sent once");

    // What may be repeated does, and is sent once more.
    let fake = Fake::new(vec![dying, fresh]).await;
    let client = repeating(&fake);
    assert_eq!(get(&client).await, ["ok"]);
    let mut answer = post(&client, Framing::Raw).await.unwrap();
    assert_eq!(texts(&drain(&mut *answer).await.0), ["ok"]);
    assert_eq!((fake.requests().len(), fake.connections()), (3, 2), "POST came again");

    // Once only, and not where an answer has begun.
    let half = send("HTTP/1.1 200 OK\r\nconte");
    for second in [vec![Step::Read, Step::Reset], vec![Step::Read, half, Step::Close]] {
        let first = vec![Step::Read, send(OK), Step::Read, Step::Reset];
        let fake = Fake::new(vec![first, second]).await;
        let client = repeating(&fake);
        assert_eq!(get(&client).await, ["ok"]);
        let error = post(&client, Framing::Raw).await.err().unwrap();
        assert_eq!(error.code, Code::UpstreamError, "{error}");
        assert_eq!(fake.requests().len(), 3);
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_waiting_is_not_used() {
    let once = vec![Step::Read, send(OK), Step::Close];
    let fake = Fake::new(vec![once]).await;
    let client = client_of(&fake);
    for number in 1..=3 {
        let response = post(&client, Framing::Raw).await.unwrap();
        drop(response);
        // The server has closed it before it is looked at again.
        fake.gone().await;
        assert_eq!(fake.connections(), number);
    }
}

#[tokio::test]
async fn an_answer_after_which_the_server_closes_is_not_kept() {
    let fake = Fake::new(vec![vec![
        Step::Read,
        send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"),
        Step::Hang,
    ]])
    .await;
    let client = client_of(&fake);
    assert_eq!(get(&client).await, ["ok"]);
    assert_eq!(client.open(), (0, 0));
    fake.gone().await;
}

#[tokio::test(start_paused = true)]
async fn connections_that_wait_too_long_are_closed() {
    let fake = Fake::new(vec![vec![Step::Read, send(OK), Step::Hang]]).await;
    let client = client_of(&fake);
    assert_eq!(get(&client).await, ["ok"]);
    assert_eq!(client.open(), (0, 1));
    // Paused time jumps to the next timer as soon as nothing else is to be done.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(client.open(), (0, 0));
}
