//! The routes of the control plane.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Extension, Json,
    extract::{Request, State},
    http::Uri,
};
use gristmill_core::{Result as Domain, capability::Claim};
use gristmill_router::{Plan, Source, keep::Expiry, live::Slot};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    explain, openapi, strict,
    view::{
        BackendView, Backends, Capabilities, Cause, ClaimView, LedgerStatus, LedgerView,
        LoadedModel, LogPage, LogQuery, ModelClaims, ModelsFrom, Nothing, OfName, OneModel,
        PluginView, Plugins, Policies, Promote, Propose, Proposed, Qualified, Qualify, Release,
        Released, Revoke, Revoked, Rollback, Route, RouteQuestion, Runtime, Server, Sign, Swap,
        Unreachable, Upstreams, Verified, Verify,
    },
};
use crate::{
    account::Account,
    body,
    endpoint::{Access, Endpoint},
    error::Failure,
    ids,
    state::AppState,
};

type Answer<T> = Result<T, Failure>;

/// Every route of the control plane.
#[must_use]
pub fn routes() -> Vec<Endpoint> {
    vec![
        read("/v1/runtime", "The host as it is now", runtime),
        read("/v1/capabilities", "What can be asked of which model", capabilities),
        read("/v1/backends", "The live back-ends", backends),
        post("/v1/route", "Where a request would go, and why", route).access(Access::Operator),
        read("/v1/model-policies", "The policies about models", policies),
        read("/v1/upstreams", "The servers behind bridges", upstreams),
        read("/v1/plugins", "The plugins that may run", plugins),
        read("/v1/ledger", "The ledger: its state and its pins", ledger),
        read("/v1/ledger/status", "The state of the ledger in short", status),
        read("/v1/ledger/log", "The ledger's log", log),
        post("/v1/ledger/verify", "Proves everything in the ledger's folder", verify)
            .access(Access::Operator),
        read("/v1/ledger/candidate", "A candidate, and what a signature of it covers", candidate),
        post("/v1/ledger/pin", "Proposes a component for a name", pin),
        post("/v1/ledger/sign", "Puts a signature into a candidate", sign),
        post("/v1/ledger/qualify", "Holds a candidate against what is in force", qualify),
        post("/v1/ledger/promote", "Makes what is pinned what runs", promote),
        post("/v1/ledger/rollback", "Goes back to what ran before", rollback),
        post("/v1/ledger/revoke", "Takes a component or a signer out of trust", revoke),
        post("/v1/ledger/release", "Takes components out of quarantine", release),
        Endpoint::get("/v1/openapi.json", "This document", document)
            .access(Access::Key)
            .query::<Nothing>()
            .gives::<Value>(),
    ]
}

/// A route that reads its query strictly.
fn read<Q, R, F>(
    path: &'static str,
    summary: &'static str,
    ask: impl Fn(AppState, Q) -> F + Clone + Send + Sync + 'static,
) -> Endpoint
where
    Q: DeserializeOwned + JsonSchema + Send + 'static,
    R: Serialize + JsonSchema + 'static,
    F: Future<Output = Answer<R>> + Send + 'static,
{
    let handler = move |State(state): State<AppState>, uri: Uri| async move {
        let query = strict::query(&uri)?;
        ask(state, query).await.map(Json)
    };
    Endpoint::get(path, summary, handler).access(Access::Operator).query::<Q>().gives::<R>()
}

/// A route that reads its body strictly; for operators, always, unless told otherwise.
fn post<B, R, F>(
    path: &'static str,
    summary: &'static str,
    act: impl Fn(AppState, Arc<Account>, B) -> F + Clone + Send + Sync + 'static,
) -> Endpoint
where
    B: DeserializeOwned + JsonSchema + Send + 'static,
    R: Serialize + JsonSchema + 'static,
    F: Future<Output = Answer<R>> + Send + 'static,
{
    let handler = move |State(state): State<AppState>,
                        Extension(account): Extension<Arc<Account>>,
                        request: Request| async move {
        let Nothing {} = strict::query(request.uri())?;
        let (bytes, _held) = body::read(&state, request).await?;
        act(state, account, strict::json(&bytes)?).await.map(Json)
    };
    Endpoint::post(path, summary, handler).access(Access::Verb).takes::<B>().gives::<R>()
}

fn time(at: SystemTime) -> String {
    ids::seconds(Timestamp::try_from(at).unwrap_or_default())
}

