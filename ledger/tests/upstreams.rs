//! What is known of a server says how it is known; what is not pinned is never the latest known good.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::fs;

use common::{Home, date, upstream};
use gristmill_ledger::upstream::{
    self, Disabled, FamilyNote, Status, UPSTREAMS, Upstream, latest_known_good, transcripts,
};

fn tested(version: &str, day: u8) -> Upstream {
    Upstream {
        status: Status::Tested,
        version: Some(version.into()),
        date: date(&format!("2026-11-{day:02}T12:00:00Z")),
        ..upstream()
    }
}

#[test]
fn the_latest_known_good_is_the_newest_that_was_tested_in_a_known_version() {
    let other = Upstream { project: "vllm".into(), ..tested("9", 29) };
    let observed = Upstream { date: date("2026-11-30T12:00:00Z"), ..upstream() };
    let blocked = Upstream { status: Status::Blocked, ..tested("4", 28) };
    let planned = Upstream { status: Status::Planned, ..tested("5", 28) };
    // Not valid, and not taken all the same.
    let unpinned = Upstream { version: None, ..tested("6", 28) };
    let entries = [
        tested("1", 3),
        tested("3", 20),
        tested("2", 10),
        observed,
        blocked,
        planned,
        unpinned,
        other,
    ];
    let found = latest_known_good(&entries, "ollama").unwrap();
    assert_eq!(found.version.as_deref(), Some("3"));
    assert!(latest_known_good(&entries[3..7], "ollama").is_none());
    assert!(latest_known_good(&entries, "mlx").is_none());
}

#[test]
fn an_entry_that_says_too_little_or_too_much_is_refused() {
    for (entry, word) in [
        (Upstream { version: None, ..tested("1", 1) }, "version or commit"),
        (Upstream { commit: Some("abc".into()), ..upstream() }, "neither"),
        (Upstream { licence: String::new(), ..upstream() }, "licence"),
        (Upstream { provenance: String::new(), ..upstream() }, "provenance"),
        (Upstream { project: "../x".into(), ..upstream() }, "project"),
        (Upstream { transcripts: Some("abc".into()), ..upstream() }, "transcripts"),
        (
            Upstream {
                disabled: vec![Disabled { capability: "logprobs".into(), reason: String::new() }],
                ..upstream()
            },
            "reason",
        ),
        (
            Upstream {
                disabled: vec![Disabled {
                    capability: "inference.text".into(),
                    reason: "x".into(),
                }],
                ..upstream()
            },
            "enabled and disabled",
        ),
    ] {
        let error = entry.to_toml().unwrap_err();
        assert!(error.contains(word), "{word}: {error}");
    }
    let full = Upstream {
        commit: Some("abc".into()),
        families: vec![FamilyNote { family: "gemma".into(), note: "as it is".into() }],
        ..tested("1", 1)
    };
    let text = full.to_toml().unwrap();
    assert_eq!(Upstream::parse(&text).unwrap(), full);
    let body = text.split_once('\n').unwrap().1;
    assert!(Upstream::parse(body).unwrap_err().contains("seal"));
    assert_eq!(Upstream::draft(body).unwrap(), full);
    assert!(Upstream::draft(&format!("approved = true\n{body}")).unwrap_err().contains("approved"));
}

#[test]
fn an_entry_lies_under_its_projects_name() {
    let home = Home::unsigned();
    let folder = home.ledger().join(UPSTREAMS);
    fs::create_dir_all(&folder).unwrap();
    for (file, fine) in [
        ("ollama.toml", true),
        ("ollama-0.5.toml", true),
        ("ollama2.toml", false),
        ("vllm.toml", false),
    ] {
        let path = folder.join(file);
        fs::write(&path, upstream().to_toml().unwrap()).unwrap();
        let result = upstream::open(&home.ledger());
        assert_eq!(
            result.err().map(|error| error.code()),
            (!fine).then_some("invalid-upstream"),
            "{file}"
        );
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn recorded_answers_have_a_digest_of_names_and_contents() {
    let folder = tempfile::tempdir().unwrap();
    let digest = || transcripts(folder.path()).unwrap();
    fs::write(folder.path().join("a.http"), "answer").unwrap();
    fs::write(folder.path().join("a.events"), "events").unwrap();
    let first = digest();
    fs::write(folder.path().join("README.md"), "not recorded").unwrap();
    assert_eq!(digest(), first);
    fs::write(folder.path().join("a.http"), "Answer").unwrap();
    let second = digest();
    fs::rename(folder.path().join("a.http"), folder.path().join("b.http")).unwrap();
    assert!(first != second && second != digest() && digest() != first);
}
