//! The Responses routes: decode, ask the router, encode, keep.

use std::{sync::Arc, time::SystemTime};

use axum::{
    Extension, Json,
    extract::{Path, State},
    response::{IntoResponse, Response},
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
    account::Account,
    blocks::Blocks,
    body::Posted,
    drive::{Driver, json_answer, name_unused},
    endpoint::Endpoint,
    error::Failure,
    ids, models,
    openai::routes::seconds,
    state::AppState,
};

type Answer = Result<Response, Failure>;

/// Every route of the dialect.
#[must_use]
pub fn routes() -> Vec<Endpoint> {
    let input = "How many tokens a model would read";
    vec![
        Endpoint::post("/v1/responses", "An answer to a conversation", create),
        Endpoint::post("/v1/responses/input_tokens", input, input_tokens),
        Endpoint::get("/v1/responses/{id}", "An answer that was kept", retrieve),
        Endpoint::delete("/v1/responses/{id}", "Forgets an answer", forget),
    ]
}

/// The request, decoded, with the conversation before it.
fn decoded(state: &AppState, account: &Account, body: Value) -> Domain<Call> {
    let mut call = decode::create(body, &account.id)?;
    match &call.previous {
        None => call.join(&[]),
        Some(id) => {
            let field = |error: Error| error.with("field", "previous_response_id");
            call.join(&kept(state, account, id).map_err(field)?.said);
        }
    }
    Ok(call)
}

async fn create(Posted { state, account, body }: Posted) -> Answer {
    let call = decoded(&state, &account, body)?;
    let plan = models::plan(&state, &account, &call.model).await?;
    let store = call.store && state.responses.keeps();
    let said = if store { call.said() } else { Vec::new() };
    let head = Head {
        id: ids::fresh("resp_", 32),
        created: seconds(SystemTime::now()),
        model: call.model,
        store,
        echo: call.echo,
    };
    let finished = keeper(&state, &account, &head, said);
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
fn keeper(state: &AppState, account: &Account, head: &Head, mut said: Vec<Message>) -> Finished {
    if !head.store {
        return Box::new(|_, _| {});
    }
    let (state, id) = (state.clone(), head.id.clone());
    let owner = account.caller().name().map(str::to_owned);
    Box::new(move |response, blocks| {
        said.push(items::answer(blocks));
        state.responses.keep(id, Kept { response: response.clone(), said, owner });
    })
}

/// A response of the caller's own: another key's is not there.
fn kept(state: &AppState, account: &Account, id: &str) -> Domain<Arc<Kept>> {
    let own = |kept: &Arc<Kept>| kept.owner.as_deref() == account.caller().name();
    state.responses.get(id).filter(own).ok_or_else(|| {
        Error::not_found(
            "no such response is kept; it was not stored, or it was deleted or forgotten since: send the whole conversation as input",
        )
    })
}

async fn retrieve(
    State(state): State<AppState>,
    Extension(account): Extension<Arc<Account>>,
    Path(id): Path<String>,
) -> Answer {
    Ok(Json(kept(&state, &account, &id)?.response.clone()).into_response())
}

async fn forget(
    State(state): State<AppState>,
    Extension(account): Extension<Arc<Account>>,
    Path(id): Path<String>,
) -> Answer {
    kept(&state, &account, &id)?;
    state.responses.forget(&id);
    Ok(Json(json!({ "id": id, "object": "response", "deleted": true })).into_response())
}

/// How many tokens the model would read.
async fn input_tokens(Posted { state, account, body }: Posted) -> Answer {
    let call = decoded(&state, &account, body)?;
    let plan = models::plan(&state, &account, &call.model).await?;
    let (tokens, _) = state.router.prompt(&plan, call.request).await?;
    let answer = json!({ "object": "response.input_tokens", "input_tokens": tokens.len() });
    Ok(json_answer(answer, &plan.provenance(), &call.unused))
}
