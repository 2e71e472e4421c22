//! `/v1/rerank` and its other names: the best document first, and nothing that was not ranked.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod support;

use std::sync::Arc;

use gristmill_core::{
    Code, Error,
    capability::{Claim, Reason, Support},
    request::Ranked,
};
use serde_json::{Value, json};
use support::{Double, bench, hello};

fn ranking(ranks: &[(u32, f32)]) -> Arc<Double> {
    let double = Double::playing(hello());
    *double.ranks.lock().unwrap() =
        Ok(ranks.iter().map(|&(index, score)| Ranked { index, score }).collect());
    double
}

fn ask() -> Value {
    json!({ "model": "tiny", "query": "q", "documents": ["a", { "text": "b" }, "c"] })
}

#[tokio::test]
async fn results_come_best_first_under_every_name() {
    let bench = bench(ranking(&[(0, 0.25), (1, 0.5), (2, 0.75)])).await;
    for path in ["/v1/rerank", "/v1/reranking", "/rerank", "/reranking"] {
        let reply = bench.post(path, ask()).await;
        let mut value = reply.json();
        assert!(value["id"].take().as_str().unwrap().starts_with("rerank-"));
        assert_eq!(
            value,
            json!({ "id": null, "object": "list", "model": "tiny", "results": [
                { "index": 2, "relevance_score": 0.75 },
                { "index": 1, "relevance_score": 0.5 },
                { "index": 0, "relevance_score": 0.25 }] })
        );
        assert_eq!(reply.header("x-gristmill-model"), "tiny");
    }
    let mut body = ask();
    body["top_n"] = json!(2);
    body["return_documents"] = json!(true);
    let value = bench.post("/v1/rerank", body).await.json();
    assert_eq!(
        value["results"],
        json!([
            { "index": 2, "relevance_score": 0.75, "document": { "text": "c" } },
            { "index": 1, "relevance_score": 0.5, "document": { "text": "b" } }])
    );
    let sent = bench.double.reranks.lock().unwrap().last().unwrap().clone();
    assert_eq!((sent.query.as_str(), sent.top_n), ("q", Some(2)));
    assert_eq!(sent.documents, ["a", "b", "c"]);
}

#[tokio::test]
async fn ranks_that_are_not_what_was_asked_are_the_back_ends_failure() {
    for ranks in [&[(0, 0.1)][..], &[(0, 0.1), (0, 0.2), (1, 0.3)], &[(0, 0.1), (1, 0.2), (9, 0.3)]]
    {
        let reply = bench(ranking(ranks)).await.post("/v1/rerank", ask()).await;
        assert_eq!(reply.status, 502);
        assert_eq!(reply.json()["error"]["code"], "upstream_error");
    }
}

#[tokio::test]
async fn who_cannot_rank_says_so() {
    // Too long is the client's to know, whatever the back-end is.
    let double = Double::playing(hello());
    *double.ranks.lock().unwrap() =
        Err(Error::new(Code::ContextOverflow, "document 1 is too long"));
    let reply = bench(double).await.post("/rerank", ask()).await;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");

    let double = Double::playing(hello());
    double.claims.lock().unwrap().push(Claim {
        name: "reranking".into(),
        support: Support::Unsupported(Reason { code: "x".into(), detail: "no head".into() }),
        value: None,
    });
    let bench = bench(double).await;
    let reply = bench.post("/v1/rerank", ask()).await;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.json()["error"]["message"], "\"tiny\" does not support reranking: no head");
    assert!(bench.double.reranks.lock().unwrap().is_empty());
}
