//! `gristmill conformance run`: the suite of probes against a back-end, as a table for people and as
//! signed-off evidence for the ledger.
//!
//! Every check runs in a call of its own, so that one that traps or hangs is one finding. The
//! back-end is asked through the same contract as ever; what it leaves to the host (the models of the
//! store) the host says for it. A report is about one model; without `--model` there is one report for
//! each that the back-end lists. The exit status is 1 when a check failed, and [`Unproven::STATUS`] when
//! none did and a report proves nothing.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use gristmill_core::capability::{Descriptor, ModelInfo};
use gristmill_engine::runtime::Runtime as _;
use gristmill_kernels::{Pool, isa};
use gristmill_ledger::{
    Kind,
    evidence::{
        Finding, Host, Model, Outcome, Resource, STATEMENT, Statement, TEST_RESULT, TestResult,
        Tested, Verdict,
    },
    keys,
};
use gristmill_router::Source;
use gristmill_sandbox::{Backend, Check, Observed, Plan, Probe, Services};
use jiff::{Timestamp, Unit};

use crate::{
    compose::{Composed, Places, compose, runtime},
    settings::Settings,
};

/// Seconds that one check should take at most.
const BUDGET: u32 = 120;

/// `gristmill conformance …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the probes against a back-end
    Run(Arguments),
}

/// What to test, and where the report goes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A live back-end, or the pin of one
    backend: String,
    /// The model to test with [default: each that the back-end lists]
    #[arg(long)]
    model: Option<String>,
    /// Only this probe (the name of its pin)
    #[arg(long)]
    probe: Option<String>,
    /// Only this check; may be given several times
    #[arg(long = "check", value_name = "ID")]
    checks: Vec<String>,
    /// Seconds that one check should take at most
    #[arg(long, default_value_t = BUDGET, value_parser = clap::value_parser!(u32).range(1..=3600))]
    budget: u32,
    /// Write the report here; with several models each gets its name before the extension
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Sign the report with this secret key (`gristmill ledger keygen`), which nobody else may read
    #[arg(long, value_name = "FILE", requires = "out")]
    key: Option<PathBuf>,
}

/// Does it.
pub(crate) fn conformance(settings: &Settings, places: &Places, command: Command) -> Result<()> {
    let Command::Run(arguments) = command;
    let key = arguments.key.as_deref().map(keys::secret).transpose()?;
    runtime()?.block_on(async {
        let composed = compose(settings, places).await?;
        let suite = suite(&composed, &arguments).await?;
        let target = Target::find(&composed, &arguments).await?;
        let (mut failed, mut unseen) = (0, Vec::new());
        for info in &target.infos {
            let statement = target.test(&suite, info, &arguments).await?;
            print!("{}", table(&statement));
            failed += statement.predicate.failed_tests.len();
            if statement.predicate.result == Verdict::Unproven {
                unseen.push(info.id.clone());
            }
            let Some(out) = &arguments.out else { continue };
            let path = if target.infos.len() > 1 { of_model(out, &info.id) } else { out.clone() };
            let json = match &key {
                Some(key) => serde_json::to_vec_pretty(&statement.sign(key)?)?,
                None => serde_json::to_vec_pretty(&statement)?,
            };
            fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))?;
            println!("report {}", path.display());
        }
        ensure!(failed == 0, "{failed} checks failed");
        if unseen.is_empty() { Ok(()) } else { Err(Unproven(unseen).into()) }
    })
}

/// Of these models no check failed, and none saw anything.
#[derive(Debug)]
pub(crate) struct Unproven(Vec<String>);

impl Unproven {
    /// The exit status, apart from that of a failure.
    pub(crate) const STATUS: u8 = 3;
}

impl std::fmt::Display for Unproven {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "nothing is proven: no check applied to {}", self.0.join(", "))
    }
}

impl std::error::Error for Unproven {}