async fn runtime(state: AppState, _: Nothing) -> Answer<Runtime> {
    let loads = state.router.load_now();
    let residents = state.router.residents().await?;
    let loaded = residents.into_iter().map(|resident| LoadedModel {
        model: resident.loaded.id,
        digest: resident.loaded.digest,
        memory_bytes: resident.loaded.memory,
        context: resident.loaded.context,
        active: resident.loaded.active,
        expires: match resident.expiry {
            Expiry::Never => None,
            Expiry::At(at) => Some(time(at)),
        },
    });
    Ok(Runtime {
        version: state.config.version.clone(),
        started: time(state.started),
        uptime_seconds: state.started.elapsed().unwrap_or(Duration::ZERO).as_secs(),
        host: state.control.host(),
        active: loads.iter().map(|load| load.active).sum(),
        waiting: loads.iter().map(|load| load.waiting).sum(),
        models: loaded.collect(),
        problems: state.problems().await,
    })
}

async fn capabilities(state: AppState, query: OneModel) -> Answer<Capabilities> {
    let names = match &query.model {
        Some(model) => vec![model.clone()],
        None => {
            let records = state.router.catalogue().await?;
            records.into_iter().map(|record| record.info.id).collect()
        }
    };
    let mut models = Vec::with_capacity(names.len());
    for name in &names {
        match state.router.resolve(name).await {
            Ok(plan) => models.push(claims_of(&state, name, &plan)),
            Err(error) if query.model.is_some() => return Err(error.into()),
            // Gone since it was listed.
            Err(_) => {}
        }
    }
    let unreachable = state.router.unreachable();
    let unreachable = unreachable
        .iter()
        .map(|(backend, error)| Unreachable { backend: backend.clone(), because: error.into() });
    Ok(Capabilities { models, unreachable: unreachable.collect() })
}

/// The model's claims, and the back-end's for what the model says nothing of.
fn claims_of(state: &AppState, name: &str, plan: &Plan) -> ModelClaims {
    let provenance = plan.provenance();
    let slots = state.router.backends().slots();
    let slot = slots.iter().find(|slot| slot.name == provenance.backend);
    let own = slot.map(|slot| slot.current().descriptor.claims.clone()).unwrap_or_default();
    let mut claims: BTreeMap<String, ClaimView> = views(&own).collect();
    claims.extend(views(&plan.info().claims));
    ModelClaims {
        model: name.to_owned(),
        backend: provenance.backend,
        digest: provenance.digest,
        generation: provenance.generation,
        family: plan.info().family.clone(),
        context_native: plan.info().context_native,
        claims: claims.into_values().collect(),
    }
}

fn views(claims: &[Claim]) -> impl Iterator<Item = (String, ClaimView)> {
    claims.iter().map(|claim| (claim.name.clone(), claim.into()))
}

async fn backends(state: AppState, _: Nothing) -> Answer<Backends> {
    let checks = state.router.checks().await;
    let mut backends = Vec::new();
    for slot in state.router.backends().slots().iter() {
        let named = format!("backend {}", slot.name);
        let check = checks.iter().find(|check| check.name == named);
        let mut view = backend(slot, check.map(|check| (check.ready, &*check.detail))).await;
        let generations = state.router.generations(&slot.name);
        view.generations = generations.iter().map(Into::into).collect();
        backends.push(view);
    }
    Ok(Backends { backends })
}

async fn backend(slot: &Slot, check: Option<(bool, &str)>) -> BackendView {
    let generation = slot.current();
    let (active, waiting) = slot.load();
    let (ready, detail) = check.unwrap_or((false, "not asked yet"));
    let descriptor = &generation.descriptor;
    BackendView {
        name: slot.name.clone(),
        kind: descriptor.kind.clone(),
        version: descriptor.version.clone(),
        server_version: generation.server_version().await,
        execution: descriptor.execution.clone(),
        models: match slot.source {
            Source::Store => ModelsFrom::Store,
            Source::Listed => ModelsFrom::List,
        },
        digest: generation.digest.clone(),
        generation: generation.number,
        ready,
        detail: detail.to_owned(),
        active,
        waiting,
        unreachable: generation.failure().as_ref().map(Cause::from),
        claims: views(&descriptor.claims).map(|(_, claim)| claim).collect(),
        generations: Vec::new(),
    }
}

