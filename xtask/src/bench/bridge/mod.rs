//! `cargo xtask bench bridge`: what Gristmill adds between a client and a server that runs a model
//! already, and what the litellm proxy adds, in the same run. `docs/measuring.md` says how to read it.
//!
//! Time to first text and throughput are measured against a real llama-server, in turns. The cost of
//! an event, cancellation and stalled readers are measured against a server of the bench's own that
//! answers as fast as it is read: with a model behind it, they would vanish in its noise.

mod client;
mod fake;
mod servers;

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use super::process::Process;
use crate::{build, shell::root};
use client::{Client, Target, begin};
use fake::{Fake, Note};

const USAGE: &str = "\
cargo xtask bench bridge --server LLAMA_SERVER [--litellm false] [--model M] [--rounds N]
                         [--binary GRISTMILL] [--streams N] [--stalled N] [--seconds N] [--threads N]

  --server   llama.cpp's llama-server
  --binary   a gristmill with its share folder beside it; unless given, one is built (optimised)
  --litellm  false: without the litellm proxy (PyPI package litellm, installed under target)
  --model    smollm2, gemma3 or a GGUF file; smollm2 unless given
  --rounds   answers for the time to first text; 200 unless given
  --streams  streams at the same time; 64 unless given
  --stalled  readers that read nothing; 1000 unless given
  --seconds  for how long they do not; 60 unless given
  --threads  of llama-server; 2 unless given
";

struct Options {
    server: PathBuf,
    binary: Option<PathBuf>,
    litellm: bool,
    model: String,
    rounds: usize,
    streams: usize,
    stalled: usize,
    seconds: u64,
    threads: usize,
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        server: PathBuf::new(),
        binary: None,
        litellm: true,
        model: "smollm2".to_owned(),
        rounds: 200,
        streams: 64,
        stalled: 1_000,
        seconds: 60,
        threads: 2,
    };
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next().with_context(|| format!("{name} needs a value\n\n{USAGE}"))?;
        match name.as_str() {
            "--server" => options.server = PathBuf::from(value),
            "--binary" => options.binary = Some(std::fs::canonicalize(value)?),
            "--litellm" => options.litellm = value.parse()?,
            "--model" => options.model.clone_from(value),
            "--rounds" => options.rounds = value.parse::<usize>()?.max(1),
            "--streams" => options.streams = value.parse::<usize>()?.max(1),
            "--stalled" => options.stalled = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--threads" => options.threads = value.parse::<usize>()?.max(1),
            _ => bail!("no option {name}\n\n{USAGE}"),
        }
    }
    if !options.server.is_file() {
        bail!("--server: expected the file of a llama-server\n\n{USAGE}");
    }
    Ok(options)
}

/// Events of one fast answer. Enough that a few milliseconds at its beginning do not count.
const EVENTS: u64 = 5_000;
/// Fast answers per target.
const FAST_ROUNDS: usize = 9;
/// Cancelled requests of each kind.
const CANCELS: usize = 50;
/// After this, a cancellation has not arrived.
const PATIENCE: Duration = Duration::from_secs(5);
/// Tokens of one answer among many.
const TOKENS: u32 = 64;

/// A way to the two servers: direct, or through something.
struct Way {
    real: Target,
    fake: Target,
}

/// Measures and prints.
pub(super) fn run(args: &[String]) -> Result<()> {
    let options = options(args)?;
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => build::dist(build::Host::Measured)?,
    };
    let model = model(&options.model)?;
    let fake = Fake::start()?;
    let llama = servers::llama_server(&options.server, &model, options.streams, options.threads)?;
    let ours = servers::gristmill(&binary, &llama.address, &fake.address, options.stalled)?;
    let litellm = match options.litellm {
        true => Some(servers::litellm(&llama.address, &fake.address)?),
        false => None,
    };
    let way = |name, real: (&str, String), fake: (&str, String)| Way {
        real: Target { name, address: real.0.to_owned(), model: real.1 },
        fake: Target { name, address: fake.0.to_owned(), model: fake.1 },
    };
    let mut ways = vec![
        way(
            "direct",
            (&llama.address, servers::MODEL.to_owned()),
            (&fake.address, fake::MODEL.to_owned()),
        ),
        way(
            "gristmill",
            (&ours.address, format!("real/{}", servers::MODEL)),
            (&ours.address, format!("fake/{}", fake::MODEL)),
        ),
    ];
    if let Some(proxy) = &litellm {
        ways.push(way(
            "litellm",
            (&proxy.address, "real".to_owned()),
            (&proxy.address, "fake".to_owned()),
        ));
    }
    let processes = [None, Some(&ours), litellm.as_ref()];

    let mut report = Map::new();
    let first = first_text(&ways, options.rounds)?;
    let events = per_event(&ways, &processes)?;
    let many = throughput(&ways, options.streams)?;
    let cancelled = cancellation(&ways, &fake)?;
    let stalled = stalled(&ways, &ours, options.stalled, options.seconds)?;
    for (name, value) in [
        ("first_text_ms", first),
        ("event_us", events),
        ("tokens_per_second", many),
        ("cancellation_ms", cancelled),
        ("stalled_readers", stalled),
    ] {
        report.insert(name.to_owned(), value);
    }
    let file = root().join("target/bench-bridge.json");
    std::fs::write(&file, format!("{:#}\n", Value::from(report)))?;
    println!("\neverything in {}", file.display());
    Ok(())
}

