//! The control plane: what runs, why a request would go where, and the verbs that change it.
//!
//! Owns: the routes under `/v1` that belong to no dialect ([`routes`]), what they say ([`view`]), how
//! strictly they read ([`strict`]), why a route is taken ([`explain`]), the document of all routes
//! ([`openapi`]). What the router knows is asked of the router; ledger, policies and the host itself
//! are behind [`Control`], which the composition root implements.
//!
//! Refuses: a verb without an operator key, a field that a request does not have, one that is there
//! twice, bytes behind a body; each in one envelope, `{"error": {"code", "message", "request_id"}}`.

pub mod explain;
pub mod openapi;
mod routes;
pub mod strict;
pub mod view;

use async_trait::async_trait;
use axum::http::StatusCode;
use gristmill_core::{Code, Error};

use crate::error::Failure;
use view::{
    HostFacts, LedgerStatus, LogPage, LogQuery, PluginPin, Policy, Problem, Promote, Propose,
    Proposed, Qualified, Qualify, Release, Released, Revoke, Revoked, Rollback, Sign, Swap,
    UpstreamEntry, Verified,
};

pub use routes::routes;

/// What kind of refusal it is; each has a status of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 400: what was asked makes no sense.
    Invalid,
    /// 404: no such thing.
    NotFound,
    /// 409: it makes sense, and the ledger, a policy or what runs now forbids it.
    Conflict,
    /// 501: this host does not offer it.
    Unsupported,
    /// 500: it should have worked.
    Failed,
}

/// Why something was not done. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// What kind of refusal.
    pub kind: Kind,
    /// A documented word.
    pub code: String,
    /// What was expected, what was found, what to do.
    pub message: String,
}

impl Refused {
    /// A refusal.
    #[must_use]
    pub fn new(kind: Kind, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, code: code.into(), message: message.into() }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let status = match refused.kind {
            Kind::Invalid => StatusCode::BAD_REQUEST,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::Conflict => StatusCode::CONFLICT,
            Kind::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Kind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let error = Error::new(Code::from(refused.code), refused.message);
        Self { error, status: Some(status) }
    }
}

/// What the host says of its ledger, its policies and itself, and the verbs on them. `by` is the name
/// of the operator's key; it goes into the ledger's log.
#[async_trait]
pub trait Control: Send + Sync {
    /// The machine and the build.
    fn host(&self) -> HostFacts;

    /// What is wrong on disk while what runs goes on running. Asked with every `/readyz`.
    async fn problems(&self) -> Vec<Problem>;

    /// The pins, by name.
    ///
    /// # Errors
    /// The ledger's refusal to be read.
    async fn plugins(&self) -> Result<Vec<PluginPin>, Refused>;

    /// The policies about models, by kind and name.
    ///
    /// # Errors
    /// The policies' refusal to be read.
    async fn policies(&self) -> Result<Vec<Policy>, Refused>;

    /// The ledger's entries of the servers behind bridges.
    ///
    /// # Errors
    /// The ledger's refusal to be read.
    async fn upstreams(&self) -> Result<Vec<UpstreamEntry>, Refused>;

    /// The state of the ledger in short.
    ///
    /// # Errors
    /// The ledger's refusal to be read.
    async fn ledger(&self) -> Result<LedgerStatus, Refused>;

    /// A page of the ledger's log.
    ///
    /// # Errors
    /// The log's refusal to be read.
    async fn log(&self, query: LogQuery) -> Result<LogPage, Refused>;

    /// Proves everything in the ledger's folder, without a network.
    ///
    /// # Errors
    /// Only when the proof could not be tried; what it finds is in its answer.
    async fn verify(&self) -> Result<Verified, Refused>;

    /// Makes a component the candidate of a name.
    ///
    /// # Errors
    /// It cannot be fetched, is no component, or makes no pin.
    async fn pin(&self, by: &str, what: Propose) -> Result<Proposed, Refused>;

    /// The candidate of a name.
    ///
    /// # Errors
    /// There is none.
    async fn candidate(&self, name: String) -> Result<Proposed, Refused>;

    /// Puts a signature into a candidate.
    ///
    /// # Errors
    /// There is none, or the signature is not of it.
    async fn sign(&self, by: &str, what: Sign) -> Result<Proposed, Refused>;

    /// Holds a candidate against what is in force. It ends even if nobody waits for it any more.
    ///
    /// # Errors
    /// It could not be compared, or another one is.
    async fn qualify(&self, by: &str, what: Qualify) -> Result<Qualified, Refused>;

    /// Makes what is pinned under a name what runs under it.
    ///
    /// # Errors
    /// The first step that refuses it.
    async fn promote(&self, by: &str, what: Promote) -> Result<Swap, Refused>;

    /// Goes back to what ran under a name before.
    ///
    /// # Errors
    /// When there is no way back, or the ledger forbids it.
    async fn rollback(&self, by: &str, what: Rollback) -> Result<Swap, Refused>;

    /// Takes a component's digest or a signer's key out of trust.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    async fn revoke(&self, by: &str, what: Revoke) -> Result<Revoked, Refused>;

    /// Lets components that are in quarantine be put in force again.
    ///
    /// # Errors
    /// When none is, or the ledger cannot be written.
    async fn release(&self, by: &str, what: Release) -> Result<Released, Refused>;
}

/// A host without a ledger: nothing to show, nothing to change.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoControl;

fn no_ledger<T>() -> Result<T, Refused> {
    Err(Refused::new(Kind::Unsupported, "unsupported", "this host has no ledger"))
}

#[async_trait]
impl Control for NoControl {
    fn host(&self) -> HostFacts {
        HostFacts { architecture: std::env::consts::ARCH.to_owned(), ..HostFacts::default() }
    }

    async fn problems(&self) -> Vec<Problem> {
        Vec::new()
    }

    async fn plugins(&self) -> Result<Vec<PluginPin>, Refused> {
        Ok(Vec::new())
    }

    async fn policies(&self) -> Result<Vec<Policy>, Refused> {
        Ok(Vec::new())
    }

    async fn upstreams(&self) -> Result<Vec<UpstreamEntry>, Refused> {
        Ok(Vec::new())
    }

    async fn ledger(&self) -> Result<LedgerStatus, Refused> {
        no_ledger()
    }

    async fn log(&self, _: LogQuery) -> Result<LogPage, Refused> {
        no_ledger()
    }

    async fn verify(&self) -> Result<Verified, Refused> {
        no_ledger()
    }

    async fn pin(&self, _: &str, _: Propose) -> Result<Proposed, Refused> {
        no_ledger()
    }

    async fn candidate(&self, _: String) -> Result<Proposed, Refused> {
        no_ledger()
    }

    async fn sign(&self, _: &str, _: Sign) -> Result<Proposed, Refused> {
        no_ledger()
    }

    async fn qualify(&self, _: &str, _: Qualify) -> Result<Qualified, Refused> {
        no_ledger()
    }

    async fn promote(&self, _: &str, _: Promote) -> Result<Swap, Refused> {
        no_ledger()
    }

    async fn rollback(&self, _: &str, _: Rollback) -> Result<Swap, Refused> {
        no_ledger()
    }

    async fn revoke(&self, _: &str, _: Revoke) -> Result<Revoked, Refused> {
        no_ledger()
    }

    async fn release(&self, _: &str, _: Release) -> Result<Released, Refused> {
        no_ledger()
    }
}
