//! `/v1/rerank` (and `/rerank`, `/reranking`, `/v1/reranking`), as Jina's and Cohere's clients know
//! it: documents in order of relevance to a query.
//!
//! The decoder is as strict as OpenAI's. An answer whose ranks are not what was asked is the
//! back-end's failure and not passed on.

use axum::response::Response;
use gristmill_core::{
    Code, Error, Result as Domain,
    request::{Ranked, RerankRequest},
};
use serde_json::{Map, Value, json};

use crate::{
    body::Posted,
    drive::json_answer,
    endpoint::Endpoint,
    error::Failure,
    fields::{Fields, kind, nothing_left, wrong},
    ids, models,
    openai::decode::HARMLESS,
};

/// Most documents of one request.
const MOST_DOCUMENTS: usize = 2048;

/// Every route.
#[must_use]
pub fn routes() -> Vec<Endpoint> {
    ["/v1/rerank", "/v1/reranking", "/rerank", "/reranking"]
        .map(|path| Endpoint::post(path, "Documents by relevance", rerank))
        .into()
}

/// A decoded request.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What to rank; its model is spelled as the client does.
    pub request: RerankRequest,
    /// Whether each result repeats its document.
    pub texts: bool,
    /// Fields that were taken and change nothing.
    pub unused: Vec<String>,
}

/// Reads a request.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn decode(body: Value) -> Domain<Call> {
    let mut fields = Fields::body(body)?;
    let model = fields.required("model")?;
    let query = fields.take("query").ok_or_else(|| wrong("query", "is required"))?;
    let query = text("query", query)?;
    let items = fields.array("documents")?.ok_or_else(|| wrong("documents", "is required"))?;
    if items.is_empty() || items.len() > MOST_DOCUMENTS {
        let what = format!("has {} items, from 1 to {MOST_DOCUMENTS} are allowed", items.len());
        return Err(wrong("documents", what));
    }
    let document = |(place, item)| text(&format!("documents[{place}]"), item);
    let documents = items.into_iter().enumerate().map(document).collect::<Domain<_>>()?;
    // 0 is "all" where clients send it at all.
    let top_n = fields.count("top_n", 0..=u32::MAX)?.filter(|&count| count > 0);
    let texts = fields.flag("return_documents")?.unwrap_or(false);
    let unused = fields.without_effect(&HARMLESS);
    nothing_left(&fields)?;
    let request = RerankRequest { model, query, documents, top_n, extras: Vec::new() };
    Ok(Call { request, texts, unused })
}

/// A string, or an object of its text.
fn text(path: &str, value: Value) -> Domain<String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Object(_) => {
            let mut fields = Fields::at(path, value)?;
            let name = fields.name("text");
            let text = fields.string("text")?.ok_or_else(|| wrong(&name, "is required"))?;
            nothing_left(&fields)?;
            Ok(text)
        }
        other => Err(wrong(path, format!("must be a string or an object, got {}", kind(&other)))),
    }
}

/// The ranks best first, as many as were asked for; equal scores keep the documents' order.
///
/// # Errors
/// `upstream-error` when they are not what was asked: a document that is not there or there twice,
/// a score that is no number, too few.
pub fn order(mut ranks: Vec<Ranked>, request: &RerankRequest) -> Domain<Vec<Ranked>> {
    let count = request.documents.len();
    let wanted = request.top_n.map_or(count, |top| count.min(top as usize));
    let mut seen = vec![false; count];
    let mut bad = ranks.len() < wanted;
    for rank in &ranks {
        match seen.get_mut(rank.index as usize) {
            Some(seen) if !*seen && rank.score.is_finite() => *seen = true,
            _ => bad = true,
        }
    }
    if bad {
        let message = format!(
            "the back-end's ranks are not {wanted} of {count} documents, each once and with a number"
        );
        return Err(Error::new(Code::UpstreamError, message));
    }
    ranks.sort_by(|one, other| other.score.total_cmp(&one.score).then(one.index.cmp(&other.index)));
    ranks.truncate(wanted);
    Ok(ranks)
}

