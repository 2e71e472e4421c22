//! Reports are read as they were written, changed ones are not, and signatures are of the content.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::fs;

use ed25519_dalek::SigningKey;
use gristmill_ledger::evidence::{
    Evidence, Finding, Host, Model, Outcome, Resource, STATEMENT, Statement, TEST_RESULT,
    TestResult, Tested, Verdict,
};
use serde_json::Value;

const COMPONENT: &str = "sha256:0011223344556677889900112233445566778899001122334455667788990011";

fn finding(id: &str, capability: &str, outcome: Outcome) -> Finding {
    Finding {
        id: id.into(),
        capability: capability.into(),
        probe: "probe-tools".into(),
        outcome,
        reason: (outcome == Outcome::Failed).then(|| "no id".into()),
        evidence: "größe".into(),
    }
}

fn report(date: &str, model: &str, checks: Vec<Finding>) -> Statement {
    let statement = Statement {
        kind: STATEMENT.into(),
        subject: vec![Resource::new("ollama", COMPONENT)],
        predicate_type: TEST_RESULT.into(),
        predicate: TestResult {
            result: Verdict::Failed,
            configuration: vec![Resource::new("probe-tools", COMPONENT)],
            passed_tests: Vec::new(),
            failed_tests: vec!["tools.ids".into()],
            backend: Tested {
                name: "ollama".into(),
                id: "ollama".into(),
                kind: "ollama".into(),
                version: "0.1.0".into(),
                server_version: Some("0.5.7".into()),
            },
            model: Model {
                id: model.into(),
                digest: Some(format!("sha256:{model}")),
                family: None,
                quantization: None,
            },
            host: Host {
                os: "linux".into(),
                arch: "x86_64".into(),
                isa: "avx2".into(),
                threads: 2,
                runtime: "0.1.0".into(),
            },
            date: date.into(),
            checks,
            content_digest: None,
        },
    };
    statement.seal().unwrap()
}

fn failing(date: &str, model: &str) -> Statement {
    report(date, model, vec![finding("tools.ids", "tools.calling", Outcome::Failed)])
}

