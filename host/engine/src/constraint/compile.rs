//! Grammars compiled off the threads that answer: on one of their own with a deep stack, no more
//! than `AT_ONCE` at a time, given up after `PATIENCE`. What was compiled is kept for the next
//! request that says the same.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use gristmill_core::{Code, Error, Result, request::Request};
use llguidance::{Matcher, api::TopLevelGrammar};
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, oneshot};

use super::{
    grammar::{Draft, Thoughts, document, draft},
    schema::refusal,
    trie::Words,
};
use crate::core::Core;

/// Compilations at a time, over all models.
const AT_ONCE: usize = 2;
/// Beyond this a request is refused; the engine's own limits end the work soon after.
const PATIENCE: Duration = Duration::from_secs(20);
/// The engine recurses over nested schemas; only what is used of it is real memory.
pub(super) const STACK: usize = 256 << 20;
/// Grammars kept per model.
const KEPT: usize = 16;
/// Subschemas tried, and time spent, to say which one the engine refuses.
const SEARCH: (usize, Duration) = (200, Duration::from_secs(2));

static PERMITS: Semaphore = Semaphore::const_new(AT_ONCE);

/// A compiled grammar nobody has used yet; answers work on copies.
pub(super) struct Compiled {
    matcher: Matcher,
    /// Bytes after which it begins; none: with the answer.
    pub(super) after: Option<String>,
    /// Whether thoughts are a part of it.
    pub(super) thinks: bool,
}

impl Compiled {
    /// A copy that shares nothing, so that what one answer costs is not another's.
    pub(super) fn matcher(&self) -> Matcher {
        self.matcher.deep_clone()
    }
}

/// A model's trie and grammars.
#[derive(Default)]
pub(crate) struct Grammars {
    words: Mutex<Option<Arc<Words>>>,
    kept: Mutex<VecDeque<([u8; 32], Arc<Compiled>)>>,
}

impl Grammars {
    pub(super) fn words(&self, core: &Core) -> Result<Arc<Words>> {
        // Held while it is built, so that it is built once.
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(words) = &*words {
            return Ok(Arc::clone(words));
        }
        let begun = Instant::now();
        let ends: Vec<u32> = core.tokenizer.ends().iter().chain(&core.ends).copied().collect();
        let built = Arc::new(Words::new(&core.tokenizer, &ends)?);
        let ms = begun.elapsed().as_millis();
        tracing::debug!(model = core.located.id, ms, "built the trie of the vocabulary");
        *words = Some(Arc::clone(&built));
        Ok(built)
    }

    fn find(&self, key: &[u8; 32]) -> Option<Arc<Compiled>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|(other, _)| other == key)?;
        let entry = kept.remove(place)?;
        let found = Arc::clone(&entry.1);
        kept.push_back(entry);
        Some(found)
    }

    fn keep(&self, key: [u8; 32], compiled: &Arc<Compiled>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((key, Arc::clone(compiled)));
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
}

/// The grammar that binds a request's answer, if any does, and the model's trie.
///
/// # Errors
/// `invalid-request` with `field` and `path`, `unsupported`, `busy` when it takes too long.
pub(super) async fn compile(
    core: &Arc<Core>,
    request: &Request,
    tools: bool,
    thoughts: Thoughts,
) -> Result<Option<(Arc<Words>, Arc<Compiled>)>> {
    let permit = match tokio::time::timeout(PATIENCE, PERMITS.acquire()).await {
        Ok(permit) => permit.map_err(|_| Error::internal("no compiler"))?,
        Err(_) => {
            let message = "other grammars are being compiled; try again shortly";
            return Err(Error::new(Code::Busy, message).retry_after(1000));
        }
    };
    let (core, request) = (Arc::clone(core), request.clone());
    let (reply, answer) = oneshot::channel();
    std::thread::Builder::new()
        .name("grammar".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let done = build(&core, &request, tools, thoughts);
            drop(permit);
            // Whoever asked may be gone.
            let _ = reply.send(done);
        })
        .map_err(|error| Error::internal(format!("cannot start a thread: {error}")))?;
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => Err(Error::internal("compiling the grammar met a defect")),
        Err(_) => Err(Error::invalid(format!(
            "the grammar is too large: compiling it took more than {} s",
            PATIENCE.as_secs()
        ))
        .with("field", "constraint")),
    }
}

