//! Packed weights: panels of 16 rows laid out for the vector unit.
//!
//! A panel holds 16 consecutive rows; all its data for one super-block of columns is contiguous.
//! Inside, a 64-byte vector has 16 rows of 4 consecutive columns: one 8-bit multiply-add
//! instruction turns it, and 4 broadcast activations, into 16 partial sums of 16 rows. Codes are
//! unsigned; offsets are paid by the accumulator's starting value (see [`crate::act`]). A 32-value
//! block is 8 such vectors ("units", unit `u` has columns `4u..4u+4`); 4-bit codes keep units `t`
//! and `4 + t` in the low and high nibbles of vector `t`. Packed bytes are the source's, except
//! for padding of the last panel and of an odd last block.

mod id;
mod layout;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod x86;

pub use id::LayoutId;
pub(crate) use layout::{Layout, Panels};
