//! Ollama's routes: decode, ask the router, encode.

use std::{
    convert::Infallible,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Extension, Json,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::{future::BoxFuture, stream};
use gristmill_core::{Error, Result as Domain, request::Embeddings};
use gristmill_router::{Answered, KeepAlive, Plan, Progress, Provenance, Record, Step};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    catalogue, decode,
    encode::{Form, Lines, Stamp, nothing, whole},
};
use crate::{
    account::Account,
    body::Posted,
    drive::{Driver, name_source, name_unreachable, name_unused},
    endpoint::{Access, Endpoint},
    error::{Dialect, Failure},
    fields::Fields,
    models,
    state::AppState,
};

type Answer = Result<Response, Failure>;

/// Every route of the dialect.
#[must_use]
pub fn routes() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/", "Says that this is Gristmill", root).access(Access::Key),
        Endpoint::get("/api/version", "The host's version", version).access(Access::Key),
        Endpoint::post("/api/chat", "An answer to a conversation", chat),
        Endpoint::post("/api/generate", "An answer to a prompt", generate),
        Endpoint::post("/api/embed", "Vectors of texts", embed),
        Endpoint::post("/api/embeddings", "The vector of a text", embeddings),
        Endpoint::get("/api/tags", "The models", tags),
        Endpoint::get("/api/ps", "The models in memory", ps),
        Endpoint::post("/api/show", "What a model is", show),
        Endpoint::post("/api/pull", "Fetches a model", pull).access(Access::Change),
        Endpoint::post("/api/copy", "Gives a model one more name", copy).access(Access::Change),
        Endpoint::delete("/api/delete", "Removes a model", remove).access(Access::Change),
    ]
}

async fn root() -> &'static str {
    "Gristmill is running"
}

async fn version(State(state): State<AppState>) -> Json<Value> {
    Json(json!({ "version": state.config.version }))
}

fn stamp(account: &Account) -> Stamp {
    Stamp { now: SystemTime::now(), elapsed: account.started.elapsed() }
}

async fn chat(Posted { state, account, body }: Posted) -> Answer {
    let call = decode::chat(body, &account.id)?;
    run(state, account, Form::Chat, call).await
}

async fn generate(Posted { state, account, body }: Posted) -> Answer {
    let call = decode::generate(body, &account.id)?;
    run(state, account, Form::Generate, call).await
}

async fn run(state: AppState, account: Arc<Account>, form: Form, call: decode::Call) -> Answer {
    let plan = models::plan(&state, &account, &call.model).await?;
    if call.load {
        let why = if call.keep == Some(KeepAlive::For(Duration::ZERO)) {
            state.router.unload(&plan).await;
            "unload"
        } else {
            state.router.load(&plan, call.keep).await?;
            "load"
        };
        let nothing = nothing(form, &call.model, why, stamp(&account));
        return Ok(answer(&nothing, &plan.provenance(), &call.unused));
    }
    let mut driver = Driver::new(state, Arc::clone(&account), plan, call.keep, vec![call.request]);
    let mut response = if call.stream {
        let clock = {
            // Not the account itself: it must not outlive the body it is counted by.
            let started = account.started;
            Box::new(move || Stamp { now: SystemTime::now(), elapsed: started.elapsed() })
        };
        driver.stream(Lines::new(form, call.model, clock)).await?
    } else {
        let answer = driver.only().await?;
        let mut response = json_response(whole(form, &call.model, &answer, stamp(&account)));
        name_source(&mut response, &driver.provenance());
        response
    };
    name_unused(&mut response, &call.unused);
    Ok(response)
}