fn build(
    core: &Core,
    request: &Request,
    tools: bool,
    thoughts: Thoughts,
) -> Result<Option<(Arc<Words>, Arc<Compiled>)>> {
    let draft = draft(request, &core.dialect, tools, &core.tokenizer, thoughts)?;
    let Some(draft) = draft else { return Ok(None) };
    let words = core.grammars.words(core)?;
    let text = serde_json::to_vec(&draft.grammar)
        .map_err(|error| Error::internal(format!("a grammar as JSON: {error}")))?;
    let key: [u8; 32] =
        Sha256::digest([&text[..], draft.after.as_deref().unwrap_or("\0").as_bytes()].concat())
            .into();
    if let Some(compiled) = core.grammars.find(&key) {
        return Ok(Some((words, compiled)));
    }
    let compiled = Arc::new(from_draft(&words, draft)?);
    core.grammars.keep(key, &compiled);
    Ok(Some((words, compiled)))
}

/// Compiles a draft, on a thread with [`STACK`].
pub(super) fn from_draft(words: &Words, draft: Draft) -> Result<Compiled> {
    let begun = Instant::now();
    let matcher = match compiled(words, draft.grammar.clone()) {
        Ok(matcher) => matcher,
        Err(message) => return Err(blame(words, &draft, &message)),
    };
    tracing::debug!(us = begun.elapsed().as_micros(), "compiled a grammar");
    Ok(Compiled { matcher, after: draft.after, thinks: draft.thinks })
}

fn compiled(words: &Words, grammar: TopLevelGrammar) -> std::result::Result<Matcher, String> {
    let mut matcher = Matcher::new(words.factory().create_parser(grammar));
    // What cannot begin is refused now rather than in the middle of an answer.
    if let Err(error) = matcher.compute_mask() {
        return Err(error.to_string());
    }
    match matcher.get_error() {
        Some(error) => Err(error),
        None => Ok(matcher),
    }
}

/// Says which subschema the engine refuses, and why in our own words.
fn blame(words: &Words, draft: &Draft, message: &str) -> Error {
    let begun = Instant::now();
    let mut tried = 0;
    for (field, exact) in &draft.schemas {
        for (path, node) in &exact.nodes {
            tried += 1;
            if tried > SEARCH.0 || begun.elapsed() > SEARCH.1 {
                break;
            }
            let document = document(node, &exact.definitions);
            if let Err(message) = compiled(words, TopLevelGrammar::from_json_schema(document)) {
                return refusal(field, path, &reason(&message));
            }
        }
    }
    if draft.schemas.is_empty() {
        // The author's own grammar: what the engine says of it is all there is.
        let short: String = message.lines().next().unwrap_or_default().chars().take(200).collect();
        return Error::new(Code::InvalidRequest, format!("the grammar is refused: {short}"))
            .with("field", &draft.field);
    }
    let field = draft.schemas.first().map_or("constraint", |(field, _)| field.as_str());
    refusal(field, "", &reason(message))
}

fn reason(message: &str) -> String {
    let says = |part: &str| message.contains(part);
    let reason = if says("oneOf") {
        "`oneOf` cannot be enforced unless a type or a constant tells its alternatives apart; `anyOf` can"
    } else if says("nsatisfiable") || says("is empty") || says("no tokens") || says("NoExtension") {
        "nothing can satisfy it"
    } else if says("too large")
        || says("fuel")
        || says("limit")
        || says("too many")
        || says("exceeded")
    {
        "too large to be enforced"
    } else if says("min/maxProperties") {
        "the number of members cannot be enforced where some of `properties` are optional"
    } else if says("disjoint") {
        "patterns of names that may overlap cannot be enforced"
    } else if says("circular") {
        "a reference to itself beside other keywords cannot be enforced"
    } else if says("multipleOf") {
        "the step cannot be enforced"
    } else {
        "cannot be enforced"
    };
    reason.to_owned()
}
