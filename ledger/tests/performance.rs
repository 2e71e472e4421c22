//! A measurement is kept as it was made; one that computed nothing is a failed run.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::fs;

use common::{Home, record};
use gristmill_ledger::performance::{self, Record, ResultClass};

#[test]
fn a_run_of_zero_tokens_is_a_failed_run() {
    let spoils: [fn(&mut Record); 5] = [
        |record| record.prefill_tokens = 0,
        |record| record.decode_tokens = 0,
        |record| record.decode_per_second = 0.0,
        |record| record.prefill_per_second = -1.0,
        |record| record.decode_per_second = f64::INFINITY,
    ];
    for spoil in spoils {
        for result in [ResultClass::Steady, ResultClass::Unsteady] {
            let mut wrong = Record { result, ..record(b"c") };
            spoil(&mut wrong);
            assert!(wrong.to_json().unwrap_err().contains("zero tokens"));
        }
    }
    let failed = Record { decode_tokens: 0, result: ResultClass::Failed, ..record(b"c") };
    assert_eq!(Record::parse(&failed.to_json().unwrap()).unwrap(), failed);
}

#[test]
fn only_a_steady_run_is_a_baseline() {
    assert!(record(b"c").baseline().is_some());
    for result in [ResultClass::Unsteady, ResultClass::Failed] {
        assert!(Record { result, ..record(b"c") }.baseline().is_none());
    }
}

#[test]
fn records_are_read_back_and_a_renamed_or_changed_one_is_not() {
    let home = Home::unsigned();
    let path = record(b"c").store(&home.ledger()).unwrap();
    let second = Record { threads: 1, ..record(b"c") };
    second.store(&home.ledger()).unwrap();
    let found = performance::open(&home.ledger()).unwrap();
    assert!(found.len() == 2 && found.contains(&record(b"c")) && found.contains(&second));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("20.0", "25.0")).unwrap();
    let error = performance::open(&home.ledger()).unwrap_err();
    assert_eq!(error.code(), "invalid-performance");
    fs::write(&path, text.replace("\"threads\"", "\"cores\"")).unwrap();
    assert_eq!(performance::open(&home.ledger()).unwrap_err().code(), "invalid-performance");
}