/// The report of the whole suite on a back-end with one model.
pub(crate) async fn report(composed: &Composed, backend: &str, model: &str) -> Result<Statement> {
    let arguments = Arguments {
        backend: backend.to_owned(),
        model: Some(model.to_owned()),
        probe: None,
        checks: Vec::new(),
        budget: BUDGET,
        out: None,
        key: None,
    };
    let suite = suite(composed, &arguments).await?;
    let target = Target::find(composed, &arguments).await?;
    let info = target.infos.first().with_context(|| format!("{backend} has no model {model}"))?;
    target.test(&suite, info, &arguments).await
}

/// A probe, its pin's name, and the checks of it that are wanted.
struct Loaded {
    name: String,
    probe: Arc<dyn Probe>,
    checks: Vec<String>,
}

/// The pinned probes, or the one that is wanted.
async fn suite(composed: &Composed, arguments: &Arguments) -> Result<Vec<Loaded>> {
    let plugins = &composed.plugins;
    let names: Vec<String> = match &arguments.probe {
        Some(name) => vec![name.clone()],
        None => {
            let pins = plugins.ledger.pins().filter(|pin| pin.kind == Kind::Probe);
            pins.map(|pin| pin.name.clone()).collect()
        }
    };
    ensure!(!names.is_empty(), "the ledger pins no probe");
    let mut suite = Vec::new();
    for name in names {
        let probe = plugins.load(&name, Kind::Probe, |bytes, pin, grant| {
            Ok(plugins.sandbox.load_probe(bytes, pin, grant)?)
        })?;
        let mut checks = probe.checks().await?;
        checks.retain(|id| arguments.checks.is_empty() || arguments.checks.contains(id));
        suite.push(Loaded { name, probe, checks });
    }
    for id in &arguments.checks {
        let known = suite.iter().any(|loaded| loaded.checks.contains(id));
        ensure!(known, "no probe has the check {id}");
    }
    suite.retain(|loaded| !loaded.checks.is_empty());
    Ok(suite)
}

/// The back-end under test.
struct Target {
    name: String,
    backend: Arc<dyn Backend>,
    descriptor: Descriptor,
    /// The version of the server behind it, where it tells one.
    server: Option<String>,
    /// The host's list of its models, where the back-end leaves that to the host.
    listed: Option<Vec<ModelInfo>>,
    /// The models to test with.
    infos: Vec<ModelInfo>,
}

impl Target {
    async fn find(composed: &Composed, arguments: &Arguments) -> Result<Self> {
        let name = &arguments.backend;
        let slots = composed.router.backends().slots();
        let slot = slots.iter().find(|slot| slot.name == *name);
        let (backend, source) = match slot {
            Some(slot) => (Arc::clone(&slot.current().backend), slot.source),
            None => (pinned(composed, name)?, Source::Listed),
        };
        let descriptor = backend.describe().await?;
        let told = backend.health().await.map(|health| health.extras).unwrap_or_default();
        let mut extras = told.into_iter().chain(descriptor.extras.clone());
        let server = extras.find(|(name, _)| name == "server-version").map(|(_, version)| version);
        let stored = source == Source::Store;
        let wanted = arguments.model.as_deref();
        let mut infos =
            if stored { opened(composed, wanted).await? } else { backend.models().await? };
        let listed = stored.then(|| infos.clone());
        if let Some(model) = wanted {
            let named = |info: &ModelInfo| {
                let tagged = format!("{model}:latest");
                let names = info.names.iter().chain([&info.id]);
                names.into_iter().any(|name| name == model || *name == tagged)
            };
            let known: Vec<_> = infos.iter().map(|info| info.id.clone()).collect();
            infos.retain(named);
            ensure!(!infos.is_empty(), "{name} has no model {model}; it has {}", known.join(", "));
        }
        ensure!(!infos.is_empty(), "{name} has no model to test with");
        Ok(Self { name: name.clone(), backend, descriptor, server, listed, infos })
    }

