//! The Responses routes: decode, ask the router, encode, keep.

use std::{sync::Arc, time::SystemTime};

use axum::{
    Json, Router,
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use gristmill_core::{Error, Result as Domain, request::Message};
use serde_json::{Value, json};

use super::{
    decode::{self, Call},
    encode::{Finished, Head, Stream, whole},
    items,
    store::Kept,
};
use crate::{
    blocks::Blocks,
    body::{self, Posted},
    drive::{Driver, json_answer, name_unused},
    error::Failure,
    ids,
    openai::routes::seconds,
    state::AppState,
};

type Answer = Result<Response, Failure>;

/// Every route of the dialect.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/responses", post(create))
        .route("/v1/responses/input_tokens", post(input_tokens))
        .route("/v1/responses/{id}", get(retrieve).delete(forget))
}

/// The request, decoded, with the conversation before it.
fn decoded(state: &AppState, body: Value, id: &str) -> Domain<Call> {
    let mut call = decode::create(body, id)?;
    match &call.previous {
        None => call.join(&[]),
        Some(id) => {
            let field = |error: Error| error.with("field", "previous_response_id");
            call.join(&kept(state, id).map_err(field)?.said);
        }
    }
    Ok(call)
}

async fn create(Posted { state, account, body }: Posted) -> Answer {
    let call = decoded(&state, body, &account.id)?;
    let plan = body::plan(&state, &account, &call.model).await?;
    let store = call.store && state.responses.keeps();
    let said = if store { call.said() } else { Vec::new() };
    let head = Head {
        id: ids::fresh("resp_", 32),
        created: seconds(SystemTime::now()),
        model: call.model,
        store,
        echo: call.echo,
    };
    let finished = keeper(&state, &head, said);
    let mut driver = Driver::new(state, account, plan, None, vec![call.request]);
    if call.stream {
        let mut response = driver.stream(Stream::new(head, finished)).await?;
        name_unused(&mut response, &call.unused);
        return Ok(response);
    }
    let blocks: Blocks = driver.only().await?;
    let answer = whole(&head, &blocks);
    finished(&answer, &blocks);
    Ok(json_answer(answer, &driver.provenance(), &call.unused))
}

/// Keeps the finished response, if it is to be kept.
fn keeper(state: &AppState, head: &Head, mut said: Vec<Message>) -> Finished {
    if !head.store {
        return Box::new(|_, _| {});
    }
    let (state, id) = (state.clone(), head.id.clone());
    Box::new(move |response, blocks| {
        said.push(items::answer(blocks));
        state.responses.keep(id, Kept { response: response.clone(), said });
    })
}

fn kept(state: &AppState, id: &str) -> Domain<Arc<Kept>> {
    state.responses.get(id).ok_or_else(|| {
        Error::not_found(
            "no such response is kept; it was not stored, or it was deleted or forgotten since: send the whole conversation as input",
        )
    })
}

async fn retrieve(State(state): State<AppState>, Path(id): Path<String>) -> Answer {
    Ok(Json(kept(&state, &id)?.response.clone()).into_response())
}

async fn forget(State(state): State<AppState>, Path(id): Path<String>) -> Answer {
    kept(&state, &id)?;
    state.responses.forget(&id);
    Ok(Json(json!({ "id": id, "object": "response", "deleted": true })).into_response())
}

/// How many tokens the model would read.
async fn input_tokens(Posted { state, account, body }: Posted) -> Answer {
    let call = decoded(&state, body, &account.id)?;
    let plan = body::plan(&state, &account, &call.model).await?;
    let (tokens, _) = state.router.prompt(&plan, call.request).await?;
    let answer = json!({ "object": "response.input_tokens", "input_tokens": tokens.len() });
    Ok(json_answer(answer, &plan.provenance(), &call.unused))
}
