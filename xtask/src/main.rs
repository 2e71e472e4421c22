//! Every developer command. `cargo xtask help` lists them.
//!
//! It owns no logic of the product: it builds, lays out, starts and measures.

mod bench;
mod build;
mod check;
mod ledger;
mod serve;
mod servers;
mod setup;
mod shell;
mod test;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask COMMAND

  serve [ARGS]     build everything, fetch the demo model, serve on 127.0.0.1:11450
  run MODEL [TEXT] the same build, then one answer on the command line
  test [FILTER]    every test; CI runs this
  check            format, lints, contract, licences, tidy rules
  plugins [--pin]  build the first-party components; --pin rewrites their pins in ledger/
  ledger VERB      verify: prove ledger/ offline; seal: seal its entries on servers
  dist             lay out target/dist: the binary, the components and their ledger
  bench [ARGS]     measure against llama.cpp; see docs/measuring.md
  servers          build the llama-server that the bridges are tested against (minutes, once)
  setup            install what is missing (as root) or say what to run
";

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_else(|| "help".to_owned());
    let rest: Vec<String> = args.collect();
    match command.as_str() {
        "serve" => serve::serve(&rest),
        "run" => serve::run_model(&rest),
        "test" => test::test(&rest),
        "check" => check::check(),
        "plugins" => build::plugins(rest.iter().any(|arg| arg == "--pin")),
        "ledger" => ledger::ledger(&rest),
        "dist" => build::dist(build::Host::Shipped).map(|_| ()),
        "bench" => bench::run(&rest),
        "servers" => servers::llama_server().map(|binary| println!("{}", binary.display())),
        "setup" => setup::all(),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => bail!("no command {other:?}\n\n{HELP}"),
    }
}
