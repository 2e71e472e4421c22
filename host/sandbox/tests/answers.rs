//! What a back-end answers is checked before anybody sees it, and its errors are cut to size.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::{answer, hostile, request, sandbox, text};
use gristmill_core::{
    Code,
    event::Event,
    request::{EmbedRequest, RerankRequest},
};
use gristmill_policies::Limits;
use gristmill_sandbox::Services;

#[tokio::test]
async fn an_answer_out_of_order_is_a_contract_violation() {
    let sandbox = sandbox();
    let backend = hostile(&sandbox, Limits::default(), Services::default());
    for prompt in [
        "empty",
        "too-many",
        "no-finish",
        "after-finish",
        "two-finish",
        "text-after-usage",
        "two-usage",
        "tool-unknown",
        "tool-twice",
        "tool-open",
        "nan",
        "forge",
    ] {
        let error = answer(&*backend, prompt).await.expect_err(prompt);
        assert_eq!(error.code, Code::PluginFault, "{prompt}: {error}");
        assert_eq!(error.detail("fault"), Some("contract-violation"), "{prompt}: {error}");
    }
}

#[tokio::test]
async fn an_answer_in_order_passes_unchanged() {
    let sandbox = sandbox();
    let backend = hostile(&sandbox, Limits::default(), Services::default());
    let events = answer(&*backend, "tools").await.unwrap();
    let words: Vec<_> = events
        .iter()
        .map(|event| match event {
            Event::ToolStart(start) => format!("start {}", start.index),
            Event::ToolArguments(index, json) => format!("arguments {index} {json}"),
            Event::ToolEnd(index) => format!("end {index}"),
            Event::Usage(usage) => format!("usage {}", usage.completion),
            Event::Finish(finish) => format!("finish {}", finish.reason),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        words,
        ["start 0", "arguments 0 {}", "start 1", "end 1", "end 0", "usage 2", "finish stop"]
    );
    // What a guest would say after its finish is never asked for.
    let events = answer(&*backend, "after-finish-later").await.unwrap();
    assert_eq!(text(&events), "done");
}

#[tokio::test]
async fn errors_are_the_guests_own_and_of_bounded_length() {
    let sandbox = sandbox();
    let limits = Limits { host_call_bytes: 32 << 20, ..Limits::default() };
    let backend = hostile(&sandbox, limits, Services::default());
    let error = answer(&*backend, "refuse").await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::NotFound, "no model of that name"));
    let error = answer(&*backend, "error").await.unwrap_err();
    assert_eq!(error.code.as_str(), "c".repeat(64));
    assert_eq!(error.message, "m".repeat(1024));
    assert_eq!(error.details.len(), 32);
    assert_eq!(error.details[31].1, "d".repeat(256));
    assert_eq!(error.retry_after_ms, Some(7));

    let mut generation = backend.generate(request("error-next")).await.unwrap();
    assert!(generation.next(8).await.unwrap().is_some());
    assert_eq!(generation.next(8).await.unwrap_err().code, Code::UpstreamError);
    assert_eq!(generation.next(8).await.unwrap_err().code, Code::Cancelled);
    assert_eq!(sandbox.strikes(backend.digest()), 0, "an error is no fault");
    assert!(generation.next(0).await.is_err());
}

#[tokio::test]
async fn vectors_and_ranks_are_what_was_asked_for() {
    let sandbox = sandbox();
    let backend = hostile(&sandbox, Limits::default(), Services::default());
    let embed = |model: &str| EmbedRequest {
        model: model.into(),
        inputs: vec!["a".into(), "b".into()],
        dimensions: None,
        truncate: false,
        extras: Vec::new(),
    };
    let rerank = |model: &str| RerankRequest {
        model: model.into(),
        query: "q".into(),
        documents: vec!["a".into(), "b".into()],
        top_n: None,
        extras: Vec::new(),
    };
    assert_eq!(backend.embed(embed("true")).await.unwrap().data, [0.5; 4]);
    assert_eq!(backend.rerank(rerank("true")).await.unwrap().len(), 2);
    for error in [
        backend.embed(embed("lie")).await.unwrap_err(),
        backend.rerank(rerank("lie")).await.unwrap_err(),
    ] {
        assert_eq!(error.detail("fault"), Some("contract-violation"), "{error}");
    }
    assert_eq!(backend.tokenize("m", "ab", false).await, Ok(vec![97, 98]));
    assert_eq!(backend.detokenize("m", &[97, 98]).await, Ok(b"ab".to_vec()));
    assert_eq!(backend.describe().await.unwrap().kind, "hostile");
    assert_eq!(backend.models().await.unwrap()[0].context_native, Some(4096));
    assert!(backend.health().await.unwrap().ready);
}
