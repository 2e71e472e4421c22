//! A session's handle: questions to the driver, and the answers awaited.

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::{Code, Error, Extras, Result, request::Request};
use tokio::sync::oneshot;

use crate::{
    core::Core,
    driver::{Command, Origin, SessionCommand, Shared},
    engine::blocking,
    handle::{ended, limit, session_id, submit},
    prompt,
    runtime::{Decoding, PrefixStatus, Segment, Session},
};

/// Segments of one call.
const SEGMENTS: usize = 4096;

/// A session. Dropping it closes it, and with it the snapshots it made.
#[derive(Debug)]
pub(crate) struct SessionHandle {
    core: Arc<Core>,
    shared: Arc<Shared>,
    id: u64,
    limit: usize,
}

impl SessionHandle {
    /// Opens a session. Options: `context`, a shorter limit.
    pub(crate) async fn open(
        core: &Arc<Core>,
        shared: &Arc<Shared>,
        options: &Extras,
    ) -> Result<Self> {
        if core.encodes() {
            let message = format!("`{}` makes embeddings and has no sessions", core.located.id);
            return Err(Error::unsupported(message));
        }
        let mut limit = core.context;
        for (name, value) in options {
            if name != "context" {
                let message = format!("the session option `{name}` is not known to this engine");
                return Err(Error::unsupported(message).with("field", name));
            }
            limit = value
                .parse()
                .ok()
                .filter(|wanted| (1..=core.context).contains(wanted))
                .ok_or_else(|| {
                    Error::invalid(format!(
                        "`context`: expected 1 to {} tokens, found `{value}`",
                        core.context
                    ))
                    .with("field", "context")
                })?;
        }
        let session =
            Self { core: Arc::clone(core), shared: Arc::clone(shared), id: session_id(), limit };
        session.ask(|reply| SessionCommand::Open { limit, reply }).await?;
        Ok(session)
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T>>) -> SessionCommand,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.shared.send(Command::Session(Arc::clone(&self.core), self.id, command(reply)))?;
        answer.await.map_err(|_| ended())?
    }

    async fn read(&self, segments: Vec<Segment>, append: bool) -> Result<PrefixStatus> {
        if segments.len() > SEGMENTS {
            let message = format!("expected at most {SEGMENTS} segments, found {}", segments.len());
            return Err(Error::invalid(message).with("field", "segments"));
        }
        let tokens = segments.into_iter().flat_map(|segment| segment.tokens).collect();
        self.ask(|reply| SessionCommand::Read { tokens, append, reply }).await
    }
}

#[async_trait]
impl Session for SessionHandle {
    async fn ensure_prefix(&mut self, segments: Vec<Segment>) -> Result<PrefixStatus> {
        self.read(segments, false).await
    }

    async fn prefill(&mut self, segments: Vec<Segment>) -> Result<PrefixStatus> {
        self.read(segments, true).await
    }

    async fn decode(&mut self, request: Request) -> Result<Box<dyn Decoding>> {
        prompt::refuse(&self.core, &request)?;
        let limit = limit(&self.core, &request)?.min(self.limit);
        submit(&self.core, &self.shared, &request, Origin::Session(self.id), "", limit).await
    }

    async fn snapshot(&mut self) -> Result<String> {
        self.ask(SessionCommand::Snapshot).await
    }

    async fn restore(&mut self, snapshot: &str) -> Result<PrefixStatus> {
        let name = snapshot.to_owned();
        self.ask(|reply| SessionCommand::Restore(name, reply)).await
    }

    async fn fork(&mut self) -> Result<Box<dyn Session>> {
        let id = session_id();
        self.ask(|reply| SessionCommand::Fork(id, reply)).await?;
        Ok(Box::new(Self {
            core: Arc::clone(&self.core),
            shared: Arc::clone(&self.shared),
            id,
            limit: self.limit,
        }))
    }

    async fn explain(&mut self) -> Result<String> {
        let told = self.ask(SessionCommand::Explain).await;
        let mut document = told.map_err(|error| match error.code {
            Code::Internal => Error::new(Code::SessionClosed, error.message),
            _ => error,
        })?;
        // How many huge pages a package lies in takes a walk of the page tables, which no answer may
        // wait for.
        let core = Arc::clone(&self.core);
        let weights = blocking(move || Ok(core.placement().json())).await?;
        if let Some(fields) = document.as_object_mut() {
            fields.insert("weights".to_owned(), weights);
        }
        Ok(document.to_string())
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        // If the thread has ended, so has the session.
        let command = Command::Session(Arc::clone(&self.core), self.id, SessionCommand::Close);
        let _ = self.shared.send(command);
    }
}
