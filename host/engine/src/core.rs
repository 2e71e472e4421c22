//! A loaded model: everything about it that does not change while it serves.

use std::{
    panic::resume_unwind,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64},
    },
    thread,
    time::Instant,
};

use gristmill_core::{
    Error, Result,
    program::{Dialect, Families, Metadata, Resolved},
};
use gristmill_models::{
    ChatTemplate, Gguf, Tokenizer,
    store::{Located, Store},
};
use sha2::{Digest, Sha256};

use crate::{
    cache::KvTypes,
    constraint::Grammars,
    execute::MOST_SEQUENCES,
    memory::{Memory, Reservation},
    packing::{self, Place, Placement},
    plan::{Capacity, Plan},
    program::{self, check},
    speculation::MOST,
    weights::Weights,
};

/// Rows of a pass that reads a prompt: enough for the kernels to be at their best, and about a
/// third of a second of a small model's time on two processors.
pub(crate) const PREFILL_ROWS: usize = 512;

/// A model's plan, weights, words and manners.
pub(crate) struct Core {
    /// Differs for every load.
    pub(crate) key: u64,
    pub(crate) located: Located,
    pub(crate) metadata: Metadata,
    pub(crate) family: String,
    pub(crate) plan: Arc<Plan>,
    /// The model's file; weights may be mapped from it.
    pub(crate) file: Arc<Gguf>,
    /// Replaced between passes when a package is ready; an error once they are known to be
    /// damaged.
    weights: Mutex<(Result<Arc<Weights>>, Placement)>,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) template: Option<ChatTemplate>,
    pub(crate) dialect: Dialect,
    /// What binds answers, made when it is first asked for.
    pub(crate) grammars: Grammars,
    /// Tokens that end a turn, besides those the tokenizer knows.
    pub(crate) ends: Vec<u32>,
    /// Texts that end a turn and are no single token.
    pub(crate) end_texts: Vec<String>,
    pub(crate) types: KvTypes,
    pub(crate) capacity: Capacity,
    /// Tokens one sequence may have.
    pub(crate) context: usize,
    /// Rows of the largest pass.
    pub(crate) rows: usize,
    /// Rows of prompt in a pass that others wait for.
    pub(crate) mixed_rows: usize,
    /// Digest of everything that must be equal for a cache to be used again.
    pub(crate) manifest: String,
    /// Microseconds it took to load; taken by the first answer.
    pub(crate) load: AtomicU64,
    /// Answers running or queued.
    pub(crate) active: AtomicU32,
    /// Weights and buffers.
    pub(crate) memory: Reservation,
    /// Bytes of its contexts, running, idle and of sessions, as of the last round.
    pub(crate) contexts: AtomicU64,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Core({})", self.located.id)
    }
}

/// What loading needs to know.
pub(crate) struct Loading<'a> {
    /// Where packages are; none: matrices are packed into memory before the first answer.
    pub(crate) packages: Option<&'a Store>,
    pub(crate) families: &'a dyn Families,
    pub(crate) memory: &'a Arc<Memory>,
    pub(crate) types: KvTypes,
    pub(crate) context: Option<u32>,
    pub(crate) max_active: usize,
    pub(crate) key: u64,
}

