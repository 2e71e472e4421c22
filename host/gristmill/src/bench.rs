//! `gristmill bench`: the engine's speed on a model file, or what loading a stored model takes, as
//! one line of JSON.

use std::{
    env,
    io::{BufRead, BufReader, stdin},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use gristmill_engine::measure::{Measure, load, measure, pss};
use gristmill_kernels::Pool;
use serde_json::{Value, json};

use crate::{
    compose::{Places, engine_config, families, warm},
    models::store,
    settings::Settings,
};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A GGUF file; with --load, a model of the store
    file: PathBuf,
    /// Measure from nothing to the first token instead, and the memory of so many processes that
    /// serve the model at once
    #[arg(
        long,
        value_name = "PROCESSES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        overrides_with = "load"
    )]
    load: Option<usize>,
    /// With --load: wait until the model runs from its package
    #[arg(long)]
    settle: bool,
    /// With --load: keep the model until standard input ends
    #[arg(long, hide = true)]
    hold: bool,
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
    match arguments.load {
        Some(0 | 1) => return load_one(settings, places, arguments),
        Some(many) => return load_many(arguments, many),
        None => {}
    }
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

fn load_one(settings: &Settings, places: &Places, arguments: &Arguments) -> Result<()> {
    let begun = Instant::now();
    warm();
    let (id, families) = (arguments.file.display().to_string(), families(settings, places)?);
    let config = engine_config(settings)?;
    let (found, model) = load(&store(places)?, &id, families, config, begun, arguments.settle)?;
    println!("{found}");
    if arguments.hold {
        stdin().read_line(&mut String::new()).context("cannot wait for standard input")?;
    }
    drop(model);
    Ok(())
}

/// Copies of this process with its arguments, one after the other, all of them then looked at.
fn load_many(arguments: &Arguments, many: usize) -> Result<()> {
    let program = env::current_exe().context("cannot find this program's own file")?;
    let mut children: Vec<Child> = Vec::new();
    let mut reports: Vec<Value> = Vec::new();
    let settings = env::args_os().skip(1).collect::<Vec<_>>();
    for _ in 0..many {
        let mut command = Command::new(&program);
        // Settings may be flags; the last word on the number of processes counts.
        command.args(&settings).args(["--load=1", "--hold"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let out = child.stdout.as_mut().context("a process without output")?;
        BufReader::new(out).read_line(&mut line)?;
        children.push(child);
        match serde_json::from_str(&line) {
            Ok(report) => reports.push(report),
            Err(error) => {
                children.iter_mut().for_each(|child| drop(child.kill()));
                bail!("a process said {line:?}: {error}");
            }
        }
    }
    let shares: Vec<Option<u64>> = children.iter().map(|child| pss(child.id())).collect();
    for mut child in children {
        drop(child.stdin.take());
        child.wait()?;
    }
    println!(
        "{}",
        json!({
            "model": arguments.file.display().to_string(),
            "processes": reports,
            "pss_bytes": shares.iter().flatten().sum::<u64>(),
        })
    );
    Ok(())
}
