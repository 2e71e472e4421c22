//! The log is a chain: what was appended is read back, and no line is taken out, put in or moved.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::fs;

use gristmill_ledger::{
    Date,
    log::{Chain, Event, LOG, Log, What},
};

fn date(second: u32) -> Date {
    format!("2026-11-30T12:00:{second:02}Z").parse().unwrap()
}

fn event(name: &str, what: What, sequence: u64) -> Event {
    Event {
        sequence: Some(sequence),
        pin: Some(format!("{sequence:064}")),
        from: (sequence > 1).then(|| format!("{:064}", sequence - 1)),
        reason: Some("größe, \"hash\":\"\n".into()),
        ..Event::new(what, name)
    }
}

fn written() -> (tempfile::TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::open(folder.path()).unwrap();
    for (second, what) in
        [What::Promotion, What::Swap, What::Promotion, What::Swap].into_iter().enumerate()
    {
        let sequence = 1 + second as u64 / 2;
        log.append(event("one", what, sequence), date(second as u32)).unwrap();
    }
    drop(log);
    let text = fs::read_to_string(folder.path().join(LOG)).unwrap();
    let lines = text.lines().map(str::to_owned).collect();
    (folder, lines)
}

#[test]
fn what_was_appended_is_read_back_across_openings() {
    let (folder, lines) = written();
    assert_eq!(lines.len(), 4);
    let mut log = Log::open(folder.path()).unwrap();
    assert_eq!(log.append(event("two", What::Promotion, 7), date(9)).unwrap().number, 5);
    drop(log);
    let chain = Chain::open(folder.path()).unwrap().whole(folder.path()).unwrap();
    assert_eq!(chain.entries.len(), 5);
    assert_eq!(chain.entries[0].event, event("one", What::Promotion, 1));
    assert_eq!(chain.entries[0].previous, "0".repeat(64));
    assert_eq!(chain.entries[4].previous, chain.entries[3].hash);
    let standings = chain.standings();
    assert_eq!((standings["one"].sequence, standings["one"].highest), (2, 2));
    assert_eq!(standings["two"].pin, Some(format!("{:064}", 7)));
}

#[test]
fn a_line_taken_out_put_in_twice_or_moved_breaks_the_chain() {
    let (folder, lines) = written();
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| lines[at].as_str());
    for (list, bad) in [
        (vec![b, c, d], 1),
        (vec![a, c, d], 2),
        (vec![a, b, b, c, d], 3),
        (vec![a, c, b, d], 2),
        (vec![a, b, c, d, a], 5),
        (vec![a, "", b, c, d], 2),
        (vec![a, "{}", b, c, d], 2),
    ] {
        fs::write(folder.path().join(LOG), list.join("\n") + "\n").unwrap();
        let error = Chain::open(folder.path()).unwrap_err();
        assert_eq!(error.code(), "log-tampered");
        assert!(error.to_string().contains(&format!("line {bad}:")), "{error}");
    }
}

#[test]
fn the_same_content_spelled_otherwise_is_not_what_was_written() {
    let (folder, lines) = written();
    for (from, to) in
        [("{\"number\":1", "{ \"number\":1"), ("\"number\":1", "\"number\":1.0"), ("ö", "\\u00f6")]
    {
        assert!(lines[0].contains(from), "{from}: {}", lines[0]);
        let changed = lines[0].replacen(from, to, 1);
        fs::write(
            folder.path().join(LOG),
            [&changed, &lines[1]].map(|line| format!("{line}\n")).concat(),
        )
        .unwrap();
        assert_eq!(Chain::open(folder.path()).unwrap_err().code(), "log-tampered", "{to}");
    }
}

#[test]
fn time_does_not_go_back_in_it() {
    let (folder, _) = written();
    let mut log = Log::open(folder.path()).unwrap();
    let error = log.append(event("one", What::Swap, 2), date(2)).unwrap_err();
    assert_eq!(error.code(), "clock-set-back");
    log.append(event("one", What::Swap, 2), date(3)).unwrap();
    assert_eq!(log.chain().entries.len(), 5);
}
