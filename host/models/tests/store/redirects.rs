//! Refusals of a hub have names, redirects follow the rules, and the token stays at home.

use std::{fs, sync::Arc};

use gristmill_core::error::Code;
use gristmill_models::store::{Silent, Sources};

use crate::{
    fixture::Model,
    hub::{COMMIT, Reply, Repository, Served, Server},
    support::Room,
};

const TOKEN: &str = "hf_secret";

fn repo() -> Repository {
    Repository::new(vec![Served::new("m.gguf", Model::new(1).bytes())])
}

fn with_token(hub: &Server) -> Sources {
    let mut sources = hub.sources();
    sources.token = Some(TOKEN.to_owned());
    sources
}

#[test]
fn the_token_goes_to_the_hub_and_to_no_other_host() {
    let bytes = Model::new(1).bytes();
    let body = bytes.clone();
    let elsewhere =
        Arc::new(Server::start(move |_| Reply::new(200, body.clone()).header("ETag", "\"cdn\"")));
    let target = elsewhere.url();
    let repo = repo();
    let hub = Server::start(move |request| {
        let reply = repo.reply(request);
        if request.path.starts_with("/api/") {
            return reply;
        }
        // As the hub does it: the digest and the size with the redirect, one relative, one away.
        let to = if request.path.ends_with("?moved") {
            format!("{target}/blob?signature=1")
        } else {
            format!("/org/repo/resolve/{COMMIT}/m.gguf?moved")
        };
        Reply { status: 302, body: Vec::new(), ..repo_head(reply) }.header("Location", to)
    });
    let room = Room::with(with_token(&hub));
    let found = room.store.pull("hf:org/repo", None, &mut Silent).unwrap();
    assert_eq!(fs::read(&found.paths[0]).unwrap(), bytes);
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(hub.requests().len(), 3);
    for request in hub.requests() {
        assert_eq!(request.header("authorization"), Some(bearer.as_str()), "{}", request.path);
    }
    assert_eq!(elsewhere.requests().len(), 1);
    assert_eq!(elsewhere.requests()[0].header("authorization"), None);
    assert!(!format!("{:?}", with_token(&hub)).contains(TOKEN));
    for (name, bytes) in room.tree() {
        assert!(!String::from_utf8_lossy(&bytes).contains(TOKEN), "{name}");
    }
}

fn repo_head(reply: Reply) -> Reply {
    let linked = |(name, _): &(String, String)| name.starts_with("X-Linked");
    Reply { headers: reply.headers.into_iter().filter(linked).collect(), ..reply }
}

#[test]
fn a_digest_counts_only_from_the_hub_itself() {
    // Where the redirect leads claims a digest of its own; it is not asked for one.
    let bytes = Model::new(1).bytes();
    let elsewhere = Server::start(move |_| {
        Reply::new(200, bytes.clone()).header("X-Linked-ETag", format!("\"{}\"", "0".repeat(64)))
    });
    let (target, repo) = (elsewhere.url(), repo());
    let hub = Server::start(move |request| {
        if request.path.starts_with("/api/") {
            return repo.reply(request);
        }
        Reply::new(302, "").header("Location", format!("{target}/x"))
    });
    Room::with(hub.sources()).store.pull("hf:org/repo", None, &mut Silent).unwrap();
}

#[test]
fn redirects_have_an_end_and_a_rule() {
    for (location, expected) in [
        ("/again", "more than 10 redirects"),
        ("http://192.0.2.1/x", "only https is followed"),
        ("ftp://127.0.0.1/x", "only https is followed"),
        ("http://user:pass@127.0.0.1/x", "credentials"),
        ("http://", "no URL"),
    ] {
        let repo = repo();
        let hub = Server::start(move |request| {
            if request.path.starts_with("/api/") {
                return repo.reply(request);
            }
            Reply::new(302, "").header("Location", location)
        });
        let room = Room::with(hub.sources());
        let error = room.store.pull("hf:org/repo", None, &mut Silent).unwrap_err();
        assert_eq!(error.code(), Code::UpstreamError, "{error}");
        assert!(error.to_string().contains(expected), "{location}: {error}");
        assert!(hub.downloads().len() <= 11);
        assert!(room.tree().is_empty());
    }
    let hub = Server::start(|_| Reply::new(302, ""));
    let error = Room::with(hub.sources()).store.pull("hf:org/repo", None, &mut Silent).unwrap_err();
    assert!(error.to_string().contains("without a location"), "{error}");
}

#[test]
fn refusals_are_told_apart() {
    for (status, code, expected) in [
        (401, Code::UpstreamError, "set HF_TOKEN"),
        (403, Code::UpstreamError, "accept its terms"),
        (404, Code::UpstreamError, "no such repository"),
        (418, Code::UpstreamError, "418, expected 200"),
        (429, Code::UpstreamUnavailable, "it answered 429"),
        (503, Code::UpstreamUnavailable, "it answered 503"),
    ] {
        // For the list of files, and for the file.
        for listed in [false, true] {
            let repo = repo();
            let hub = Server::start(move |request| {
                if listed && request.path.starts_with("/api/") {
                    return repo.reply(request);
                }
                Reply::new(status, "no")
            });
            let room = Room::with(hub.sources());
            let error = room.store.pull("hf:org/repo", None, &mut Silent).unwrap_err();
            assert_eq!(error.code(), code, "{status}: {error}");
            let text = error.to_string();
            assert!(text.contains(expected) && text.contains(&hub.url()), "{status}: {text}");
            assert!(room.tree().is_empty());
        }
    }
    let gone = repo().serve();
    let sources = gone.sources();
    drop(gone);
    let error = Room::with(sources).store.pull("hf:org/repo", None, &mut Silent).unwrap_err();
    assert_eq!(error.code(), Code::UpstreamUnavailable, "{error}");
}

#[test]
fn a_list_that_is_none_is_refused() {
    let file = r#""siblings":[{"rfilename":"m.gguf"}]"#;
    for (body, expected) in [
        ("<html>".to_owned(), "something else than JSON"),
        ("[]".to_owned(), "something else than JSON"),
        (format!("{{{file}}}"), "no commit"),
        (format!(r#"{{"sha":"../../x",{file}}}"#), "no commit"),
        (format!(r#"{{"sha":"{COMMIT}"}}"#), "has no GGUF file"),
        (
            format!(
                r#"{{"sha":"{COMMIT}","siblings":[{{"rfilename":"a.gguf"}},{{"rfilename":"b.gguf"}}]}}"#
            ),
            "name one of a.gguf, b.gguf",
        ),
        (
            format!(r#"{{"sha":"{COMMIT}","siblings":[{{"rfilename":"a-00001-of-99999.gguf"}}]}}"#),
            "99999 parts",
        ),
        ("x".repeat(17 << 20), "no list of files"),
    ] {
        let hub = Server::start(move |_| Reply::new(200, body.clone()));
        let room = Room::with(hub.sources());
        let error = room.store.pull("hf:org/repo", None, &mut Silent).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(hub.downloads().is_empty());
    }
}

#[test]
fn pulls_never_read_files_of_this_machine() {
    let room = Room::new();
    let path = room.model("a.gguf", 1);
    for source in [path.as_str(), &format!("file:{path}"), "../a.gguf", "a.gguf", "unknown-model"] {
        let error = room.store.pull(source, Some("m"), &mut Silent).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest, "{source}: {error}");
    }
    let text = room.store.pull("unknown-model", None, &mut Silent).unwrap_err().to_string();
    assert!(text.contains("smollm2") && text.contains("hf:OWNER/REPO"), "{text}");
}
