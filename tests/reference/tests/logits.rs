//! For real and made-up models: logits at each of 256 positions from our fast path and from
//! llama.cpp on the same file, both against the plain f32 pass; and that pass against llama.cpp on
//! the same weights in F32, which is what makes it a reference at all.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{path::Path, sync::LazyLock};

use gristmill_reference::{
    divergence::Divergence,
    families::families,
    llama::{Llama, Mode},
    subject::Subject,
};
use gristmill_sandbox::FamilySet;
use gristmill_testing::{
    fetch,
    models::{self, Family, Shape},
};

const POSITIONS: usize = 256;
/// How much larger our divergence may be. Both engines round activations to eight bits, each with
/// its own luck: on one file llama.cpp's own two ways, prefill and decode, differ by more than this.
const LUCK: f64 = 0.05;
/// Nats below which a divergence is rounding of 32-bit sums.
const NOTHING: f64 = 1e-6;
/// How far two f32 passes may lie apart where every function is computed in f32.
const COMPUTED: f64 = 1e-8;
/// The same where llama.cpp looks GELU up in a table of 16-bit floats.
const TABLE: f64 = 1e-5;

const TEXT: &str = include_str!("text.txt");

static LLAMA: LazyLock<Llama> = LazyLock::new(|| Llama::build().unwrap());
static FAMILIES: LazyLock<FamilySet> = LazyLock::new(|| families().unwrap());

/// Compares one file, prints a row for each way of computing, and holds us to llama.cpp.
fn compare(name: &str, file: &Path, apart: f64) {
    let work = tempfile::tempdir().unwrap();
    let subject = Subject::open(file, &*FAMILIES).unwrap();
    let tokens = subject.tokens(TEXT, POSITIONS).unwrap();
    let vocabulary = subject.vocabulary();
    let plain = subject.plain_logits(&tokens).unwrap();
    assert_eq!(plain.len(), POSITIONS * vocabulary);
    assert!(plain.iter().all(|logit| logit.is_finite()));
    let expected = |position: usize| &plain[position * vocabulary..(position + 1) * vocabulary];

    let floats = work.path().join("f32.gguf");
    subject.write_f32(&floats).unwrap();
    let mut exact = Divergence::default();
    LLAMA
        .logits(&floats, &tokens, vocabulary, (Mode::Exact, POSITIONS), |position, row| {
            exact.add(expected(position), row);
        })
        .unwrap();
    println!(
        "{name:<24} plain f32 against llama.cpp on F32 weights: KL {:.2e}, worst {:.2e}, top-1 {:.1} %",
        exact.mean(),
        exact.worst(),
        exact.agreement()
    );
    assert!(exact.mean() <= apart, "{name}: two f32 passes differ by {:.2e}", exact.mean());

    for (way, step) in [("prefill", POSITIONS), ("decode", 1)] {
        let mut ours = Divergence::default();
        let logits = subject.logits(&tokens, step).unwrap();
        for (position, row) in logits.chunks_exact(vocabulary).enumerate() {
            ours.add(expected(position), row);
        }
        let mut theirs = Divergence::default();
        LLAMA
            .logits(file, &tokens, vocabulary, (Mode::Usual, step), |position, row| {
                theirs.add(expected(position), row);
            })
            .unwrap();
        assert_eq!((ours.positions(), theirs.positions()), (256, 256));
        println!(
            "{name:<24} {way:<8} KL(f32 || ours) {:.3e}  KL(f32 || llama.cpp) {:.3e}  \
             top-1 ours {:.1} %, llama.cpp {:.1} %",
            ours.mean(),
            theirs.mean(),
            ours.agreement(),
            theirs.agreement()
        );
        assert!(
            ours.mean() <= theirs.mean() * (1.0 + LUCK) + NOTHING,
            "{name}, {way}: ours {:.3e} is worse than llama.cpp's {:.3e}",
            ours.mean(),
            theirs.mean()
        );
    }
}

fn made(family: Family, mix: &str, tied: bool) {
    let work = tempfile::tempdir().unwrap();
    let name = format!("{}-{mix}{}", family.architecture(), if tied { "" } else { "-untied" });
    let file = work.path().join(format!("{name}.gguf"));
    models::write(&Shape { tied, ..Shape::tiny(family) }, mix, 7, &file).unwrap();
    let gelu = matches!(family, Family::Gemma2 | Family::Gemma3);
    compare(&name, &file, if gelu { TABLE } else { COMPUTED });
}

#[test]
fn smollm2_135m() {
    compare("SmolLM2-135M Q4_1", &fetch::smollm2().unwrap(), COMPUTED);
}

#[test]
fn gemma3_270m() {
    compare("Gemma-3-270M Q4_K_M", &fetch::gemma3().unwrap(), TABLE);
}

#[test]
fn llama_tied_and_untied() {
    made(Family::Llama, "q4_k_m", true);
    made(Family::Llama, "q4_0", false);
    made(Family::Llama, "f16", false);
}

#[test]
fn qwen2_with_biases() {
    made(Family::Qwen2, "q5_k_m", false);
    made(Family::Qwen2, "q5_0", true);
}

#[test]
fn qwen3_with_head_norms() {
    made(Family::Qwen3, "q8_0", true);
    made(Family::Qwen3, "q6_k", false);
}

#[test]
fn gemma2_with_soft_caps_and_windows() {
    made(Family::Gemma2, "q4_1", true);
    made(Family::Gemma2, "q4_k_m", true);
}

#[test]
fn gemma3_with_two_ropes() {
    made(Family::Gemma3, "q5_1", true);
    made(Family::Gemma3, "bf16", true);
}
