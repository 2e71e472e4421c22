//! JSON-Schema-Test-Suite: a schema is enforced exactly or refused with a path; never weakened.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    unreachable_pub,
    reason = "tests may fail loudly"
)]

#[path = "common/suite.rs"]
mod suite;

#[test]
fn no_schema_of_the_suite_is_weakened() {
    let mut survey = suite::run(suite::tokenizer(), 2, 3);
    println!("{}", survey.report());
    for (_, refused) in &survey.refused {
        println!("refused: {refused}");
    }
    for narrower in &survey.narrower {
        println!("narrower: {narrower}");
    }
    assert!(survey.schemas >= 300 && survey.enforced * 10 >= survey.schemas * 6);
    assert!(survey.answers >= survey.enforced && survey.cut * 10 <= survey.answers);
    // What is valid and not accepted: formats that only annotate, and whole numbers as `1.0`.
    assert!(survey.narrower.len() * 20 <= survey.valid, "{:#?}", survey.narrower);
    assert!(survey.weakened.is_empty(), "{:#?}", survey.weakened);
}