/// A GGUF file, or the one that this name stands for, fetched by the test support.
fn model(name: &str) -> Result<PathBuf> {
    let file = PathBuf::from(name);
    if file.is_file() {
        return Ok(file);
    }
    build::host(build::Host::Measured)?;
    super::file(name)
}

/// The ways in the order of this round: back and forth, so that a machine that changes speed
/// changes all.
fn turns(ways: usize, round: usize) -> Vec<usize> {
    let forth = 0..ways;
    if round.is_multiple_of(2) { forth.collect() } else { forth.rev().collect() }
}

/// What share of the values is at most the answer.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(index.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

fn first_text(ways: &[Way], rounds: usize) -> Result<Value> {
    let mut clients: Vec<Client> = ways.iter().map(|way| Client::new(&way.real)).collect();
    let mut times = vec![Vec::new(); ways.len()];
    // One round warms up: connections, the server's prompt cache, a proxy's imports.
    for round in 0..=rounds {
        for turn in turns(ways.len(), round) {
            let (Some(client), Some(times)) = (clients.get_mut(turn), times.get_mut(turn)) else {
                continue;
            };
            let timing = client.ask("Count from one to ten.", 4)?;
            if round > 0 {
                times.push(timing.first.as_secs_f64() * 1e3);
            }
        }
    }
    println!("\ntime to first text, one stream, {rounds} answers each       p50        p99");
    let mut report = Map::new();
    let base = times.first().cloned().unwrap_or_default();
    for (way, times) in ways.iter().zip(&times) {
        let (p50, p99) = (quantile(times, 0.5), quantile(times, 0.99));
        let added = (p50 - quantile(&base, 0.5), p99 - quantile(&base, 0.99));
        println!("  {:<44} {p50:>8.3} ms {p99:>7.3} ms", way.real.name);
        if way.real.name != "direct" {
            println!("  {:<44} {:>8.3} ms {:>7.3} ms", "  added", added.0, added.1);
        }
        report.insert(
            way.real.name.to_owned(),
            json!({"p50": p50, "p99": p99, "added_p50": added.0, "added_p99": added.1}),
        );
    }
    Ok(report.into())
}

fn per_event(ways: &[Way], processes: &[Option<&Process>]) -> Result<Value> {
    let mut clients: Vec<Client> = ways.iter().map(|way| Client::new(&way.fake)).collect();
    let mut walls = vec![Vec::new(); ways.len()];
    let mut cpu = vec![0.0; ways.len()];
    for round in 0..=FAST_ROUNDS {
        for turn in turns(ways.len(), round) {
            let process = processes.get(turn).copied().flatten();
            let before = process.map(Process::cpu).transpose()?.unwrap_or_default();
            let Some(client) = clients.get_mut(turn) else { continue };
            let timing = client.ask(&format!("events {EVENTS}"), 1 << 20)?;
            let name = ways.get(turn).map(|way| way.fake.name).unwrap_or_default();
            ensure!(timing.text == EVENTS * fake::LENGTH, "{name}: lost some: {timing:?}");
            let after = process.map(Process::cpu).transpose()?.unwrap_or_default();
            if round == 0 {
                continue;
            }
            if let (Some(walls), Some(cpu)) = (walls.get_mut(turn), cpu.get_mut(turn)) {
                walls.push(timing.whole.as_secs_f64() * 1e6 / EVENTS as f64);
                *cpu += (after - before) * 1e6 / EVENTS as f64 / FAST_ROUNDS as f64;
            }
        }
    }
    println!(
        "\nper event, one stream as fast as it goes, {EVENTS} events    wall     added  processor"
    );
    let mut report = Map::new();
    let base = walls.first().map(|walls| quantile(walls, 0.5)).unwrap_or_default();
    for ((way, walls), cpu) in ways.iter().zip(&walls).zip(&cpu) {
        let wall = quantile(walls, 0.5);
        println!("  {:<44} {wall:>8.2} µs {:>6.2} µs {cpu:>7.2} µs", way.fake.name, wall - base);
        report.insert(
            way.fake.name.to_owned(),
            json!({"wall": wall, "added": wall - base, "cpu": cpu}),
        );
    }
    Ok(report.into())
}

