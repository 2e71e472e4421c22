//! Trying it out: build everything, fetch the demo model, serve or answer.

use anyhow::Result;

use crate::{build, shell::run};

/// The model the README talks to.
const DEMO: &str = "smollm2";

/// Serves until interrupted; further arguments go to `gristmill serve`.
pub(crate) fn serve(arguments: &[String]) -> Result<()> {
    let binary = build::dist(build::Host::Quick)?;
    run(build::installed_command(&binary).args(["pull", DEMO]))?;
    run(build::installed_command(&binary).arg("serve").args(arguments))
}

/// One answer on the command line.
pub(crate) fn run_model(arguments: &[String]) -> Result<()> {
    let binary = build::dist(build::Host::Quick)?;
    run(build::installed_command(&binary).args(["pull", DEMO]))?;
    run(build::installed_command(&binary).arg("run").args(arguments))
}