async fn route(state: AppState, account: Arc<Account>, question: RouteQuestion) -> Answer<Route> {
    Ok(explain::explain(&state, &account.id, question).await?)
}

async fn policies(state: AppState, _: Nothing) -> Answer<Policies> {
    Ok(Policies { policies: state.control.policies().await? })
}

async fn upstreams(state: AppState, _: Nothing) -> Answer<Upstreams> {
    let mut servers = Vec::new();
    for slot in state.router.backends().slots().iter() {
        let generation = slot.current();
        if generation.descriptor.execution == "external" {
            servers.push(Server {
                backend: slot.name.clone(),
                kind: generation.descriptor.kind.clone(),
                version: generation.server_version().await,
                unreachable: generation.failure().as_ref().map(Cause::from),
            });
        }
    }
    Ok(Upstreams { servers, entries: state.control.upstreams().await? })
}

async fn plugins(state: AppState, _: Nothing) -> Answer<Plugins> {
    let slots = state.router.backends().slots();
    let plugins = state.control.plugins().await?.into_iter().map(|pin| {
        let live = || {
            let ours = slots.iter().filter(|slot| pin.configured.contains(&slot.name));
            ours.map(|slot| (slot.name.clone(), slot.current().digest == pin.digest))
        };
        let those =
            |current: bool| live().filter(|(_, is)| *is == current).map(|(name, _)| name).collect();
        PluginView { runs_as: those(true), behind: those(false), pin }
    });
    Ok(Plugins { plugins: plugins.collect() })
}

async fn ledger(state: AppState, _: Nothing) -> Answer<LedgerView> {
    let status = state.control.ledger().await?;
    Ok(LedgerView { status, pins: state.control.plugins().await? })
}

async fn status(state: AppState, _: Nothing) -> Answer<LedgerStatus> {
    Ok(state.control.ledger().await?)
}

async fn log(state: AppState, query: LogQuery) -> Answer<LogPage> {
    if query.limit.is_some_and(|limit| !(1..=1000).contains(&limit)) {
        return Err(crate::fields::wrong("limit", "must be between 1 and 1000").into());
    }
    Ok(state.control.log(query).await?)
}

async fn verify(state: AppState, _: Arc<Account>, _: Verify) -> Answer<Verified> {
    Ok(state.control.verify().await?)
}

async fn candidate(state: AppState, query: OfName) -> Answer<Proposed> {
    Ok(state.control.candidate(query.name).await?)
}

async fn pin(state: AppState, account: Arc<Account>, what: Propose) -> Answer<Proposed> {
    Ok(state.control.pin(&by(&account)?, what).await?)
}

async fn sign(state: AppState, account: Arc<Account>, what: Sign) -> Answer<Proposed> {
    Ok(state.control.sign(&by(&account)?, what).await?)
}

async fn qualify(state: AppState, account: Arc<Account>, what: Qualify) -> Answer<Qualified> {
    if what.rounds.is_some_and(|rounds| !(1..=1000).contains(&rounds)) {
        return Err(crate::fields::wrong("rounds", "must be between 1 and 1000").into());
    }
    if what.tolerance.is_some_and(|share| !(0.0..1.0).contains(&share)) {
        return Err(crate::fields::wrong("tolerance", "must be from 0 to below 1").into());
    }
    Ok(state.control.qualify(&by(&account)?, what).await?)
}

async fn promote(state: AppState, account: Arc<Account>, what: Promote) -> Answer<Swap> {
    Ok(state.control.promote(&by(&account)?, what).await?)
}

async fn rollback(state: AppState, account: Arc<Account>, what: Rollback) -> Answer<Swap> {
    Ok(state.control.rollback(&by(&account)?, what).await?)
}

async fn revoke(state: AppState, account: Arc<Account>, what: Revoke) -> Answer<Revoked> {
    Ok(state.control.revoke(&by(&account)?, what).await?)
}

async fn release(state: AppState, account: Arc<Account>, what: Release) -> Answer<Released> {
    Ok(state.control.release(&by(&account)?, what).await?)
}

/// The name of the operator's key.
fn by(account: &Account) -> Domain<String> {
    let name = account.caller().name().map(str::to_owned);
    name.ok_or_else(|| gristmill_core::Error::internal("a verb was let in without a key"))
}

async fn document(State(state): State<AppState>, uri: Uri) -> Answer<Json<Value>> {
    let Nothing {} = strict::query(&uri)?;
    Ok(Json(openapi::document(&state.config.version)))
}
