//! The small vector operations between matrix products: norms, rotary positions, activations,
//! softmax, scans of the logits. Plain slices, one thread, the best instruction set at hand.
//!
//! Each operation is one plain body, compiled once per instruction set (see [`multiversion`]).

pub(crate) mod math;
pub(crate) mod quantize;
mod recurrent;
mod rope;
mod scan;
pub(crate) mod vector;

pub use recurrent::{Gates, convolve, delta_rule};
pub use rope::{RopeStyle, RopeTable, Rotations, rope};
pub use scan::{above, argmax, keep_best, peaks, top_k};
pub use vector::{
    activate, add, dot, glu_in_place, l2_norm, layer_norm, log_sum_exp, multiply, multiply_add,
    rms_norm, rms_norm_in_place, scale, sigmoid, softcap, softmax,
};

/// A function applied between matrix products.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// x.
    Identity,
    /// x * sigmoid(x).
    Silu,
    /// GELU, tanh form.
    GeluTanh,
    /// GELU, erf form.
    GeluErf,
    /// x * sigmoid(1.702 x).
    GeluQuick,
    /// max(x, 0).
    Relu,
    /// max(x, 0)^2.
    ReluSquared,
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// gpt-oss: gate and up clamped to `limit`, gate * sigmoid(alpha * gate) * (up + 1).
    SwigluOai {
        /// Slope of the sigmoid.
        alpha: f32,
        /// Clamp of gate (above) and up (both sides).
        limit: f32,
    },
}

/// `out = activation(gate) * up`.
///
/// Slices of different lengths are worked on up to the shortest.
pub fn glu(activation: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    let n = out.len().min(gate.len()).min(up.len());
    if let (Some(out), Some(gate), Some(up)) = (out.get_mut(..n), gate.get(..n), up.get(..n)) {
        out.copy_from_slice(gate);
        glu_in_place(activation, out, up);
    }
}

/// Compiles one body for every instruction set: `name_on(isa, …)` takes it by argument, `name(…)`
/// uses the current one. The body is generic over `const FMA: bool` (see [`math::fma`]).
macro_rules! multiversion {
    ($(#[$doc:meta])* $vis:vis fn $name:ident / $name_on:ident = $body:ident
     ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?) => {
        $(#[$doc])*
        #[inline]
        #[allow(dead_code, reason = "some are used with an instruction set given only")]
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            $name_on(crate::isa::current(), $($arg),*)
        }

        /// The same on a given instruction set, which the processor must have.
        #[allow(unsafe_code, reason = "calls of functions compiled for more features")]
        #[inline]
        pub(crate) fn $name_on(isa: crate::isa::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
                fn avx512($($arg: $ty),*) $(-> $ret)? { $body::<true>($($arg),*) }
                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2($($arg: $ty),*) $(-> $ret)? { $body::<true>($($arg),*) }
                match isa {
                    // SAFETY: an `Isa` above scalar exists only where `isa::offered` found its
                    // features.
                    crate::isa::Isa::Avx512 | crate::isa::Isa::Amx => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    crate::isa::Isa::Avx2 => return unsafe { avx2($($arg),*) },
                    crate::isa::Isa::Scalar => {}
                }
            }
            let _ = isa;
            $body::<false>($($arg),*)
        }
    };
}
pub(crate) use multiversion;
