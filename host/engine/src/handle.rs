//! An open model, as the rest of the host sees it, and its running answers.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use gristmill_core::{
    Error, Extras, Result,
    capability::{Claim, ModelInfo, Reason, Support},
    event::Event,
    request::{EmbedRequest, Embeddings, Message, Ranked, Request, RerankRequest, Tool},
};
use tokio::sync::oneshot;

use crate::{
    constraint,
    core::Core,
    driver::{Command, Embedding, Origin, Shared, Source, Start, channel, overflow},
    engine::blocking,
    program::Op,
    prompt,
    runtime::{Decoding, Model, Session},
    sampler::Sampler,
    session::SessionHandle,
    text::{Assembler, Calls},
};

/// Texts of one embedding request.
const TEXTS: usize = 2048;

/// An open model.
#[derive(Debug)]
pub(crate) struct Handle {
    core: Arc<Core>,
    shared: Arc<Shared>,
}

static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// An id no other session of this process has.
pub(crate) fn session_id() -> u64 {
    SESSIONS.fetch_add(1, Ordering::Relaxed)
}

impl Handle {
    pub(crate) fn new(core: Arc<Core>, shared: Arc<Shared>) -> Self {
        Self { core, shared }
    }
}

/// The context a request may use.
pub(crate) fn limit(core: &Core, request: &Request) -> Result<usize> {
    match request.context {
        None => Ok(core.context),
        Some(wanted) if wanted as usize <= core.context && wanted > 0 => Ok(wanted as usize),
        Some(wanted) => Err(Error::invalid(format!(
            "`context`: expected 1 to {} tokens, found {wanted}",
            core.context
        ))
        .with("field", "context")
        .with("limit", core.context)),
    }
}

/// Submits an answer whose prompt or session is settled.
pub(crate) async fn submit(
    core: &Arc<Core>,
    shared: &Arc<Shared>,
    request: &Request,
    origin: Origin,
    text: &str,
    limit: usize,
) -> Result<Box<dyn Decoding>> {
    let settings = prompt::settings(core, request)?;
    let reading = prompt::reading(core, request, text)?;
    let guard = constraint::guard(core, request, &reading, prompt::closed(core, text)).await?;
    let ticket = shared.ticket(core)?;
    let (sink, source) = channel();
    let start = Start {
        core: Arc::clone(core),
        ticket,
        sink,
        origin,
        sampler: Sampler::new(settings),
        assembler: Assembler::new(reading),
        guard,
        logprobs: request.logprobs.map(|count| count as usize),
        max_tokens: request.max_tokens.map(|count| count as usize),
        limit,
    };
    shared.send(Command::Generate(Box::new(start)))?;
    let shared = Arc::clone(shared);
    Ok(Box::new(Answer { source, shared, left: VecDeque::new(), over: false }))
}