async fn rerank(Posted { state, account, body }: Posted) -> Result<Response, Failure> {
    let call = decode(body)?;
    let plan = models::plan(&state, &account, &call.request.model).await?;
    let ranked = state.router.rerank(&plan, call.request.clone()).await?;
    let ranks = order(ranked.what, &call.request)?;
    let result = |rank: &Ranked| {
        let mut result = Map::new();
        result.insert("index".into(), json!(rank.index));
        result.insert("relevance_score".into(), json!(rank.score));
        if let Some(text) = call.request.documents.get(rank.index as usize).filter(|_| call.texts) {
            result.insert("document".into(), json!({ "text": text }));
        }
        Value::Object(result)
    };
    // The contract counts no tokens here, no number is made up, and clients stumble over null.
    let answer = json!({
        "id": ids::fresh("rerank-", 24),
        "object": "list",
        "model": call.request.model,
        "results": ranks.iter().map(result).collect::<Vec<_>>(),
    });
    Ok(json_answer(answer, &ranked.by, &call.unused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_texts_or_objects_of_a_text() {
        let body = json!({ "model": "m", "query": { "text": "q" }, "top_n": 0, "user": "u",
            "documents": ["a", { "text": "b" }], "return_documents": true });
        let call = decode(body).unwrap();
        assert_eq!((call.request.query.as_str(), call.request.top_n), ("q", None));
        assert_eq!(call.request.documents, ["a", "b"]);
        assert!(call.texts);
        assert_eq!(call.unused, ["user"]);
    }

    #[test]
    fn bad_requests_name_the_field() {
        for (extra, field) in [
            (json!({ "query": null }), "query"),
            (json!({ "query": 5 }), "query"),
            (json!({ "documents": null }), "documents"),
            (json!({ "documents": [] }), "documents"),
            (json!({ "documents": ["a", 5] }), "documents[1]"),
            (json!({ "documents": [{ "title": "x" }] }), "documents[0].text"),
            (json!({ "documents": [{ "text": "x", "title": "x" }] }), "documents[0].title"),
            (json!({ "top_n": -1 }), "top_n"),
            (json!({ "max_tokens_per_doc": 5 }), "max_tokens_per_doc"),
        ] {
            let mut body = json!({ "model": "m", "query": "q", "documents": ["a"] });
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            assert_eq!(decode(body).unwrap_err().detail("field"), Some(field), "{extra}");
        }
    }

    #[test]
    fn ranks_that_are_not_what_was_asked_are_refused() {
        let request = |top_n| RerankRequest {
            model: "m".into(),
            query: "q".into(),
            documents: vec!["a".into(), "b".into(), "c".into()],
            top_n,
            extras: Vec::new(),
        };
        let ranks = |list: &[(u32, f32)]| -> Vec<Ranked> {
            list.iter().map(|&(index, score)| Ranked { index, score }).collect()
        };
        let given = ranks(&[(0, 0.1), (2, 0.9), (1, 0.9)]);
        let order_of = |top_n| -> Vec<u32> {
            order(given.clone(), &request(top_n)).unwrap().iter().map(|r| r.index).collect()
        };
        assert_eq!(order_of(None), [1, 2, 0]);
        assert_eq!(order_of(Some(1)), [1]);
        assert_eq!(order_of(Some(9)), [1, 2, 0]);
        for bad in [
            ranks(&[(0, 0.1), (1, 0.2)]),
            ranks(&[(0, 0.1), (1, 0.2), (1, 0.3)]),
            ranks(&[(0, 0.1), (1, 0.2), (3, 0.3)]),
            ranks(&[(0, 0.1), (1, f32::NAN), (2, 0.3)]),
            ranks(&[]),
        ] {
            let error = order(bad.clone(), &request(None)).unwrap_err();
            assert_eq!(error.code, Code::UpstreamError, "{bad:?}");
        }
    }
}
