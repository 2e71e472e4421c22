//! A family's program, checked: from names and attributes to typed steps over known tensors.
//!
//! [`check`] is the only way in. It refuses, by name, whatever this host does not implement, every
//! tensor that is missing, misshapen or unread, every value that is unread or read too early, and
//! every number outside its bounds ([`limits`]). What it returns can be planned and executed
//! without another question.

mod attributes;
mod check;
mod fault;
mod ir;
pub mod limits;

pub use check::check;
pub use fault::Fault;
pub use ir::{
    Activation, Attention, Checked, Conv, DeltaRule, Head, Kv, Layout, Long, Memory, Moe, Op,
    Pooling, Recurrent, Result, Rope, Scaling, Scoring, Step, Tensor, TensorId, ValueId,
};