fn throughput(ways: &[Way], streams: usize) -> Result<Value> {
    const ROUNDS: usize = 4;
    let mut rates = vec![Vec::new(); ways.len()];
    for round in 0..ROUNDS {
        for turn in turns(ways.len(), round) {
            let Some(way) = ways.get(turn) else { continue };
            let begun = Instant::now();
            let events: Result<Vec<u64>> = thread::scope(|scope| {
                let asks: Vec<_> = (0..streams)
                    .map(|number| {
                        scope.spawn(move || {
                            let prompt = format!("Tell me about the number {number}.");
                            Ok(Client::new(&way.real).ask(&prompt, TOKENS)?.events)
                        })
                    })
                    .collect();
                asks.into_iter()
                    .map(|ask| ask.join().unwrap_or_else(|_| bail!("a client panicked")))
                    .collect()
            });
            let rate = events?.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64();
            if let Some(rates) = rates.get_mut(turn) {
                rates.push(rate);
            }
        }
    }
    println!(
        "\nthroughput, {streams} streams of {TOKENS} tokens, {ROUNDS} rounds          tokens/s    share"
    );
    let mut report = Map::new();
    let base = rates.first().map(|rates| quantile(rates, 0.5)).unwrap_or_default();
    for (way, rates) in ways.iter().zip(&rates) {
        let rate = quantile(rates, 0.5);
        println!("  {:<44} {rate:>9.1} {:>8.1} %", way.real.name, rate / base * 100.0);
        report.insert(way.real.name.to_owned(), json!({"rate": rate, "share": rate / base}));
    }
    Ok(report.into())
}

fn cancellation(ways: &[Way], fake: &Fake) -> Result<Value> {
    println!(
        "\ncancellation, from the client's hanging up to the server's seeing it   p50     longest"
    );
    let mut report = Map::new();
    for way in ways {
        for (kind, stream) in [("streaming", true), ("not streaming", false)] {
            let (mut times, mut missed) = (Vec::new(), 0);
            for _ in 0..CANCELS {
                let client = begin(&way.fake, "hang", stream)?;
                while !matches!(fake.notes.recv_timeout(PATIENCE * 6)?, Note::Asked) {}
                let stopped = Instant::now();
                drop(client);
                match fake.notes.recv_timeout(PATIENCE) {
                    Ok(Note::Gone(at)) => times.push((at - stopped).as_secs_f64() * 1e3),
                    _ => missed += 1,
                }
                // Six seconds times fifty would be a long wait for the same answer.
                if missed == 2 {
                    break;
                }
            }
            let (p50, most) = (quantile(&times, 0.5), quantile(&times, 1.0));
            let name = format!("{}, {kind}", way.fake.name);
            if missed == 0 {
                println!("  {name:<58} {p50:>7.2} ms {most:>7.2} ms");
            } else {
                println!("  {name:<58} not within {} s", PATIENCE.as_secs());
            }
            report.insert(name, json!({"p50": p50, "longest": most, "missed": missed}));
        }
    }
    Ok(report.into())
}

fn stalled(ways: &[Way], ours: &Process, readers: usize, seconds: u64) -> Result<Value> {
    let Some(way) = ways.get(1) else { return Ok(Value::Null) };
    let before = ours.memory()?;
    let mut held = Vec::new();
    for _ in 0..readers {
        held.push(begin(&way.fake, "flood", true)?);
    }
    let (begun, mut most) = (Instant::now(), before);
    while begun.elapsed() < Duration::from_secs(seconds) {
        most = most.max(ours.memory()?);
        thread::sleep(Duration::from_millis(250));
    }
    drop(held);
    let grown = most - before;
    println!(
        "\n{readers} readers that read nothing, {seconds} s: gristmill grew by {grown:.1} MiB (from {before:.1})"
    );
    Ok(json!({"readers": readers, "seconds": seconds, "before_mib": before, "grown_mib": grown}))
}