    /// Runs the suite with one model.
    async fn test(
        &self,
        suite: &[Loaded],
        info: &ModelInfo,
        arguments: &Arguments,
    ) -> Result<Statement> {
        let budget = Duration::from_secs(arguments.budget.into());
        let observed = Observed::new(Arc::clone(&self.backend), self.listed.clone(), budget / 2);
        let mut findings = Vec::new();
        for loaded in suite {
            for id in &loaded.checks {
                let plan = Plan {
                    model: info.id.clone(),
                    checks: vec![id.clone()],
                    budget_ms: u32::try_from(budget.as_millis()).unwrap_or(u32::MAX),
                    extras: Vec::new(),
                };
                findings.push(match loaded.probe.run(observed.clone(), plan).await {
                    Ok(results) => finding(loaded, id, results),
                    // Its own fault or the host's: nothing is proved, so it does not pass.
                    Err(error) => Finding {
                        id: id.clone(),
                        capability: "conduct.lifecycle".to_owned(),
                        probe: loaded.name.clone(),
                        outcome: Outcome::Failed,
                        reason: Some(format!("the probe did not end: {error}")),
                        evidence: error.code.to_string(),
                    },
                });
            }
        }
        Ok(self.statement(suite, info, findings).seal()?)
    }

    fn statement(&self, suite: &[Loaded], info: &ModelInfo, checks: Vec<Finding>) -> Statement {
        let ids = |outcome| {
            let of = checks.iter().filter(|finding| finding.outcome == outcome);
            of.map(|finding| finding.id.clone()).collect::<Vec<_>>()
        };
        let (passed_tests, failed_tests) = (ids(Outcome::Passed), ids(Outcome::Failed));
        let predicate = TestResult {
            result: Verdict::of(&passed_tests, &failed_tests),
            configuration: suite
                .iter()
                .map(|loaded| Resource::new(&loaded.name, loaded.probe.digest()))
                .collect(),
            passed_tests,
            failed_tests,
            backend: Tested {
                name: self.name.clone(),
                id: self.descriptor.id.clone(),
                kind: self.descriptor.kind.clone(),
                version: self.descriptor.version.clone(),
                server_version: self.server.clone(),
            },
            model: Model {
                id: info.id.clone(),
                digest: info.digest.clone(),
                family: info.family.clone(),
                quantization: info.quantization.clone(),
            },
            host: host(),
            date: now(),
            checks,
            content_digest: None,
        };
        Statement {
            kind: STATEMENT.to_owned(),
            subject: vec![Resource::new(&self.name, self.backend.digest())],
            predicate_type: TEST_RESULT.to_owned(),
            predicate,
        }
    }
}

/// A back-end that is pinned and not live.
fn pinned(composed: &Composed, name: &str) -> Result<Arc<dyn Backend>> {
    let plugins = &composed.plugins;
    if plugins.ledger.pin(name).is_none_or(|pin| pin.kind != Kind::Backend) {
        let slots = composed.router.backends().slots();
        let live: Vec<_> = slots.iter().map(|slot| slot.name.clone()).collect();
        bail!("no back-end {name}: neither live ({}) nor pinned", live.join(", "));
    }
    let services = Services {
        engine: Some(composed.engine.clone()),
        pool: Some(Arc::new(Pool::new(1, false))),
        ..Services::default()
    };
    plugins.load(name, Kind::Backend, |bytes, pin, grant| {
        Ok(plugins.sandbox.load_backend(bytes, pin, grant, services)?)
    })
}

/// What the engine says of stored models, opened: the one that is wanted, or each.
async fn opened(composed: &Composed, wanted: Option<&str>) -> Result<Vec<ModelInfo>> {
    let names = match wanted {
        Some(name) => vec![composed.router.resolve(name).await?.provenance().model],
        None => {
            let records = composed.router.catalogue().await?;
            records.into_iter().map(|record| record.info.id).collect()
        }
    };
    let mut infos = Vec::new();
    for name in names {
        let model = composed.engine.open(&name).await;
        infos.push(model.map_err(|error| anyhow!("{name}: {error}"))?.info());
    }
    Ok(infos)
}

