//! Model families as data: the model's *program* (see [`Builder`]) and its *dialect*.
//!
//! A family is pure: the same metadata gives the same answer, and the component imports nothing.
//! It runs once, when a model is opened; the host checks and executes what it returns.

mod dialect;
mod metadata;
mod program;
mod recurrent;
mod settings;

use alloc::{borrow::ToOwned, string::String};
use core::marker::PhantomData;

use crate::bindings::family::exports::gristmill::contract::family as contract;
pub use contract::{
    Attribute, Dialect, Metadata, Program, Span, State, Step, TensorInfo, ToolFormat, Value,
};
pub use program::{Builder, Operand};
pub use recurrent::DeltaRule;
pub use settings::{Activation, Attention, Layout, Moe, Rope, Scaling, Scoring};

use crate::Result;

/// What a family answers about one model.
pub trait Family {
    /// The family's name if the model is one of its own. Usually a look at `model.architecture`.
    fn matches(model: &Metadata) -> Option<&'static str>;

    /// How the model is computed.
    ///
    /// # Errors
    /// `invalid-request` for metadata that is missing or contradicts itself, naming the key or
    /// tensor; `unsupported` for a variant the family does not define.
    fn architecture(model: &Metadata) -> Result<Program>;

    /// How it speaks: chat format, stops, reasoning, tools, sampling of its own.
    ///
    /// # Errors
    /// As [`Family::architecture`].
    fn speak(model: &Metadata) -> Result<Dialect>;
}

/// The contract's `family`, answered by a [`Family`]. [`export_family!`](crate::export_family)
/// uses it.
#[doc(hidden)]
pub struct Member<F>(PhantomData<F>);

impl<F: Family> contract::Guest for Member<F> {
    fn matches(model: Metadata) -> Option<String> {
        F::matches(&model).map(str::to_owned)
    }

    fn architecture(model: Metadata) -> Result<Program> {
        F::architecture(&model)
    }

    fn speak(model: Metadata) -> Result<Dialect> {
        F::speak(&model)
    }
}

/// Makes the crate a family component: `export_family!(MyFamily);`, once.
#[macro_export]
macro_rules! export_family {
    ($family:ty) => {
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
            type Exported = $crate::family::Member<$family>;
            $crate::bindings::family::export!(Exported with_types_in $crate::bindings::family);
        }
    };
}
