//! The `gristmill` binary: a command line over the rooms, and the place where they are put
//! together ([`compose`]).

mod backends;
mod bench;
mod catalogue;
mod cli;
mod compose;
mod conformance;
mod control;
mod keys;
mod ledger;
mod measure;
mod models;
mod plugin;
mod policy;
mod problems;
mod progress;
mod promote;
mod propose;
mod qualify;
mod quarantine;
mod run;
mod schema;
mod serve;
mod settings;
mod stamp;
mod watch;

fn main() -> std::process::ExitCode {
    if compose::is_compiler() {
        std::process::exit(gristmill_sandbox::compile_stdin());
    }
    match cli::main() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            match error.downcast_ref::<conformance::Unproven>() {
                Some(_) => std::process::ExitCode::from(conformance::Unproven::STATUS),
                None => std::process::ExitCode::FAILURE,
            }
        }
    }
}
