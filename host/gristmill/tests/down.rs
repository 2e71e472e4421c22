//! A server that is down, at the start or later, is missing; nothing else is.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    thread,
};

use support::{Home, Serving, exchange};

/// The whole answer, head and body.
fn get(serving: &Serving, path: &str) -> String {
    let answer = exchange(&serving.address, "GET", path, "", "");
    answer.head + "\r\n\r\n" + &answer.body
}

/// A server with one model that says which key it was shown.
fn server(model: &'static str) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head).unwrap() == 0 {
                    break;
                }
            }
            let _ = tell.send(head);
            let body =
                format!(r#"{{"object":"list","data":[{{"id":"{model}","object":"model"}}]}}"#);
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    (url, told)
}

#[test]
fn the_others_serve_and_what_is_missing_is_said() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (url, told) = server("here-model");
    let flags = [
        &format!("gone=vllm,http://{gone}/secret-path"),
        &format!("here=openai-compatible,{url},key-env=SERVER_KEY"),
    ];
    let home = Home::with_components().set("SERVER_KEY", "sk-told-to-the-server-alone");
    let servers = ["--backend", flags[0], "--backend", flags[1]];
    let serving = home.serve(&[&["--plugins-backend", ""], &servers[..]].concat());

    for path in ["/api/tags", "/v1/models"] {
        let answer = get(&serving, path);
        assert!(
            answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"),
            "{answer}"
        );
        assert!(answer.contains("here-model"), "{answer}");
        assert!(answer.to_lowercase().contains("x-gristmill-unreachable: gone"), "{answer}");
    }
    let seen = told.recv().unwrap().to_lowercase();
    assert!(seen.contains("authorization: bearer sk-told-to-the-server-alone"), "{seen}");

    let ready = get(&serving, "/readyz");
    assert!(ready.contains(" 503 ") && ready.contains("gone"), "{ready}");
    assert!(get(&serving, "/healthz").contains(" 200 "));
    for secret in [gone.port().to_string().as_str(), "secret-path", "sk-told"] {
        assert!(!ready.contains(secret), "{secret}: {ready}");
    }
}