impl Core {
    /// Opens a model's file and makes everything ready for the first token. Blocks, and runs Wasm.
    pub(crate) fn load(located: Located, loading: &Loading<'_>) -> Result<Self> {
        let begun = Instant::now();
        let path = located
            .paths
            .first()
            .ok_or_else(|| Error::not_found(format!("the model `{}` has no files", located.id)))?;
        let gguf = Arc::new(Gguf::open(path)?);
        // Side by side, because each is a good part of the time to the first token.
        let (tokenizer, ready) = thread::scope(|scope| {
            let words = thread::Builder::new()
                .name("words".to_owned())
                .spawn_scoped(scope, || Tokenizer::from_gguf(&gguf));
            let ready = Ready::new(&located, &gguf, loading);
            let tokenizer = match words {
                Ok(words) => words.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // No thread is to be had: one after the other.
                Err(_) => Tokenizer::from_gguf(&gguf),
            };
            (tokenizer, ready)
        });
        let ready = ready?;
        let tokenizer = tokenizer?;
        let Ready { metadata, resolved, plan, weights, placement, memory, context, rows, capacity } =
            ready;
        if tokenizer.vocab_len() as usize > plan.program.vocabulary {
            return Err(Error::invalid(format!(
                "the file has {} tokens, its program only {}",
                tokenizer.vocab_len(),
                plan.program.vocabulary
            )));
        }
        let dialect = resolved.dialect;
        let source = match &dialect.template {
            Some(source) => Some(source.clone()),
            None => gguf.text("tokenizer.chat_template")?.map(str::to_owned),
        };
        let word = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id)).unwrap_or("");
        let template = source
            .as_deref()
            .map(|source| {
                ChatTemplate::compile(source, word(tokenizer.bos()), word(tokenizer.eos()))
            })
            .transpose()?;
        let (mut ends, mut end_texts) = (Vec::new(), Vec::new());
        for stop in &dialect.stops {
            match tokenizer.id_of(stop) {
                Some(id) => ends.push(id),
                None if stop.is_empty() => {}
                None => end_texts.push(stop.clone()),
            }
        }
        let mut manifest = Sha256::new();
        for part in [
            located.digest.as_str(),
            &plan.program.digest,
            &resolved.digest,
            source.as_deref().unwrap_or(""),
            loading.types.k.name(),
            loading.types.v.name(),
            if plan.turns_long() { "long" } else { "" },
            env!("CARGO_PKG_VERSION"),
        ] {
            manifest.update((part.len() as u64).to_le_bytes());
            manifest.update(part);
        }
        let manifest = hex(&manifest.finalize());
        // About 50 G multiplications, some tenths of a second, between tokens of other answers.
        let weights_per_row = (capacity.weights as usize).max(1);
        let mixed_rows = (50_000_000_000 / weights_per_row).clamp(32, PREFILL_ROWS);
        let load = AtomicU64::new(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
        Ok(Self {
            key: loading.key,
            located,
            metadata,
            family: resolved.family,
            plan,
            file: gguf,
            weights: Mutex::new((Ok(Arc::new(weights)), placement)),
            tokenizer,
            template,
            dialect,
            grammars: Grammars::default(),
            ends,
            end_texts,
            types: loading.types,
            capacity,
            context,
            rows,
            mixed_rows,
            manifest: format!("sha256:{manifest}"),
            load,
            active: AtomicU32::new(0),
            memory,
            contexts: AtomicU64::new(0),
        })
    }

    /// Rows of a pass that may want logits.
    pub(crate) fn wanted(&self, max_active: usize) -> usize {
        wanted(max_active)
    }

    /// The weights as of now.
    ///
    /// # Errors
    /// `non-finite` once some are known to be no numbers.
    pub(crate) fn weights(&self) -> Result<Arc<Weights>> {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Where they are.
    pub(crate) fn placement(&self) -> Placement {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// The next pass takes these.
    pub(crate) fn replace(&self, weights: Result<Weights>, placement: Placement) {
        let weights = weights.map(Arc::new);
        *self.weights.lock().unwrap_or_else(PoisonError::into_inner) = (weights, placement);
    }

    /// Says something about where they are.
    pub(crate) fn note(&self, placement: Placement) {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner).1 = placement;
    }

    /// Whether generation ends with this token.
    pub(crate) fn ends_with(&self, token: u32) -> bool {
        self.tokenizer.is_end(token) || self.ends.contains(&token)
    }

    /// Whether it makes vectors and not text.
    pub(crate) fn encodes(&self) -> bool {
        self.plan.program.result == program::Result::Pooled
    }
}

/// What a model computes with.
struct Ready {
    metadata: Metadata,
    resolved: Resolved,
    plan: Arc<Plan>,
    weights: Weights,
    placement: Placement,
    memory: Reservation,
    context: usize,
    rows: usize,
    capacity: Capacity,
}

impl Ready {
    fn new(located: &Located, gguf: &Arc<Gguf>, loading: &Loading<'_>) -> Result<Self> {
        let metadata = gguf.metadata();
        let resolved = loading.families.resolve(&metadata)?;
        let checked = check(&resolved.program, &metadata)
            .map_err(|fault| Error::from(fault).with("family", &resolved.family))?;
        let plan = Plan::new(Arc::new(checked));
        let native = plan.program.context_native;
        let context = loading.context.map_or(native, |cap| (cap as usize).min(native));
        let plan = Arc::new(plan.for_context(context));
        let capacity = plan.capacity(loading.types);
        let encoder = plan.program.result == program::Result::Pooled;
        // An encoder reads a text at once.
        let rows = if encoder { context.clamp(PREFILL_ROWS, 4096) } else { PREFILL_ROWS };
        let rows = rows + loading.max_active.min(MOST_SEQUENCES);
        let cost = capacity.cost(wanted(loading.max_active), 0, rows);
        let memory = loading
            .memory
            .reserve(cost.weights + cost.buffers, &format!("the model `{}`", located.id))?;
        let packed =
            loading.packages.and_then(|store| packing::open(store, &located.digest, &plan, gguf));
        let (weights, placement) = match (packed, loading.packages) {
            (Some(packed), _) => packed,
            (None, Some(_)) => {
                (Weights::mapped(&plan, Arc::clone(gguf))?, Placement::new(Place::File))
            }
            (None, None) => (Weights::load(&plan, &**gguf, true)?, Placement::new(Place::Memory)),
        };
        Ok(Self { metadata, resolved, plan, weights, placement, memory, context, rows, capacity })
    }
}

/// Rows of a pass that may want logits: one an answer, or those of a lone answer's guesses.
fn wanted(max_active: usize) -> usize {
    max_active.clamp(MOST + 1, MOST_SEQUENCES)
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| char::from(DIGITS.get(usize::from(n)).copied().unwrap_or(b'?'));
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