fn finding(loaded: &Loaded, id: &str, results: Vec<Check>) -> Finding {
    let Some(check) = results.into_iter().find(|check| check.id == id) else {
        return Finding {
            id: id.to_owned(),
            capability: "conduct.lifecycle".to_owned(),
            probe: loaded.name.clone(),
            outcome: Outcome::Failed,
            reason: Some("the probe says nothing of this check".to_owned()),
            evidence: String::new(),
        };
    };
    let (outcome, reason) = match check.outcome {
        gristmill_sandbox::Outcome::Passed => (Outcome::Passed, None),
        gristmill_sandbox::Outcome::Failed(why) => (Outcome::Failed, Some(why)),
        gristmill_sandbox::Outcome::NotApplicable(why) => (Outcome::NotApplicable, Some(why)),
    };
    Finding {
        id: check.id,
        capability: check.capability.unwrap_or_default(),
        probe: loaded.name.clone(),
        outcome,
        reason,
        evidence: check.evidence,
    }
}

fn host() -> Host {
    Host {
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        isa: isa::report().chosen.to_string(),
        threads: u32::try_from(Pool::available()).unwrap_or(u32::MAX),
        runtime: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// RFC 3339, UTC, whole seconds.
fn now() -> String {
    let now = Timestamp::now();
    now.round(Unit::Second).unwrap_or(now).to_string()
}

/// `report.json` → `report-MODEL.json`.
fn of_model(out: &Path, model: &str) -> PathBuf {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let model: String = model.chars().map(plain).collect();
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    let extension = out.extension().map(|extension| extension.to_string_lossy());
    out.with_file_name(match extension {
        Some(extension) => format!("{stem}-{model}.{extension}"),
        None => format!("{stem}-{model}"),
    })
}

/// The report for people: what failed with why and what was seen, what passed with what was seen,
/// what could not be tested with why.
fn table(statement: &Statement) -> String {
    let predicate = &statement.predicate;
    let Tested { name, kind, version, .. } = &predicate.backend;
    let subject = statement.subject.first().map(Resource::sha256).unwrap_or_default();
    let mut text = format!("{name} ({kind} {version}, {subject})\n{}", predicate.model.id);
    if let Some(digest) = &predicate.model.digest {
        text.push_str(&format!(" ({digest})"));
    }
    text.push('\n');
    for finding in &predicate.checks {
        let Finding { id, outcome, reason, evidence, .. } = finding;
        let reason = reason.as_deref().unwrap_or_default();
        let (word, detail) = match outcome {
            Outcome::Passed => ("passed", evidence.clone()),
            Outcome::Failed if evidence == reason => ("FAILED", reason.to_owned()),
            Outcome::Failed => ("FAILED", format!("{reason}: {evidence}")),
            Outcome::NotApplicable => ("n/a", reason.to_owned()),
        };
        text.push_str(&format!("  {id:<32} {word:<7} {detail}\n"));
    }
    let open = predicate.checks.len() - predicate.passed_tests.len() - predicate.failed_tests.len();
    text.push_str(&format!(
        "{} passed, {} failed, {open} not applicable\n",
        predicate.passed_tests.len(),
        predicate.failed_tests.len()
    ));
    if predicate.result == Verdict::Unproven {
        text.push_str("nothing is proven: no check applied\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_has_a_report_of_its_own() {
        let of = |out: &str, model| of_model(Path::new(out), model).display().to_string();
        assert_eq!(of("a/report.json", "smollm2:latest"), "a/report-smollm2-latest.json");
        assert_eq!(of("report", "../x"), "report----x");
    }
}
