//! Whoever goes away is not worked for: streaming or not, running or queued, within a second.
#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

mod support;

use gristmill_api::{ApiConfig, ServeConfig};
use gristmill_router::Limits;
use support::{Beat, CHATS, Double, Play, ask, ask_at, bench, bench_with, finish, text, within};
use tokio::io::AsyncReadExt;

#[tokio::test]
async fn a_client_that_closes_a_running_stream_stops_it() {
    let play = Play::Beats(vec![Beat::Events(vec![text("Hel")]), Beat::Hang]);
    let bench = bench(Double::playing(play)).await;
    let server = bench.listen(ServeConfig::default()).await;
    for path in CHATS {
        let mut client = server.begin(path, &ask_at(path, true)).await;
        within(client.read_exact(&mut [0; 15])).await.unwrap();
        assert_eq!(bench.double.alive(), 1);
        drop(client);
        bench.double.left(0).await;
    }
}

#[tokio::test]
async fn a_client_that_closes_while_it_waits_for_the_first_word_stops_it() {
    for stream in [true, false] {
        let bench = bench(Double::playing(Play::Beats(vec![Beat::Hang]))).await;
        let server = bench.listen(ServeConfig::default()).await;
        for (place, path) in CHATS.iter().enumerate() {
            let client = server.begin(path, &ask_at(path, stream)).await;
            bench.double.begun(place + 1).await;
            assert_eq!(bench.double.alive(), 1);
            drop(client);
            bench.double.left(0).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_resets_an_endless_stream_stops_it() {
    let play = Play::Beats(vec![Beat::Endless("x".repeat(4096))]);
    let bench = bench(Double::playing(play)).await;
    let server = bench.listen(ServeConfig::default()).await;
    let mut client = server.begin("/api/chat", &ask(true)).await;
    within(client.read_exact(&mut [0; 100_000])).await.unwrap();
    drop(client);
    bench.double.left(0).await;
}

#[tokio::test]
async fn a_queued_request_whose_client_is_gone_never_runs() {
    let double = Double::new(|request| {
        let gate =
            matches!(&request.prompt, gristmill_core::request::Prompt::Text(text) if text == "A");
        Play::Beats(if gate {
            vec![Beat::Hang]
        } else {
            vec![Beat::Events(vec![text("ok"), finish("stop")])]
        })
    });
    let limits = Limits { active: 1, queued: 1, ..Limits::default() };
    let bench = bench_with(double, ApiConfig::default(), limits).await;
    let server = bench.listen(ServeConfig::default()).await;
    let ask = |prompt: &str| serde_json::json!({ "model": "tiny", "prompt": prompt });

    let a = server.begin("/v1/completions", &ask("A")).await;
    bench.double.begun(1).await;
    let waiting = async |count| {
        within(async {
            while bench.state.router.load_now().iter().map(|load| load.waiting).sum::<usize>()
                != count
            {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    let b = server.begin("/v1/completions", &ask("B")).await;
    waiting(1).await;
    // The queue is full now: the next is told to come back.
    let refused = server.call("/v1/completions", &ask("refused")).await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after: "), "{refused}");

    drop(b);
    waiting(0).await;
    let c = tokio::spawn({
        let address = server.address;
        async move {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let body = serde_json::json!({ "model": "tiny", "prompt": "C" });
            tokio::io::AsyncWriteExt::write_all(
                &mut stream,
                &support::request("/v1/completions", &body),
            )
            .await
            .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        }
    });
    waiting(1).await;
    drop(a);
    assert!(within(c).await.unwrap().contains("\"text\":\"ok\""));
    // A and C ran; B never did.
    bench.double.begun(2).await;
    assert_eq!(bench.double.requests.lock().unwrap().len(), 2);
    bench.double.left(0).await;
}

#[tokio::test]
async fn a_stopping_server_lets_answers_end_and_takes_no_new_ones() {
    let play = Play::Beats(vec![
        Beat::Events(vec![text("Hel")]),
        Beat::Events(vec![text("lo"), finish("stop")]),
    ]);
    let bench = bench(Double::playing(play)).await;
    let mut server = bench.listen(ServeConfig::default()).await;
    let mut client = server.begin("/api/chat", &ask(true)).await;
    within(client.read_exact(&mut [0; 15])).await.unwrap();
    server.stop.take().unwrap().send(()).unwrap();
    let mut rest = String::new();
    within(client.read_to_string(&mut rest)).await.unwrap();
    assert!(rest.contains("\"done\":true"));
    within(&mut server.task).await.unwrap();
    assert!(tokio::net::TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn what_still_runs_after_the_drain_time_is_cut_off() {
    let bench = bench(Double::playing(Play::Beats(vec![Beat::Hang]))).await;
    let config = ServeConfig {
        drain_timeout: std::time::Duration::from_millis(50),
        ..ServeConfig::default()
    };
    let mut server = bench.listen(config).await;
    let _client = server.begin("/api/chat", &ask(true)).await;
    bench.double.begun(1).await;
    server.stop.take().unwrap().send(()).unwrap();
    within(&mut server.task).await.unwrap();
    bench.double.left(0).await;
}
