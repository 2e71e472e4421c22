//! OpenAI's routes: decode, ask the router, encode.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Extension, Json,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use gristmill_core::{
    Result as Domain,
    capability::ModelInfo,
    request::{EmbedRequest, Prompt},
};
use gristmill_router::{Answered, Plan, Record, name};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    decode::{self, Call, Input, packed},
    encode::{Form, Head, Stream, whole},
};
use crate::{
    account::Account,
    body::Posted,
    drive::{Driver, name_source, name_unreachable, name_unused},
    embed,
    endpoint::Endpoint,
    error::Failure,
    fields::wrong,
    ids, keys, models,
    ollama::catalogue,
    state::AppState,
};

type Answer = Result<Response, Failure>;

/// Every route of the dialect.
#[must_use]
pub fn routes() -> Vec<Endpoint> {
    vec![
        Endpoint::post("/v1/chat/completions", "An answer to a conversation", chat),
        Endpoint::post("/v1/completions", "An answer to a prompt", completion),
        Endpoint::post("/v1/embeddings", "Vectors of texts", embeddings),
        Endpoint::get("/v1/models", "The models", list),
        Endpoint::get("/v1/models/{*id}", "Whether a model is there", model),
    ]
}

async fn chat(Posted { state, account, body }: Posted) -> Answer {
    let call = decode::chat(body, &account.id)?;
    run(state, account, Form::Chat, call).await
}

async fn completion(Posted { state, account, body }: Posted) -> Answer {
    let call = decode::completion(body, &account.id)?;
    run(state, account, Form::Completion, call).await
}

async fn run(state: AppState, account: Arc<Account>, form: Form, call: Call) -> Answer {
    let plan = models::plan(&state, &account, &call.model).await?;
    let mut echo = Vec::with_capacity(call.echo.len());
    for prompt in call.echo {
        echo.push(prompt_text(&state, &plan, prompt).await?);
    }
    let provenance = plan.provenance();
    let hex = provenance.digest.strip_prefix("sha256:").unwrap_or(&provenance.digest);
    let prefix = match form {
        Form::Chat => "chatcmpl-",
        Form::Completion => "cmpl-",
    };
    let head = Head {
        form,
        id: ids::fresh(prefix, 24),
        created: seconds(SystemTime::now()),
        model: call.model,
        fingerprint: format!("fp_{}", hex.get(..10).unwrap_or(hex)),
        per_prompt: call.per_prompt,
        echo,
    };
    // A model's time in memory is not this dialect's to say, so it does not change it.
    let mut driver = Driver::new(state, account, plan, None, call.requests);
    let mut response = if call.stream {
        driver.stream(Stream::new(head, call.include_usage)).await?
    } else {
        let wholes = driver.whole().await?;
        let mut response = Json(whole(&head, &wholes)).into_response();
        name_source(&mut response, &driver.provenance());
        response
    };
    name_unused(&mut response, &call.unused);
    Ok(response)
}

/// What a prompt reads like, for `echo`.
async fn prompt_text(state: &AppState, plan: &Plan, prompt: Prompt) -> Domain<String> {
    match prompt {
        Prompt::Text(text) | Prompt::Infill(text, _) => Ok(text),
        Prompt::Tokens(tokens) => {
            let bytes = state.router.detokenize(plan, &tokens).await?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
        Prompt::Chat(_) => Ok(String::new()),
    }
}

async fn embeddings(Posted { state, account, body }: Posted) -> Answer {
    let call = decode::embeddings(body)?;
    let plan = models::plan(&state, &account, &call.model).await?;
    let mut inputs = Vec::with_capacity(call.inputs.len());
    for (place, input) in call.inputs.into_iter().enumerate() {
        inputs.push(match input {
            Input::Text(text) => text,
            Input::Tokens(tokens) => {
                let bytes = state.router.detokenize(&plan, &tokens).await?;
                String::from_utf8(bytes).map_err(|_| {
                    wrong(
                        &format!("input[{place}]"),
                        "stands for bytes that are no text; send the text",
                    )
                })?
            }
        });
    }
    let count = inputs.len();
    // Too long is an error here; Ollama's dialect has a switch for it.
    let request = EmbedRequest {
        model: call.model.clone(),
        inputs,
        dimensions: call.dimensions,
        truncate: false,
        extras: Vec::new(),
    };
    let Answered { what: embeddings, by } = state.router.embed(&plan, request, None).await?;
    account.read(embeddings.prompt_tokens);
    let rows = embed::rows(&embeddings, count, call.dimensions)?;
    if let (Some(wanted), Some(row)) = (call.dimensions, rows.first())
        && (row.len() as u64) < u64::from(wanted)
    {
        return Err(wrong(
            "dimensions",
            format!("is {wanted}, but this model's vectors have {}", row.len()),
        )
        .into());
    }
    let data = rows
        .into_iter()
        .enumerate()
        .map(|(index, row)| Embedded {
            object: "embedding",
            index,
            embedding: if call.base64 { Vector::Packed(packed(&row)) } else { Vector::Floats(row) },
        })
        .collect();
    let tokens = embeddings.prompt_tokens;
    let mut response = Json(EmbeddedList {
        object: "list",
        data,
        model: &call.model,
        usage: json!({ "prompt_tokens": tokens, "total_tokens": tokens }),
    })
    .into_response();
    name_source(&mut response, &by);
    name_unused(&mut response, &call.unused);
    Ok(response)
}

/// The answer to `/v1/embeddings`. Not a JSON tree: that would hold every number as a double, and
/// write it as one.
#[derive(Serialize)]
struct EmbeddedList<'a> {
    object: &'static str,
    data: Vec<Embedded>,
    model: &'a str,
    usage: Value,
}

#[derive(Serialize)]
struct Embedded {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Floats(Vec<f32>),
    Packed(String),
}

async fn list(
    State(state): State<AppState>,
    Extension(account): Extension<Arc<Account>>,
) -> Answer {
    let records = models::catalogue(&state, &account).await?;
    let data: Vec<_> = records
        .iter()
        .flat_map(|record| {
            catalogue::names(&record.info).into_iter().map(|name| entry(name, record))
        })
        .collect();
    let mut response = Json(json!({ "object": "list", "data": data })).into_response();
    name_unreachable(&mut response, &state);
    Ok(response)
}

async fn model(
    State(state): State<AppState>,
    Extension(account): Extension<Arc<Account>>,
    Path(id): Path<String>,
) -> Answer {
    let key = name::key(&id)?;
    let records = models::catalogue(&state, &account).await?;
    let known =
        |info: &ModelInfo| catalogue::names(info).iter().any(|name| name::fold(name) == key);
    let record =
        records.iter().find(|record| known(&record.info)).ok_or_else(|| keys::missing(&id))?;
    Ok(Json(entry(&id, record)).into_response())
}

fn entry(id: &str, record: &Record) -> Value {
    json!({
        "id": id,
        "object": "model",
        "created": record.modified.map_or(0, seconds),
        "owned_by": "gristmill",
    })
}

/// Seconds since 1970.
#[must_use]
pub fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
