//! `llama-logits FILE STEP usual|exact < tokens`: llama.cpp's logits after every token, as 32-bit
//! little-endian floats on stdout, one row of the vocabulary after the other.
//!
//! `STEP` tokens are computed at once. `usual` is llama.cpp as it comes; `exact` keeps K and V in
//! F32 and computes attention without the fused kernel, for a file whose weights are F32.

use std::{
    io::{BufWriter, Read, Write},
    num::NonZeroU32,
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use llama_cpp_2::{
    context::params::{KvCacheType, LlamaContextParams},
    llama_backend::LlamaBackend,
    llama_batch::LlamaBatch,
    model::{LlamaModel, params::LlamaModelParams},
    send_logs_to_tracing,
    token::LlamaToken,
};

/// `LLAMA_FLASH_ATTN_TYPE_DISABLED`.
const NO_FUSED_ATTENTION: i32 = 0;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, step, mode] = args.as_slice() else {
        bail!("usage: llama-logits FILE STEP usual|exact")
    };
    let step: usize = step.parse()?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let tokens = text.split_whitespace().map(str::parse).collect::<Result<Vec<i32>, _>>()?;

    send_logs_to_tracing(llama_cpp_2::LogOptions::default().with_logs_enabled(false));
    let backend = LlamaBackend::init()?;
    let model =
        LlamaModel::load_from_file(&backend, PathBuf::from(file), &LlamaModelParams::default())
            .with_context(|| format!("llama.cpp cannot load {file}"))?;
    let length = u32::try_from(tokens.len())?;
    let mut params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(length.next_multiple_of(256)))
        .with_n_batch(length)
        .with_n_ubatch(length)
        // Small models: on a busy machine they wait longer at barriers than they compute.
        .with_n_threads(1)
        .with_n_threads_batch(1);
    match mode.as_str() {
        "usual" => {}
        "exact" => {
            params = params
                .with_type_k(KvCacheType::F32)
                .with_type_v(KvCacheType::F32)
                .with_flash_attention_policy(NO_FUSED_ATTENTION);
        }
        other => bail!("expected usual or exact, found {other}"),
    }
    let mut context = model.new_context(&backend, params)?;
    let mut out = BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
    let mut batch = LlamaBatch::new(step, 1);
    for (index, part) in tokens.chunks(step).enumerate() {
        batch.clear();
        for (offset, token) in part.iter().enumerate() {
            let position = i32::try_from(index * step + offset)?;
            batch.add(LlamaToken(*token), position, &[0], true)?;
        }
        context.decode(&mut batch)?;
        for row in 0..part.len() {
            for logit in context.get_logits_ith(i32::try_from(row)?) {
                out.write_all(&logit.to_le_bytes())?;
            }
        }
    }
    out.flush()?;
    Ok(())
}
