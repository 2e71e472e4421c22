//! The documentation's table of tensor types: what the registry knows of each.

use crate::quant::{Paths, Quant};

/// The page above the table's rows; `measured` says how its rates came about.
pub fn head(measured: &str) -> String {
    format!(
        "# Quantization

Every tensor type of GGUF files is read; ids that ggml has removed are refused by their name. This
page is written by `cargo run --release -p gristmill-kernels --example quantization_table -- \
docs/quantization.md`; a test holds all but the measured columns to the registry.

Products are computed with weights as the file quantises them and activations of 8 bits with a
scale per 32 values. *Panels*: weights are packed into panels of 16 rows, for one token, a few and
many, never into more bytes than the file's; until they are packed their rows are read as they are.
*Grid*: rows are read as they are, and unpacked into panels for more than 8 tokens. *Floats*: rows
and activations are floats. *Decoded*: no weight type of models; decoded to floats first.

Every kernel exists for AVX-512 (with VBMI and VNNI) and for AVX2 (with FMA and F16C), and in plain
code. At start each is tried on a small known product; one that fails lowers the instruction set for
all, and `gristmill host profile` says which it was. `GRISTMILL_ISA=scalar|avx2|avx512|amx` lowers it
by hand. Panels give the same bits with every one of these instruction sets and every number of
tokens.

Where the processor has AMX, the tokens of a prompt whose logits nobody asked for come in *bulk*:
weights of panels and grids become tiles of bf16, as many columns at a time as stay near, and meet
activations rounded to bf16. That is closer to the exact product than 8-bit activations are, and
not the same, so a prompt's numbers differ in their last digits between AMX and the other
instruction sets. What a token gets still does not depend on its neighbours, on threads, or on where
the weights lie; answers, and guesses checked against them, are computed as everywhere.

{measured}

| id | type | values per block | bytes | bits per weight | products | GB/s AVX-512 | GB/s AVX2 |
|---|---|---|---|---|---|---|---|
"
    )
}

/// A type's row, without the measured columns.
pub fn row(quant: Quant) -> String {
    let (values, bytes) = (quant.block_len(), quant.block_bytes());
    let bits = (bytes * 8) as f64 / values as f64;
    let paths = match quant.paths() {
        Paths::Panels => "panels",
        Paths::Grid => "grid",
        Paths::Floats => "floats",
        Paths::Decoded => "decoded",
    };
    format!("| {} | {quant} | {values} | {bytes} | {bits} | {paths} |", quant.id())
}
