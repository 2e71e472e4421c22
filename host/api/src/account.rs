//! What one request did, written down when it ends, however it ends.
//!
//! An account lives in the request's extensions and in the response's body. When the last holder
//! drops it, the request is over: answered, failed, or abandoned by its client. Then it is counted
//! and logged: id, route, the key's name, status, model, tokens, times. Never a prompt, never a key.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use gristmill_core::{
    Error,
    event::{Event, Usage},
};

use crate::{keys::Caller, metrics::Metrics, policy::Told};

/// One request's account.
#[derive(Debug)]
pub struct Account {
    /// The request's id.
    pub id: String,
    /// The matched route, or `other`.
    pub route: String,
    /// The profile that the caller selects, if it does.
    pub profile: Option<String>,
    /// When its head had been read.
    pub started: Instant,
    metrics: Arc<Metrics>,
    facts: Mutex<Facts>,
}

#[derive(Debug, Default)]
struct Facts {
    caller: Caller,
    status: Option<u16>,
    model: Option<String>,
    usage: Usage,
    first_token: Option<Duration>,
    failure: Option<String>,
    told: Option<Told>,
    /// A stream is under way; dropped now, its client is gone.
    open: bool,
}

impl Account {
    /// The account of a request that just came in.
    #[must_use]
    pub fn open(
        id: String,
        route: String,
        profile: Option<String>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let started = Instant::now();
        Arc::new(Self { id, route, profile, started, metrics, facts: Mutex::default() })
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose request it is.
    pub fn comes_from(&self, caller: Caller) {
        self.facts().caller = caller;
    }

    /// Whose request it is.
    #[must_use]
    pub fn caller(&self) -> Caller {
        self.facts().caller.clone()
    }

    /// The response's head has this status.
    pub fn status(&self, status: u16) {
        self.facts().status = Some(status);
    }

    /// The request was for this model, by canonical id.
    pub fn model(&self, model: &str) {
        self.facts().model = Some(model.to_owned());
    }

    /// Policies or profiles had something to say; of several choices the first counts, as they are
    /// all asked for alike.
    pub(crate) fn tell(&self, told: Told) {
        self.facts().told.get_or_insert(told);
    }

    /// What policies and profiles had to say.
    pub(crate) fn told(&self) -> Option<Told> {
        self.facts().told.clone()
    }

    /// The body is a stream that [`Account::close`] will end.
    pub fn stream(&self) {
        self.facts().open = true;
    }

    /// The stream has come to its end.
    pub fn close(&self) {
        self.facts().open = false;
    }

    /// Takes note of events on their way out.
    pub fn observe(&self, events: &[Event]) {
        let mut facts = self.facts();
        for event in events {
            match event {
                Event::Text(_) | Event::Reasoning(_) | Event::ToolStart(_)
                    if facts.first_token.is_none() =>
                {
                    let elapsed = self.started.elapsed();
                    facts.first_token = Some(elapsed);
                    self.metrics.first_token(&self.route, elapsed.as_secs_f64());
                }
                Event::Usage(usage) => add(&mut facts.usage, usage),
                _ => {}
            }
        }
    }

    /// Takes note of tokens that were only read.
    pub fn read(&self, prompt_tokens: u32) {
        add(&mut self.facts().usage, &Usage { prompt: prompt_tokens, ..Usage::default() });
    }

    /// Takes note of a failure, in the head or in the stream.
    pub fn fail(&self, error: &Error) {
        self.metrics.failure(error);
        self.facts().failure = Some(error.code.as_str().to_owned());
    }
}

fn add(sum: &mut Usage, more: &Usage) {
    sum.prompt = sum.prompt.saturating_add(more.prompt);
    sum.cached = sum.cached.saturating_add(more.cached);
    sum.completion = sum.completion.saturating_add(more.completion);
    sum.reasoning = sum.reasoning.saturating_add(more.reasoning);
}

impl Drop for Account {
    fn drop(&mut self) {
        let elapsed = self.started.elapsed();
        let facts = self.facts.get_mut().unwrap_or_else(PoisonError::into_inner);
        let gone = facts.status.is_none() || facts.open;
        let status = facts.status.unwrap_or(499);
        self.metrics.request(&self.route, status, elapsed.as_secs_f64());
        if gone {
            self.metrics.cancelled();
        }
        if let Some(model) = &facts.model {
            self.metrics.tokens(model, "prompt", facts.usage.prompt);
            self.metrics.tokens(model, "cached", facts.usage.cached);
            self.metrics.tokens(model, "completion", facts.usage.completion);
        }
        tracing::info!(
            request_id = %self.id,
            route = %self.route,
            key = facts.caller.name(),
            status,
            model = facts.model.as_deref(),
            prompt_tokens = facts.usage.prompt,
            completion_tokens = facts.usage.completion,
            first_token_ms = facts.first_token.map(|time| time.as_secs_f64() * 1e3),
            duration_ms = elapsed.as_secs_f64() * 1e3,
            failure = facts.failure.as_deref(),
            cancelled = gone,
            "request"
        );
    }
}