fn json_response(value: impl Serialize) -> Response {
    let mut response = Json(value).into_response();
    let kind = header::HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn answer(value: &impl Serialize, by: &Provenance, unused: &[String]) -> Response {
    let mut response = json_response(value);
    name_source(&mut response, by);
    name_unused(&mut response, unused);
    response
}

async fn vectors(
    state: &AppState,
    account: &Account,
    plan: &Plan,
    call: &decode::EmbedCall,
) -> Domain<Answered<Embeddings>> {
    if call.request.inputs.is_empty() {
        state.router.load(plan, call.keep).await?;
        let what = Embeddings { dim: 0, rows: 0, data: Vec::new(), prompt_tokens: 0 };
        return Ok(Answered { what, by: plan.provenance() });
    }
    let embedded = state.router.embed(plan, call.request.clone(), call.keep).await?;
    account.read(embedded.what.prompt_tokens);
    Ok(embedded)
}

async fn embed(Posted { state, account, body }: Posted) -> Answer {
    let call = decode::embed(body)?;
    let plan = models::plan(&state, &account, &call.model).await?;
    let Answered { what: embeddings, by } = vectors(&state, &account, &plan, &call).await?;
    let rows = crate::embed::rows(&embeddings, call.request.inputs.len(), call.request.dimensions)?;
    let value = Embedded {
        model: &call.model,
        embeddings: rows,
        total_duration: u64::try_from(account.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        prompt_eval_count: Some(embeddings.prompt_tokens).filter(|&count| count > 0),
    };
    Ok(answer(&value, &by, &call.unused))
}

/// The answer to `/api/embed`. Not a JSON tree: that would hold every number as a double, and write
/// it as one.
#[derive(Serialize)]
struct Embedded<'a> {
    model: &'a str,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_eval_count: Option<u32>,
}

/// The answer to `/api/embeddings`.
#[derive(Serialize)]
struct EmbeddedOne {
    embedding: Vec<f32>,
}

async fn embeddings(Posted { state, account, body }: Posted) -> Answer {
    let call = decode::embeddings(body)?;
    let plan = models::plan(&state, &account, &call.model).await?;
    let Answered { what: embeddings, by } = vectors(&state, &account, &plan, &call).await?;
    let rows = crate::embed::rows(&embeddings, call.request.inputs.len(), None)?;
    let row = rows.into_iter().next().unwrap_or_default();
    Ok(answer(&EmbeddedOne { embedding: row }, &by, &call.unused))
}

async fn tags(
    State(state): State<AppState>,
    Extension(account): Extension<Arc<Account>>,
) -> Answer {
    let records = models::catalogue(&state, &account).await?;
    let models: Vec<_> = records.iter().flat_map(catalogue::tags).collect();
    let mut response = json_response(json!({ "models": models }));
    name_unreachable(&mut response, &state);
    Ok(response)
}

async fn ps(State(state): State<AppState>, Extension(account): Extension<Arc<Account>>) -> Answer {
    let residents = models::residents(&state, &account).await?;
    let now = SystemTime::now();
    let models: Vec<_> =
        residents.iter().map(|resident| catalogue::resident(resident, now)).collect();
    Ok(json_response(json!({ "models": models })))
}

async fn show(Posted { state, account, body }: Posted) -> Answer {
    let mut fields = Fields::body(body)?;
    let model = decode::model(&mut fields)?;
    let verbose = fields.flag("verbose")?.unwrap_or(false);
    let plan = models::plan(&state, &account, &model).await?;
    let card = state.router.show(plan).await?;
    Ok(json_response(catalogue::show(&card, verbose)))
}

async fn copy(Posted { state, body, .. }: Posted) -> Answer {
    let mut fields = Fields::body(body)?;
    let (source, destination) = (fields.required("source")?, fields.required("destination")?);
    state.router.copy(&source, &destination).await?;
    Ok(StatusCode::OK.into_response())
}

async fn remove(Posted { state, body, .. }: Posted) -> Answer {
    let mut fields = Fields::body(body)?;
    state.router.remove(&decode::model(&mut fields)?).await?;
    Ok(StatusCode::OK.into_response())
}

async fn pull(Posted { state, account, body }: Posted) -> Answer {
    let mut fields = Fields::body(body)?;
    let model = decode::model(&mut fields)?;
    let streamed = fields.flag("stream")?.unwrap_or(true);
    if fields.flag("insecure")? == Some(true) {
        return Err(Error::unsupported("insecure pulls are not offered")
            .with("field", "insecure")
            .into());
    }
    if !streamed {
        let progress: Progress = Arc::new(|_| ControlFlow::Continue(()));
        state.router.pull(&model, progress).await?;
        return Ok(json_response(json!({ "status": "success" })));
    }
    account.stream();
    let mut response = Body::from_stream(lines(Pull::start(state, model, account))).into_response();
    let kind = header::HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// A pull under way: it moves only while somebody reads, and stops when nobody does.
struct Pull {
    work: BoxFuture<'static, Domain<Record>>,
    steps: mpsc::Receiver<Step>,
    account: Arc<Account>,
    over: bool,
}

impl Pull {
    fn start(state: AppState, model: String, account: Arc<Account>) -> Self {
        let (sender, steps) = mpsc::channel(16);
        // A reader that lags misses steps; a reader that is gone stops the pull.
        let progress: Progress = Arc::new(move |step| match sender.try_send(step) {
            Err(mpsc::error::TrySendError::Closed(_)) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        let work = Box::pin(async move { state.router.pull(&model, progress).await });
        Self { work, steps, account, over: false }
    }

    async fn line(&mut self) -> Option<Value> {
        if self.over {
            return None;
        }
        let result = tokio::select! {
            biased;
            Some(step) = self.steps.recv() => return Some(catalogue::step(&step)),
            result = &mut self.work => result,
        };
        // What it said last is still in the channel.
        if let Ok(step) = self.steps.try_recv() {
            self.work = Box::pin(async move { result });
            return Some(catalogue::step(&step));
        }
        self.over = true;
        self.account.close();
        Some(match result {
            Ok(_) => json!({ "status": "success" }),
            Err(error) => {
                self.account.fail(&error);
                Dialect::Ollama.body(&error, "")
            }
        })
    }
}

fn lines(pull: Pull) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(pull, |mut pull| async move {
        let line = pull.line().await?;
        Some((Ok(Bytes::from(format!("{line}\n"))), pull))
    })
}