#[async_trait]
impl Model for Handle {
    fn info(&self) -> ModelInfo {
        let core = &self.core;
        let no = |name: &str, code: &str, detail: String| Claim {
            name: name.to_owned(),
            support: Support::Unsupported(Reason { code: code.to_owned(), detail }),
            value: None,
        };
        let either = |name: &str, yes: bool, detail: &str| {
            if yes { Claim::supported(name) } else { no(name, "not-offered", detail.to_owned()) }
        };
        let encodes = core.encodes();
        let shape = core.dialect.tools.as_ref().map(|tools| tools.shape.as_str());
        let tools = shape.is_some_and(Calls::knows);
        let valued =
            |name: &str, value: String| Claim { value: Some(value), ..Claim::supported(name) };
        let unread = shape.map_or_else(
            || "the family does not say how tools are called".to_owned(),
            |shape| format!("tool calls of shape `{shape}` are not read by this engine"),
        );
        let moe = core.plan.program.steps.iter().any(|step| matches!(step.op, Op::Moe(_)));
        let reasons = core.dialect.reasoning.is_some();
        let vectors = "this model makes embeddings";
        let claims = vec![
            either("inference.text", !encodes, "this model makes embeddings"),
            either("inference.chat", !encodes && core.template.is_some(), "no chat template"),
            no("inference.infill", "not-implemented", "no infill yet".to_owned()),
            either("architecture.dense", !moe, "a mixture of experts"),
            either("architecture.moe", moe, "no mixture of experts"),
            Claim::supported("embeddings"),
            no("reranking", "not-offered", "this model does not rank".to_owned()),
            either("tools.calling", tools, &unread),
            either("tools.streaming", tools, &unread),
            either("tools.parallel", tools, &unread),
            either("streaming.tool_arguments", tools, &unread),
            either("reasoning.control", reasons, "the model does not reason"),
            either("streaming.reasoning", reasons, "the model does not reason"),
            Claim::supported("streaming.content"),
            either("tools.required", tools, &unread),
            either("structured_output", !encodes, vectors),
            either("structured.json-object", !encodes, vectors),
            either("structured.json-schema", !encodes, vectors),
            either("structured.regex", !encodes, vectors),
            either("structured.grammar", !encodes, vectors),
            no("multimodal.vision", "not-implemented", "text only".to_owned()),
            no("multimodal.audio", "not-implemented", "text only".to_owned()),
            Claim::supported("logprobs"),
            Claim::supported("tokenize"),
            Claim::supported("cache.prompt_cache"),
            Claim::supported("cache.snapshot"),
            Claim::supported("placement.cpu"),
            valued("kv.type_k", core.types.k.name().to_owned()),
            valued("kv.type_v", core.types.v.name().to_owned()),
            valued("context.native_max", core.plan.program.context_native.to_string()),
            valued("context.requested_limit", core.context.to_string()),
        ];
        let facts = &core.located.facts;
        ModelInfo {
            id: core.located.id.clone(),
            names: core.located.names.clone(),
            digest: Some(core.located.digest.clone()),
            family: Some(core.family.clone()),
            quantization: Some(facts.quantization.clone()),
            parameters: Some(facts.parameters),
            size_bytes: Some(core.located.size),
            context_native: u32::try_from(core.plan.program.context_native).ok(),
            claims,
            extras: vec![
                ("architecture".to_owned(), core.metadata.architecture.clone()),
                ("program".to_owned(), core.plan.program.digest.clone()),
                ("manifest".to_owned(), core.manifest.clone()),
                ("embedding-length".to_owned(), core.plan.program.width.to_string()),
            ],
        }
    }

    fn tokenize(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        Ok(self.core.tokenizer.encode(text, special)?)
    }

