//! Anthropic's routes: decode, ask the router, encode. `anthropic-version` and `anthropic-beta` are
//! not looked at: what a body says counts.

use axum::response::Response;
use serde_json::json;

use super::{
    decode,
    encode::{Head, Stream, whole},
};
use crate::{
    body::Posted,
    drive::{Driver, json_answer, name_unused},
    endpoint::Endpoint,
    error::Failure,
    ids, models,
};

type Answer = Result<Response, Failure>;

/// Every route of the dialect.
#[must_use]
pub fn routes() -> Vec<Endpoint> {
    let counts = "How many tokens a model would read";
    vec![
        Endpoint::post("/v1/messages", "An answer to a conversation", create),
        Endpoint::post("/v1/messages/count_tokens", counts, count),
    ]
}

async fn create(Posted { state, account, body }: Posted) -> Answer {
    let call = decode::create(body, &account.id)?;
    let plan = models::plan(&state, &account, &call.model).await?;
    let head = Head {
        id: ids::fresh("msg_", 24),
        model: call.model,
        stops: call.request.stop.clone(),
        request_id: account.id.clone(),
    };
    let mut driver = Driver::new(state, account, plan, None, vec![call.request]);
    if call.stream {
        let mut response = driver.stream(Stream::new(head)).await?;
        name_unused(&mut response, &call.unused);
        return Ok(response);
    }
    let answer = whole(&head, &driver.only().await?);
    Ok(json_answer(answer, &driver.provenance(), &call.unused))
}

/// How many tokens the model would read, to the token.
async fn count(Posted { state, account, body }: Posted) -> Answer {
    let call = decode::count(body, &account.id)?;
    let plan = models::plan(&state, &account, &call.model).await?;
    let (tokens, _) = state.router.prompt(&plan, call.request).await?;
    let answer = json!({ "input_tokens": tokens.len() });
    Ok(json_answer(answer, &plan.provenance(), &call.unused))
}
