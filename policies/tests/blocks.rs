//! Blocks say what they must, refuse what they must not, and end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

use std::fs;

use gristmill_policies::block::{self, Block, Versions};

const WHOLE: &str = r#"
backend = "llama-server"
versions = ">=b4000, <b4100"
family = "gemma3"
hardware = "avx512"
capability = "tools.calling"
reason = "arguments lose their last brace"
evidence = "sha256:00"
expires = "2027-03-31"
alternative = "cpu"
"#;

fn without(key: &str) -> String {
    WHOLE.lines().filter(|line| !line.starts_with(key)).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_block_is_read_whole_and_what_it_may_leave_out_limits_nothing() {
    let block = Block::parse("brace", WHOLE).unwrap();
    assert_eq!((block.id.as_str(), block.alternative.as_deref()), ("brace", Some("cpu")));
    for key in ["family", "hardware", "alternative"] {
        assert!(Block::parse("brace", &without(key)).is_ok(), "{key}");
    }
    for key in ["backend", "versions", "capability", "reason", "evidence", "expires"] {
        let error = Block::parse("brace", &without(key)).unwrap_err();
        assert!(error.contains(key), "{error}");
    }
}

#[test]
fn what_is_not_a_block_is_refused_by_name() {
    for (text, word) in [
        (WHOLE.replace("family", "famly"), "did you mean \"family\"?"),
        (WHOLE.replace("2027-03-31", "soon"), "expected a day"),
        (WHOLE.replace(">=b4000, <b4100", "b4000"), "expected comparisons"),
        (WHOLE.replace(">=b4000, <b4100", ">=latest"), "expected comparisons"),
        (WHOLE.replace("\"gemma3\"", "3"), "family: expected a text, found 3"),
        (WHOLE.replace("\"sha256:00\"", "\" \""), "evidence: expected a text"),
    ] {
        let error = Block::parse("brace", &text).unwrap_err();
        assert!(error.contains(word), "{word}: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    assert!(block::open(folder.path()).unwrap().is_empty());
    fs::create_dir(folder.path().join("blocks")).unwrap();
    fs::write(folder.path().join("blocks/brace.toml"), WHOLE).unwrap();
    fs::write(folder.path().join("blocks/README.md"), "no block").unwrap();
    assert_eq!(block::open(folder.path()).unwrap().len(), 1);
    fs::write(folder.path().join("blocks/bad.toml"), "backend = 1").unwrap();
    let error = block::open(folder.path()).unwrap_err();
    assert!(error.code() == "invalid-block" && error.to_string().contains("bad.toml"), "{error}");
    fs::remove_file(folder.path().join("blocks/bad.toml")).unwrap();
    for name in ["brace.tml", "Brace.toml", "brace"] {
        let misnamed = folder.path().join("blocks").join(name);
        fs::write(&misnamed, WHOLE).unwrap();
        let error = block::open(folder.path()).unwrap_err();
        assert!(error.code() == "unknown-policy" && error.to_string().contains(name), "{error}");
        fs::remove_file(misnamed).unwrap();
    }
}

#[test]
fn a_block_applies_on_its_last_day_and_not_after_it() {
    let block = Block::parse("brace", WHOLE).unwrap();
    assert!(!block.expired("2027-03-31".parse().unwrap()));
    assert!(block.expired("2027-04-01".parse().unwrap()));
}

#[test]
fn versions_are_compared_as_servers_count_them() {
    for (range, inside, outside) in [
        ("*", &["0.1", "b1", "unheard of", ""][..], &[][..]),
        (">=0.6.0, <0.6.4", &["0.6", "0.6.3", "v0.6.3.1", "0.6.4-rc1"], &["0.5.9", "0.6.4", "1"]),
        (">=b4000, <b4100", &["b4000", "b4099", "4050"], &["b3999", "b4100"]),
        ("=0.6.3", &["0.6.3", "0.6.3.0"], &["0.6.3.post1", "0.6.3rc1"]),
        (">0.6.3", &["0.6.3.post1", "0.6.4"], &["0.6.3", "0.6.3rc1"]),
        ("<=1.10", &["1.9.9", "1.10.0"], &["1.10.1"]),
    ] {
        let range = Versions::parse(range).unwrap();
        for version in inside {
            assert!(range.hold(version), "{version} is in {range:?}");
        }
        for version in outside {
            assert!(!range.hold(version), "{version} is not in {range:?}");
        }
    }
    assert!(Versions::parse(">=1").unwrap().hold("unknown"), "nothing shows it to be outside");
}