    fn detokenize(&self, tokens: &[u32]) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        for &token in tokens {
            let bytes = self.core.tokenizer.token_bytes(token).ok_or_else(|| {
                Error::invalid(format!(
                    "token {token}: expected one below {}",
                    self.core.tokenizer.vocab_len()
                ))
            })?;
            out.extend(bytes);
        }
        Ok(out)
    }

    fn render(
        &self,
        messages: &[Message],
        tools: &[Tool],
        options: &Extras,
    ) -> Result<(Vec<u32>, String)> {
        prompt::render(&self.core, messages, tools, options)
    }

    async fn prompt(&self, request: Request) -> Result<(Vec<u32>, String)> {
        prompt::refuse(&self.core, &request)?;
        let core = Arc::clone(&self.core);
        blocking(move || prompt::tokens(&core, &request)).await
    }

    async fn generate(&self, request: Request) -> Result<Box<dyn Decoding>> {
        prompt::refuse(&self.core, &request)?;
        let limit = limit(&self.core, &request)?;
        let core = Arc::clone(&self.core);
        // A long conversation takes a while to render and to cut into tokens.
        let (request, (tokens, text)) = blocking(move || {
            let rendered = prompt::tokens(&core, &request)?;
            Ok((request, rendered))
        })
        .await?;
        if tokens.is_empty() {
            let message = "the prompt is empty: expected at least one token";
            return Err(Error::invalid(message).with("field", "prompt"));
        }
        if tokens.len() >= limit {
            return Err(overflow("prompt", 0, tokens.len(), limit));
        }
        submit(&self.core, &self.shared, &request, Origin::Prompt(tokens), &text, limit).await
    }

    async fn embed(&self, request: EmbedRequest) -> Result<Embeddings> {
        let core = Arc::clone(&self.core);
        let width = core.plan.hidden().1;
        let wanted = request.dimensions.map_or(width, |dimensions| dimensions as usize);
        if wanted == 0 || wanted > width {
            let message = format!("`dimensions`: expected 1 to {width}, found {wanted}");
            return Err(Error::invalid(message).with("field", "dimensions"));
        }
        if request.inputs.len() > TEXTS {
            let found = request.inputs.len();
            let message = format!("`inputs`: expected at most {TEXTS} texts, found {found}");
            return Err(Error::invalid(message).with("field", "inputs"));
        }
        if let Some((name, _)) = request.extras.iter().find(|(name, _)| name != "keep-alive") {
            let message = format!("the request extra `{name}` is not known to this engine");
            return Err(Error::unsupported(message).with("field", name));
        }
        let limit = if core.encodes() { core.context.min(core.rows) } else { core.context };
        let texts = blocking(move || {
            request
                .inputs
                .iter()
                .enumerate()
                .map(|(index, text)| {
                    let mut tokens = core.tokenizer.encode_prompt(text)?;
                    if tokens.len() > limit {
                        if !request.truncate {
                            let stage = format!("input {index}");
                            return Err(overflow(&stage, 0, tokens.len(), limit));
                        }
                        let last = tokens.last().copied();
                        tokens.truncate(limit);
                        // What ends every text ends a shortened one too.
                        if let (true, Some(slot)) = (core.tokenizer.add_eos(), tokens.last_mut()) {
                            *slot = last.unwrap_or(*slot);
                        }
                    }
                    if tokens.is_empty() {
                        let message = format!("input {index} is empty: expected a text");
                        return Err(Error::invalid(message).with("field", "inputs"));
                    }
                    Ok(tokens)
                })
                .collect::<Result<Vec<_>>>()
        })
        .await?;
        let prompt_tokens = texts.iter().map(Vec::len).sum::<usize>();
        let rows = texts.len();
        let mut data = Vec::with_capacity(rows * wanted);
        if rows > 0 {
            let (reply, vectors) = oneshot::channel();
            let embedding = Embedding {
                core: Arc::clone(&self.core),
                texts,
                reply: Some(reply),
                ticket: Some(self.shared.ticket(&self.core)?),
                work: crate::driver::Work::default(),
            };
            self.shared.send(Command::Embed(Box::new(embedding)))?;
            let guard = WakeOnDrop(Arc::clone(&self.shared));
            let vectors = vectors.await.map_err(|_| ended())??;
            drop(guard);
            for vector in vectors {
                let kept = vector.get(..wanted).unwrap_or_default();
                let length = kept.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
                if !length.is_finite() {
                    return Err(Error::internal("an embedding holds numbers that are not finite"));
                }
                let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
                data.extend(kept.iter().map(|x| (f64::from(*x) * scale) as f32));
            }
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Ok(Embeddings {
            dim: count(wanted),
            rows: count(rows),
            data,
            prompt_tokens: count(prompt_tokens),
        })
    }

    async fn rerank(&self, _request: RerankRequest) -> Result<Vec<Ranked>> {
        let message = format!("`{}` does not rank documents", self.core.located.id);
        Err(Error::unsupported(message).with("field", "model"))
    }

    async fn open_session(&self, options: Extras) -> Result<Box<dyn Session>> {
        let session = SessionHandle::open(&self.core, &self.shared, &options).await?;
        Ok(Box::new(session))
    }
}

pub(crate) fn ended() -> Error {
    Error::internal("the engine's thread has ended")
}

/// Makes the driver notice that somebody has gone.
struct WakeOnDrop(Arc<Shared>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// A running answer's reader.
struct Answer {
    source: Source,
    shared: Arc<Shared>,
    left: VecDeque<Event>,
    over: bool,
}

#[async_trait]
impl Decoding for Answer {
    async fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>> {
        while self.left.is_empty() {
            if self.over {
                return Ok(None);
            }
            let batch = self.source.events.recv().await;
            if self.source.starved.swap(false, Ordering::SeqCst) {
                self.shared.wake();
            }
            match batch {
                Some(Ok(events)) => {
                    self.over |= matches!(events.last(), Some(Event::Finish(_)));
                    self.left.extend(events);
                }
                Some(Err(error)) => {
                    self.over = true;
                    return Err(error);
                }
                None => {
                    self.over = true;
                    return Err(ended());
                }
            }
        }
        let count = (max.max(1) as usize).min(self.left.len());
        Ok(Some(self.left.drain(..count).collect()))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.source.events.close();
        self.shared.wake();
    }
}
