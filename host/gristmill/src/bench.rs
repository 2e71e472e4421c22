//! `gristmill bench`: the engine's speed on a model file, as one line of JSON.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use gristmill_engine::measure::{Measure, measure};
use gristmill_kernels::Pool;

use crate::{
    compose::{Places, families},
    settings::Settings,
};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A GGUF file
    file: PathBuf,
    /// Tokens of the prompt
    #[arg(long, default_value_t = 512)]
    prefill: usize,
    /// Tokens generated
    #[arg(long, default_value_t = 128)]
    decode: usize,
    /// Tokens that each sequence holds before it is decoded
    #[arg(long, default_value_t = 0)]
    depth: usize,
    /// Sequences decoded at once
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Times each is measured; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
}

/// Measures and prints.
pub(crate) fn bench(settings: &Settings, places: &Places, arguments: &Arguments) -> Result<()> {
    let threads = settings.count("engine.threads").and_then(|count| usize::try_from(count).ok());
    let what = Measure {
        threads: threads.unwrap_or_else(Pool::available),
        prefill: arguments.prefill,
        decode: arguments.decode,
        depth: arguments.depth,
        batch: arguments.batch,
        rounds: arguments.repeat,
    };
    println!("{}", measure(&arguments.file, &*families(settings, places)?, what)?);
    Ok(())
}
