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

use std::{path::PathBuf, sync::LazyLock};

use gristmill_reference::{
    divergence::Divergence,
    families::Native,
    llama::{Llama, Mode},
    subject::Subject,
};
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

/// How two divergences are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Mean,
    /// Where experts are chosen: rounding that lets another expert in, in either engine, moves a
    /// position's logits by a jump that says nothing of how exact its sums are.
    Median,
}

impl By {
    fn of(self, all: &Divergence) -> f64 {
        match self {
            Self::Mean => all.mean(),
            Self::Median => all.median(),
        }
    }
}

/// Compares files of one kind, prints a row for each way of computing, and holds us to llama.cpp.
fn compare(name: &str, files: &[PathBuf], apart: f64, by: By) {
    let ways = [("prefill", POSITIONS), ("decode", 1)];
    let mut exact = Divergence::default();
    let mut found = ways.map(|_| (Divergence::default(), Divergence::default()));
    for file in files {
        let work = tempfile::tempdir().unwrap();
        let subject = Subject::open(file, &Native).unwrap();
        let tokens = subject.tokens(TEXT, POSITIONS).unwrap();
        let vocabulary = subject.vocabulary();
        let plain = subject.plain_logits(&tokens).unwrap();
        assert_eq!(plain.len(), POSITIONS * vocabulary);
        assert!(plain.iter().all(|logit| logit.is_finite()));
        let expected = |position: usize| &plain[position * vocabulary..(position + 1) * vocabulary];

        let floats = work.path().join("f32.gguf");
        subject.write_f32(&floats).unwrap();
        let exactly = (Mode::Exact, POSITIONS);
        LLAMA
            .logits(&floats, &tokens, vocabulary, exactly, |position, row| {
                exact.add(expected(position), row);
            })
            .unwrap();
        for ((_, step), (ours, theirs)) in ways.into_iter().zip(&mut found) {
            let logits = subject.logits(&tokens, step).unwrap();
            for (position, row) in logits.chunks_exact(vocabulary).enumerate() {
                ours.add(expected(position), row);
            }
            LLAMA
                .logits(file, &tokens, vocabulary, (Mode::Usual, step), |position, row| {
                    theirs.add(expected(position), row);
                })
                .unwrap();
        }
    }
    println!(
        "{name:<24} plain f32 against llama.cpp on F32 weights: KL {:.2e}, worst {:.2e}, top-1 {:.1} %",
        exact.mean(),
        exact.worst(),
        exact.agreement()
    );
    assert!(exact.mean() <= apart, "{name}: two f32 passes differ by {:.2e}", exact.mean());
    for ((way, _), (ours, theirs)) in ways.iter().zip(&found) {
        let all = u32::try_from(files.len() * POSITIONS).unwrap();
        assert_eq!((ours.positions(), theirs.positions()), (all, all));
        println!(
            "{name:<24} {way:<8} KL(f32 || ours) {:.3e}  KL(f32 || llama.cpp) {:.3e}  \
             medians {:.3e} {:.3e}  top-1 ours {:.1} %, llama.cpp {:.1} %",
            ours.mean(),
            theirs.mean(),
            ours.median(),
            theirs.median(),
            ours.agreement(),
            theirs.agreement()
        );
        assert!(
            by.of(ours) <= by.of(theirs) * (1.0 + LUCK) + NOTHING,
            "{name}, {way}: ours {:.3e} is worse than llama.cpp's {:.3e} ({by:?})",
            by.of(ours),
            by.of(theirs)
        );
    }
}

/// Models of a mixture: its positions scatter more than a dense model's, and more of them are asked.
const MIXTURES: u64 = 8;

fn made(family: Family, mix: &str, tied: bool) {
    let work = tempfile::tempdir().unwrap();
    let name = format!("{}-{mix}{}", family.name(), if tied { "" } else { "-untied" });
    let seeds = if family.mixes() { 7..7 + MIXTURES } else { 7..8 };
    let files: Vec<PathBuf> = seeds
        .map(|seed| {
            let file = work.path().join(format!("{name}-{seed}.gguf"));
            models::write(&Shape { tied, ..Shape::tiny(family) }, mix, seed, &file).unwrap();
            file
        })
        .collect();
    let gelu = matches!(family, Family::Gemma2 | Family::Gemma3 | Family::StarCoder2);
    let by = if family.mixes() { By::Median } else { By::Mean };
    compare(&name, &files, if gelu { TABLE } else { COMPUTED }, by);
}

#[test]
fn smollm2_135m() {
    compare("SmolLM2-135M Q4_1", &[fetch::smollm2().unwrap()], COMPUTED, By::Mean);
}

#[test]
fn gemma3_270m() {
    compare("Gemma-3-270M Q4_K_M", &[fetch::gemma3().unwrap()], TABLE, By::Mean);
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

#[test]
fn mixtures_of_experts() {
    made(Family::Mixtral, "q4_k_m", false);
    made(Family::Mixtral, "q4_0", true);
    made(Family::Qwen3Moe, "q8_0", true);
    made(Family::Qwen3Moe, "q4_k_m", false);
    made(Family::Qwen2Moe, "q5_k_m", false);
    made(Family::Olmoe, "q6_k", false);
}

#[test]
fn layers_that_do_not_turn() {
    made(Family::SmolLm3, "q4_k_m", true);
    made(Family::Cohere2, "q8_0", true);
}

#[test]
fn yarn() {
    made(Family::Mistral3, "q5_0", false);
    made(Family::Olmo3, "q4_k_m", false);
}

#[test]
fn fused_matrices_and_two_sets_of_factors() {
    made(Family::Phi3, "q4_k_m", false);
    made(Family::Phi3Long, "q8_0", false);
}

#[test]
fn norms_before_and_behind() {
    made(Family::Glm4, "q4_k_m", false);
    made(Family::Olmo2, "q6_k", false);
}

#[test]
fn experts_with_a_bias_that_only_chooses() {
    made(Family::Glm4Moe, "q4_k_m", false);
    made(Family::Glm4Moe, "q8_0", false);
}

#[test]
fn gpt_oss_in_mxfp4() {
    made(Family::GptOss, "mxfp4_moe", false);
    made(Family::GptOss, "q8_0", false);
}

#[test]
fn latent_attention() {
    made(Family::DeepSeek3, "q6_k", false);
    made(Family::DeepSeek3, "q4_k_m", false);
}

#[test]
fn scales_and_side_by_side() {
    made(Family::Granite, "q4_k_m", true);
    made(Family::GraniteMoe, "q8_0", true);
    made(Family::CommandR, "q4_k_m", true);
    made(Family::StarCoder2, "q4_0", true);
}

#[test]
fn short_convolutions() {
    made(Family::Lfm2, "q4_k_m", true);
    made(Family::Lfm2, "q8_0", true);
    made(Family::Lfm2Moe, "q4_0", true);
}

#[test]
fn the_gated_delta_rule() {
    made(Family::Qwen3Next, "q8_0", false);
    made(Family::Qwen3Next, "q4_k_m", false);
    made(Family::Qwen35, "q4_k_m", false);
    made(Family::Qwen35Moe, "q5_k_m", false);
}

#[test]
fn other_names_for_known_blocks() {
    made(Family::InternLm2, "q4_k_m", false);
    made(Family::Ernie45, "q8_0", true);
    made(Family::SeedOss, "q4_k_m", false);
}
