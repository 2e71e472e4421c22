//! `gristmill run`: an answer on the terminal, without a server.

use std::{
    io::{IsTerminal, Read, Write},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use gristmill_core::{
    event::{Event, Timings, Usage},
    request::{Message, Prompt, Request, Role},
};
use gristmill_models::store::catalogue;
use gristmill_router::route::Router;

use crate::{
    compose::{Places, compose, runtime},
    models::{pull, store},
    settings::Settings,
};

/// What to ask, and how.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The model's name; a known one is fetched if it is not here
    model: String,
    /// The prompt; without one each line typed is a turn, and piped input is the prompt
    prompt: Option<String>,
    /// Instructions before the conversation
    #[arg(long)]
    system: Option<String>,
    /// 0 is greedy
    #[arg(long)]
    temperature: Option<f32>,
    /// The same seed gives the same answer
    #[arg(long)]
    seed: Option<u64>,
    /// At most so many tokens
    #[arg(long)]
    max_tokens: Option<u32>,
}

/// Does it.
pub(crate) fn run(settings: &Settings, places: &Places, arguments: Arguments) -> Result<()> {
    let models = store(places)?;
    if models.locate(&arguments.model).is_err()
        && catalogue()?.iter().any(|entry| {
            entry.names.iter().any(|known| known.eq_ignore_ascii_case(&arguments.model))
        })
    {
        pull(settings, places, &arguments.model, None, false)?;
    }
    runtime()?.block_on(async {
        let composed = compose(settings, places).await?;
        let mut messages = Vec::new();
        if let Some(system) = &arguments.system {
            messages.push(Message::text(Role::System, system));
        }
        if let Some(prompt) = first_prompt(&arguments)? {
            messages.push(Message::text(Role::User, prompt));
            answer(&composed.router, &arguments, &mut messages).await?;
            return Ok(());
        }
        converse(&composed.router, &arguments, messages).await
    })
}

/// The prompt given, or all of a piped input; none: a conversation.
fn first_prompt(arguments: &Arguments) -> Result<Option<String>> {
    if let Some(prompt) = &arguments.prompt {
        return Ok(Some(prompt.clone()));
    }
    if std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read the prompt")?;
    if text.trim().is_empty() {
        bail!("the prompt is empty");
    }
    Ok(Some(text))
}

async fn converse(
    router: &Router,
    arguments: &Arguments,
    mut messages: Vec<Message>,
) -> Result<()> {
    eprintln!("One line is one turn; end with Ctrl-D.");
    loop {
        eprint!("> ");
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line)? == 0 {
            eprintln!();
            return Ok(());
        }
        if line.trim().is_empty() {
            continue;
        }
        messages.push(Message::text(Role::User, line.trim_end()));
        answer(router, arguments, &mut messages).await?;
    }
}

/// Prints one answer as it comes and appends it to the conversation.
async fn answer(router: &Router, arguments: &Arguments, messages: &mut Vec<Message>) -> Result<()> {
    let plan = router.resolve(&arguments.model).await?;
    let prompt = Prompt::Chat(messages.clone());
    let mut request = Request::new("run", plan.provenance().model, prompt);
    request.sampling.temperature = arguments.temperature;
    request.sampling.seed = arguments.seed;
    request.max_tokens = arguments.max_tokens;

    let started = Instant::now();
    let mut first = None;
    let mut text = String::new();
    let mut usage = Usage::default();
    let mut timings = Timings::default();
    let mut running = router.generate(&plan, request, None).await?;
    for verdict in &running.judgement().verdicts {
        eprintln!("policy: {}", verdict.told(verdict.control.as_str()));
    }
    let mut out = std::io::stdout();
    while let Some(events) = running.next(16).await? {
        for event in events {
            match event {
                Event::Text(more) => {
                    first.get_or_insert_with(|| started.elapsed());
                    out.write_all(more.as_bytes())?;
                    text.push_str(&more);
                }
                Event::Reasoning(more) => {
                    first.get_or_insert_with(|| started.elapsed());
                    eprint!("{more}");
                }
                Event::Usage(counts) => usage = counts,
                Event::Timings(times) => timings = times,
                _ => {}
            }
        }
        out.flush()?;
    }
    println!();
    eprintln!("{}", summary(&usage, &timings, first.unwrap_or_default().as_secs_f64()));
    messages.push(Message::text(Role::Assistant, text));
    Ok(())
}

/// `23 tokens read at 1543.2/s, 128 written at 301.5/s, first after 0.09 s`
fn summary(usage: &Usage, timings: &Timings, first: f64) -> String {
    let rate = |tokens: u32, micros: u64| match micros {
        0 => "–".to_owned(),
        micros => format!("{:.1}", f64::from(tokens) * 1e6 / micros as f64),
    };
    let read = usage.prompt.saturating_sub(usage.cached);
    format!(
        "\n{} tokens read at {}/s, {} written at {}/s, first after {first:.2} s",
        usage.prompt,
        rate(read, timings.prefill),
        usage.completion,
        rate(usage.completion, timings.decode),
    )
}
