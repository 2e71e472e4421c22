//! Back-ends: what serves models, either a bridge to a server ([`host::upstream`]) or the front of
//! one of the host's engines ([`host::engine`], [`host::onnx`], [`host::kernels`]).
//!
//! Every answer runs in an instance of its own: statics are fresh, and nothing survives it.

use alloc::{boxed::Box, format, string::String, vec::Vec};
use core::{cell::RefCell, marker::PhantomData};

use crate::{
    Descriptor, EmbedRequest, Embeddings, Error, Event, ModelInfo, Ranked, Readiness, Request,
    RerankRequest, Result, bindings::backend::exports::gristmill::contract::serving,
};

/// What a back-end answers. Only [`Backend::describe`] and [`Backend::models`] must be written;
/// everything else answers `unsupported` until it is.
pub trait Backend {
    /// What it is and what it claims. Claims are checked by probes: claim what you can show.
    fn describe() -> Descriptor;

    /// The models it serves.
    ///
    /// # Errors
    /// When they cannot be listed now.
    fn models() -> Result<Vec<ModelInfo>>;

    /// Starts an answer; the host pulls it by [`Generation::next`].
    ///
    /// # Errors
    /// Whatever is wrong before the first event: here the caller still gets a proper status.
    fn generate(request: Request) -> Result<impl Generation> {
        Err::<Nothing, _>(not_offered("generation", &request.model))
    }

    /// One vector per text, in the order of the texts.
    ///
    /// # Errors
    /// `unsupported` unless written.
    fn embed(request: EmbedRequest) -> Result<Embeddings> {
        Err(not_offered("embedding", &request.model))
    }

    /// Documents by relevance, best first.
    ///
    /// # Errors
    /// `unsupported` unless written.
    fn rerank(request: RerankRequest) -> Result<Vec<Ranked>> {
        Err(not_offered("ranking", &request.model))
    }

    /// Tokens of a text. `special`: spellings of special tokens become those tokens.
    ///
    /// # Errors
    /// `unsupported` unless written.
    fn tokenize(model: &str, text: &str, special: bool) -> Result<Vec<u32>> {
        let _ = (text, special);
        Err(not_offered("tokenizing", model))
    }

    /// The bytes tokens stand for.
    ///
    /// # Errors
    /// `unsupported` unless written.
    fn detokenize(model: &str, tokens: &[u32]) -> Result<Vec<u8>> {
        let _ = tokens;
        Err(not_offered("detokenizing", model))
    }

    /// Whether it can serve now.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn health() -> Result<Readiness> {
        Ok(Readiness::ready("ready"))
    }
}

/// A running answer. Dropped when the caller goes away, or when it has ended.
pub trait Generation: 'static {
    /// Waits for at least one event and returns at most `max`. `None`: the answer is over. The last
    /// event before that is `Finish`, and there is exactly one.
    ///
    /// # Errors
    /// The failure that ends the answer.
    fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>>;
}

fn not_offered(what: &str, model: &str) -> Error {
    Error::unsupported(format!("this back-end does not offer {what} (model {model})"))
}

/// What a back-end without generation generates.
enum Nothing {}

impl Generation for Nothing {
    fn next(&mut self, _: u32) -> Result<Option<Vec<Event>>> {
        match *self {}
    }
}

/// What the host may offer a back-end. Using one puts it on the component's import list, and so
/// into its pin.
pub mod host {
    /// The host's native engines: open a model, generate, embed, or drive a session.
    pub mod engine {
        pub use crate::bindings::backend::gristmill::contract::engine::*;
    }
    /// Quantised matrices in the host, for plugins that compute something of their own.
    pub mod kernels {
        pub use crate::bindings::backend::gristmill::contract::kernels::*;
    }
    /// Servers that the grant names.
    pub mod upstream {
        pub use crate::bindings::backend::gristmill::contract::upstream::*;
    }
    /// ONNX Runtime.
    pub mod onnx {
        pub use crate::bindings::backend::gristmill::contract::onnx::*;
    }
}

/// The contract's `serving`, answered by a [`Backend`]. [`export_backend!`](crate::export_backend)
/// uses it.
#[doc(hidden)]
pub struct Served<B>(PhantomData<B>);

/// The contract's `generation`, answered by any [`Generation`].
#[doc(hidden)]
pub struct Running(RefCell<Box<dyn Generation>>);

impl serving::GuestGeneration for Running {
    fn next(&self, max: u32) -> Result<Option<Vec<Event>>> {
        self.0.borrow_mut().next(max)
    }
}

impl<B: Backend> serving::Guest for Served<B> {
    type Generation = Running;

    fn describe() -> Descriptor {
        B::describe()
    }

    fn models() -> Result<Vec<ModelInfo>> {
        B::models()
    }

    fn generate(request: Request) -> Result<serving::Generation> {
        let generation = B::generate(request)?;
        Ok(serving::Generation::new(Running(RefCell::new(Box::new(generation)))))
    }

    fn embed(request: EmbedRequest) -> Result<Embeddings> {
        B::embed(request)
    }

    fn rerank(request: RerankRequest) -> Result<Vec<Ranked>> {
        B::rerank(request)
    }

    fn tokenize(model: String, text: String, special: bool) -> Result<Vec<u32>> {
        B::tokenize(&model, &text, special)
    }

    fn detokenize(model: String, tokens: Vec<u32>) -> Result<Vec<u8>> {
        B::detokenize(&model, &tokens)
    }

    fn health() -> Result<Readiness> {
        B::health()
    }
}

/// Makes the crate a back-end component: `export_backend!(MyBackend);`, once.
#[macro_export]
macro_rules! export_backend {
    ($backend:ty) => {
        #[cfg(target_arch = "wasm32")]
        #[allow(
            unsafe_code,
            unused_imports,
            missing_docs,
            clippy::all,
            reason = "generated exports"
        )]
        mod exported {
            use super::*;
            type Exported = $crate::backend::Served<$backend>;
            $crate::bindings::backend::export!(Exported with_types_in $crate::bindings::backend);
        }
    };
}
