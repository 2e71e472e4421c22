//! The documentation's table of tensor types is the registry's.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_kernels::{Quant, table};

#[test]
fn the_page_is_the_registry() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/quantization.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (text, rows) = page.split_once("|---|---|---|---|---|---|---|---|\n").unwrap();
    let measured = text.lines().find(|line| line.starts_with("Measured ")).unwrap();
    assert_eq!(format!("{text}|---|---|---|---|---|---|---|---|\n"), table::head(measured));
    let rows: Vec<&str> = rows.lines().collect();
    assert_eq!(rows.len(), Quant::ALL.len());
    for (row, quant) in rows.iter().zip(Quant::ALL) {
        let rates = row.strip_prefix(&table::row(*quant)).unwrap_or_else(|| {
            panic!("{quant}: write the page again: cargo run --release -p gristmill-kernels --example quantization_table -- docs/quantization.md")
        });
        for rate in rates.trim_matches([' ', '|']).split(" | ") {
            assert!(rate == "–" || rate.parse::<f64>().is_ok_and(|rate| rate > 0.0), "{row}");
        }
    }
}
