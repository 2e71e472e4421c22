//! Vectors in both dialects: order, length 1, dimensions, base64, tokens.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod support;

use base64::{Engine, engine::general_purpose::STANDARD};
use gristmill_core::request::Embeddings;
use serde_json::{Value, json};
use support::{Double, bench, hello};

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|value| value * value).sum::<f64>().sqrt()
}

#[tokio::test]
async fn ollama_gives_a_unit_vector_for_each_input_in_order() {
    let bench = bench(Double::playing(hello())).await;
    let inputs: Vec<_> = (1..=64).map(|length| "x".repeat(length)).collect();
    let reply = bench.post("/api/embed", json!({ "model": "tiny", "input": inputs })).await;
    let value = reply.json();
    assert_eq!((&value["model"], &value["prompt_eval_count"]), (&json!("tiny"), &json!(256)));
    assert!(value["total_duration"].as_u64().unwrap() > 0);
    let rows: Vec<_> = value["embeddings"].as_array().unwrap().iter().map(numbers).collect();
    assert_eq!(rows.len(), 64);
    for (place, row) in rows.iter().enumerate() {
        assert!((length(row) - 1.0).abs() < 1e-6);
        assert!((row[0] / row[1] - (place + 1) as f64).abs() < 1e-4, "row {place} is out of order");
    }
    assert!(bench.double.embeds.lock().unwrap()[0].truncate, "Ollama cuts unless told not to");
}

#[tokio::test]
async fn ollama_takes_one_text_none_and_the_older_form() {
    let bench = bench(Double::playing(hello())).await;
    let one = bench
        .post(
            "/api/embed",
            json!({ "model": "tiny", "input": "ab", "truncate": false, "dimensions": 2 }),
        )
        .await;
    let row = numbers(&one.json()["embeddings"][0]);
    assert_eq!(row.len(), 2);
    assert!((length(&row) - 1.0).abs() < 1e-6);
    assert!(!bench.double.embeds.lock().unwrap()[0].truncate);

    let none = bench.post("/api/embed", json!({ "model": "tiny", "input": [] })).await;
    assert_eq!(none.json()["embeddings"], json!([]));
    let older = bench.post("/api/embeddings", json!({ "model": "tiny", "prompt": "ab" })).await;
    assert_eq!(numbers(&older.json()["embedding"]).len(), 3);
    let empty = bench.post("/api/embeddings", json!({ "model": "tiny", "prompt": "" })).await;
    assert_eq!(empty.json(), json!({ "embedding": [] }));
}

#[tokio::test]
async fn openai_gives_floats_or_base64_of_the_same_numbers() {
    let bench = bench(Double::playing(hello())).await;
    let body = json!({ "model": "tiny", "input": ["hello world", "b"] });
    let value = bench.post("/v1/embeddings", body.clone()).await.json();
    assert_eq!((&value["object"], &value["model"]), (&json!("list"), &json!("tiny")));
    assert_eq!(value["usage"], json!({ "prompt_tokens": 8, "total_tokens": 8 }));
    assert_eq!(
        (&value["data"][1]["index"], &value["data"][1]["object"]),
        (&json!(1), &json!("embedding"))
    );
    assert!(!bench.double.embeds.lock().unwrap()[0].truncate, "too long is an error here");

    let mut packed = body;
    packed["encoding_format"] = json!("base64");
    let packed = bench.post("/v1/embeddings", packed).await.json();
    for place in [0, 1] {
        let bytes = STANDARD.decode(packed["data"][place]["embedding"].as_str().unwrap()).unwrap();
        let floats: Vec<f32> = bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes(four.try_into().unwrap()))
            .collect();
        let said = numbers(&value["data"][place]["embedding"]);
        assert_eq!(floats, said.iter().map(|number| *number as f32).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn openai_takes_tokens_and_refuses_dimensions_a_model_does_not_have() {
    let bench = bench(Double::playing(hello())).await;
    bench.post("/v1/embeddings", json!({ "model": "tiny", "input": [[104, 105], [33]] })).await;
    assert_eq!(bench.double.embeds.lock().unwrap()[0].inputs, ["hi", "!"]);
    let bad = bench.post("/v1/embeddings", json!({ "model": "tiny", "input": [[0xff]] })).await;
    assert_eq!((bad.status.as_u16(), &bad.json()["error"]["param"]), (400, &json!("input[0]")));

    let cut = bench
        .post("/v1/embeddings", json!({ "model": "tiny", "input": "a", "dimensions": 2 }))
        .await;
    assert_eq!(numbers(&cut.json()["data"][0]["embedding"]).len(), 2);
    let more = bench
        .post("/v1/embeddings", json!({ "model": "tiny", "input": "a", "dimensions": 4 }))
        .await;
    assert_eq!((more.status.as_u16(), &more.json()["error"]["param"]), (400, &json!("dimensions")));
}

#[tokio::test]
async fn numbers_that_are_none_are_an_error_in_either_dialect() {
    let bench = bench(Double::playing(hello())).await;
    let broken = Embeddings { dim: 1, rows: 1, data: vec![f32::NAN], prompt_tokens: 1 };
    *bench.double.vectors.lock().unwrap() = Some(broken);
    for path in ["/api/embed", "/v1/embeddings"] {
        let reply = bench.post(path, json!({ "model": "tiny", "input": "a" })).await;
        assert_eq!(reply.status, 502, "{path}");
        assert!(reply.text().contains("embedding contains NaN or Inf values"));
    }
}
