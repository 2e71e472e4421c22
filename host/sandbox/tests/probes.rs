//! A probe sees a back-end as the host does, and the back-end's faults are findings.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::{good, grant, guest, hostile, pin, sandbox};
use gristmill_ledger::Kind;
use gristmill_policies::Limits;
use gristmill_sandbox::{Occupancy, Outcome, Plan, Services};

#[tokio::test]
async fn a_probe_runs_its_checks_against_a_back_end() {
    let sandbox = sandbox();
    let backend = hostile(&sandbox, Limits::default(), Services::default());
    let bytes = guest("probe");
    let pinned = pin("probe", &bytes);
    let probe =
        sandbox.load_probe(&bytes, &pinned, &grant(Kind::Probe, Limits::default())).unwrap();
    assert_eq!(probe.digest(), pinned.digest());
    assert_eq!(probe.checks().await.unwrap(), ["describe", "generate", "fault"]);

    let plan = Plan {
        model: "hostile".into(),
        checks: ["describe", "generate", "fault", "nothing"].map(String::from).to_vec(),
        budget_ms: 1_000,
        extras: Vec::new(),
    };
    let results = probe.run(backend.clone(), plan).await.unwrap();
    let seen: Vec<_> = results
        .iter()
        .map(|check| (check.id.as_str(), &check.outcome, check.evidence.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            ("describe", &Outcome::Passed, "hostile"),
            ("generate", &Outcome::Passed, good(3).as_str()),
            ("fault", &Outcome::Failed("plugin-fault".into()), ""),
            ("nothing", &Outcome::NotApplicable("no such check".into()), ""),
        ]
    );
    assert_eq!(sandbox.strikes(backend.digest()), 1, "the back-end's fault");
    assert_eq!(sandbox.strikes(probe.digest()), 0, "not the probe's");
    assert_eq!(sandbox.occupancy(), Occupancy::default());
}