#[test]
fn a_report_has_the_shape_of_an_in_toto_test_result() {
    let json: Value = serde_json::to_value(failing("2026-11-29T12:00:00Z", "m")).unwrap();
    assert_eq!(json["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(json["predicateType"], "https://in-toto.io/attestation/test-result/v0.1");
    assert_eq!(json["subject"][0]["digest"]["sha256"], COMPONENT.trim_start_matches("sha256:"));
    assert_eq!(json["predicate"]["result"], "FAILED");
    assert_eq!(json["predicate"]["failedTests"][0], "tools.ids");
    assert_eq!(json["predicate"]["checks"][0]["outcome"], "failed");
    assert_eq!(json["predicate"]["backend"]["serverVersion"], "0.5.7");
}

#[test]
fn a_report_is_read_however_it_is_laid_out_and_not_once_it_is_changed() {
    let statement = failing("2026-11-29T12:00:00Z", "m");
    for bytes in [
        serde_json::to_vec(&statement).unwrap(),
        serde_json::to_vec_pretty(&statement).unwrap(),
        serde_json::to_vec_pretty(&serde_json::to_value(&statement).unwrap()).unwrap(),
    ] {
        assert_eq!(Statement::parse(&bytes, "report").unwrap(), statement);
    }
    let text = serde_json::to_string(&statement).unwrap();
    for (from, to, word) in [
        ("\"failed\"", "\"passed\"", "was changed"),
        ("0.5.7", "0.5.8", "was changed"),
        ("Statement/v1", "Statement/v2", "expected type"),
        ("test-result", "vsa", "expected type"),
        ("contentDigest", "digestOfContent", "digestOfContent"),
        ("{\"_type\"", "{\"type\"", "_type"),
        ("{\"_type\"", "{\"note\":1,\"_type\"", "note"),
        ("{\"result\"", "{\"results\":1,\"result\"", "results"),
        ("{\"os\"", "{\"host\":\"here\",\"os\"", "host"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        let error = Statement::parse(changed.as_bytes(), "report").unwrap_err();
        assert_eq!(error.code(), "invalid-evidence");
        let error = error.to_string();
        assert!(error.contains(word) && error.starts_with("report: "), "{from}: {error}");
    }
}

#[test]
fn a_report_that_does_not_name_its_own_digest_is_refused() {
    let mut statement = failing("2026-11-29T12:00:00Z", "m");
    statement.predicate.content_digest = None;
    let bytes = serde_json::to_vec(&statement).unwrap();
    let error = Statement::parse(&bytes, "report").unwrap_err().to_string();
    assert!(error.contains("does not say"), "{error}");
}

#[test]
fn a_date_is_of_rfc_3339_in_utc_and_whole_seconds() {
    for date in [
        "yesterday",
        "2026-11-29",
        "2026-11-29T12:00:00",
        "2026-11-29 12:00:00Z",
        "2026-02-30T12:00:00Z",
        "2026-11-29T12:00:00+01:00",
        "2026-11-29T12:00:00.5Z",
    ] {
        let bytes = serde_json::to_vec(&failing(date, "m")).unwrap();
        let error = Statement::parse(&bytes, "report").unwrap_err();
        assert_eq!(error.code(), "invalid-evidence", "{date}");
        assert!(error.to_string().contains("RFC 3339"), "{date}: {error}");
    }
}

#[test]
fn a_signature_is_of_this_key_and_this_content() {
    let key = SigningKey::from_bytes(&[7; 32]);
    let statement = failing("2026-11-29T12:00:00Z", "m");
    let envelope = statement.sign(&key).unwrap();
    assert_eq!(envelope.verify(&key.verifying_key()).unwrap(), statement);
    let bytes = serde_json::to_vec(&envelope).unwrap();
    assert_eq!(Statement::parse(&bytes, "envelope").unwrap(), statement);

    let stranger = SigningKey::from_bytes(&[8; 32]);
    assert!(envelope.verify(&stranger.verifying_key()).is_err());
    let mut moved = envelope.clone();
    moved.payload = failing("2026-11-30T12:00:00Z", "m").sign(&stranger).unwrap().payload;
    let error = moved.verify(&key.verifying_key()).unwrap_err().to_string();
    assert!(error.contains("not of this content"), "{error}");
    let mut other = envelope;
    other.payload_type = "text/plain".into();
    assert!(other.verify(&key.verifying_key()).is_err());
}

#[test]
fn the_newest_result_of_a_check_counts_for_this_component_version_and_model() {
    let ok = |date: &str| {
        report(date, "m", vec![finding("tools.ids", "tools.calling", Outcome::Passed)])
    };
    let found = |statements: Vec<Statement>, component: &str, server: Option<&str>, model: &str| {
        let digest = format!("sha256:{model}");
        Evidence::of(statements).contradictions(
            component,
            "0.1.0",
            server,
            "another name",
            Some(&digest),
        )
    };
    let old = || failing("2026-11-29T12:00:00Z", "m");
    let contradictions = found(vec![old()], COMPONENT, Some("0.5.7"), "m");
    assert_eq!(contradictions.len(), 1);
    assert_eq!(contradictions[0].capability, "tools.calling");
    assert_eq!(contradictions[0].check, "tools.ids");
    for (statements, component, server, model) in [
        (vec![old(), ok("2026-11-30T12:00:00Z")], COMPONENT, Some("0.5.7"), "m"),
        (vec![old()], "sha256:ff", Some("0.5.7"), "m"),
        (vec![old()], COMPONENT, Some("0.5.8"), "m"),
        (vec![old()], COMPONENT, None, "m"),
        (vec![old()], COMPONENT, Some("0.5.7"), "n"),
    ] {
        assert!(found(statements, component, server, model).is_empty());
    }
    let again = vec![failing("2026-12-01T12:00:00Z", "m"), ok("2026-11-30T12:00:00Z")];
    assert_eq!(found(again, COMPONENT, Some("0.5.7"), "m").len(), 1, "broken again");
}

#[test]
fn a_folder_of_reports_is_read_and_a_damaged_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Evidence::open(folder.path()).unwrap().is_empty());
    let evidence = folder.path().join("evidence");
    fs::create_dir(&evidence).unwrap();
    let good = serde_json::to_vec(&failing("2026-11-29T12:00:00Z", "m")).unwrap();
    fs::write(evidence.join("good.json"), &good).unwrap();
    fs::write(evidence.join("note.txt"), "no report").unwrap();
    assert_eq!(Evidence::open(folder.path()).unwrap().len(), 1);
    fs::write(evidence.join("bad.json"), good.get(..200).unwrap()).unwrap();
    let error = Evidence::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("bad.json"), "{error}");
}

#[test]
fn the_verdict_follows_from_the_lists() {
    let some = ["text.greedy".to_owned()];
    for (passed, failed, verdict, word) in [
        (&some[..], &[][..], Verdict::Passed, "PASSED"),
        (&some, &some, Verdict::Failed, "FAILED"),
        (&[], &some, Verdict::Failed, "FAILED"),
        (&[], &[], Verdict::Unproven, "WARNED"),
    ] {
        assert_eq!(Verdict::of(passed, failed), verdict);
        assert_eq!(serde_json::to_value(verdict).unwrap(), word);
        assert_eq!(serde_json::from_value::<Verdict>(word.into()).unwrap(), verdict);
    }
}
