//! Every vocabulary that ships with vectors gives exactly the ids in them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use gristmill_models::{Gguf, Tokenizer};

const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

fn vocabularies() -> Vec<PathBuf> {
    let folder = gristmill_testing::fetch::llama_cpp_models().unwrap();
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "gguf"))
        .collect();
    files.sort();
    files
}

fn beside(path: &Path, extension: &str) -> PathBuf {
    PathBuf::from(format!("{}.{extension}", path.display()))
}

fn tokenizer(path: &Path) -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(path).unwrap()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn ids_are_the_published_ones() {
    let (mut vocabularies_run, mut cases_run, mut wrong) = (0, 0, Vec::new());
    for path in vocabularies() {
        let (input, output) = (beside(&path, "inp"), beside(&path, "out"));
        if !input.exists() {
            continue;
        }
        let tokenizer = tokenizer(&path);
        let input = fs::read_to_string(input).unwrap();
        let output = fs::read_to_string(output).unwrap();
        // A separator at the end is followed by nothing.
        let cases: Vec<&str> =
            input.strip_suffix(SEPARATOR).unwrap_or(&input).split(SEPARATOR).collect();
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(cases.len(), lines.len(), "{}", path.display());
        for (case, line) in cases.iter().zip(lines) {
            let expected: Vec<u32> =
                line.split_whitespace().map(|id| id.parse().unwrap()).collect();
            let found = tokenizer.encode(case, false).unwrap();
            cases_run += 1;
            if found != expected {
                let name = path.file_name().unwrap().to_string_lossy();
                wrong.push(format!(
                    "{name} {case:?}\n  expected {expected:?}\n  found    {found:?}"
                ));
            }
        }
        vocabularies_run += 1;
    }
    println!("{cases_run} cases of {vocabularies_run} vocabularies, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(vocabularies_run >= 15 && cases_run >= 694, "{vocabularies_run} {cases_run}");
}
