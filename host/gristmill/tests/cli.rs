//! The command line does what its help says, with real components and the demo model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail loudly")]

mod support;

use std::{fs, process::Command};

use support::{Home, exchange, text};

#[test]
fn a_misspelt_setting_is_refused_with_the_right_one() {
    let home = Home::empty();
    fs::write(home.path("gristmill.toml"), "[engine]\nthread = 2\n").unwrap();
    let done = home.run(&["config", "check"]);
    assert!(!done.status.success());
    assert!(text(&done.stderr).contains("engine.threads"), "{}", text(&done.stderr));
}

#[test]
fn config_show_tells_where_each_value_came_from() {
    let home = Home::empty();
    fs::write(home.path("gristmill.toml"), "[engine]\nmax_active = 3\n").unwrap();
    let done = home
        .command(&["config", "show", "--engine-threads", "1"])
        .env("GRISTMILL_LOG_FORMAT", "json")
        .output()
        .unwrap();
    let shown = text(&done.stdout);
    for line in [
        "engine.max_active = 3  # File",
        "engine.threads = 1  # Flag",
        "log.format = \"json\"  # Environment",
        "models.keep_alive = \"5m\"  # Default",
    ] {
        assert!(shown.contains(line), "{line} is not in\n{shown}");
    }
}

#[test]
fn a_model_is_imported_listed_shown_and_removed() {
    let home = Home::with_model();
    let listed = text(&home.run(&["list"]).stdout);
    assert!(listed.contains("smollm2:latest") && listed.contains("Q4_1"), "{listed}");
    let shown = text(&home.run(&["show", "smollm2"]).stdout);
    assert!(shown.contains("architecture  llama") && shown.contains("134.52M"), "{shown}");
    let program = home.run(&["show", "smollm2", "--program"]);
    let described = text(&program.stdout);
    assert!(described.contains("family  llama"), "{described}{}", text(&program.stderr));
    assert!(home.run(&["rm", "smollm2"]).status.success());
    let gone = home.run(&["show", "smollm2"]);
    assert!(!gone.status.success());
    assert!(text(&gone.stderr).contains("smollm2"), "{}", text(&gone.stderr));
}

#[test]
fn what_is_not_a_model_is_named_and_leaves_nothing() {
    let home = Home::empty();
    let file = home.path("model.gguf");
    for (bytes, word) in [
        (&b""[..], "empty"),
        (&b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"[..], "LFS"),
        (&b"GGUF\x03\0\0\0"[..], "model.gguf"),
    ] {
        fs::write(&file, bytes).unwrap();
        let done = home.run(&["import", file.to_str().unwrap()]);
        assert!(!done.status.success());
        assert!(text(&done.stderr).contains(word), "{word}: {}", text(&done.stderr));
    }
    let listed = text(&home.run(&["list"]).stdout);
    assert!(listed.contains("no models yet"), "{listed}");
}

#[test]
fn an_answer_is_written_as_it_comes_with_its_speed() {
    let home = Home::with_model();
    let ask =
        ["run", "smollm2", "Why is the sky blue?", "--temperature", "0", "--max-tokens", "24"];
    let first = home.run(&ask);
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(text(&first.stdout).trim().len() > 20, "{}", text(&first.stdout));
    assert!(text(&first.stderr).contains("24 written at"), "{}", text(&first.stderr));
    let mut one_thread = ask.to_vec();
    one_thread.extend(["--engine-threads", "1"]);
    assert_eq!(text(&home.run(&one_thread).stdout), text(&first.stdout));
}

#[test]
fn a_component_is_inspected_pinned_and_verified() {
    let home = Home::with_components();
    let plugins = home.path("plugins");
    let family = plugins.join("gristmill_family_llama.wasm");
    let shown = text(&home.run(&["plugin", "inspect", family.to_str().unwrap()]).stdout);
    for part in
        ["kind      family", "contract  0.1", "digest    sha256:", "gristmill:contract/types"]
    {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert!(home.run(&["plugin", "verify"]).status.success());

    let mut bytes = fs::read(&family).unwrap();
    let middle = bytes.len() / 2;
    *bytes.get_mut(middle).unwrap() ^= 1;
    fs::write(&family, bytes).unwrap();
    assert!(!home.run(&["plugin", "verify"]).status.success());
    let served = home.run(&["run", "smollm2", "hello"]);
    assert!(!served.status.success());
    assert!(text(&served.stderr).contains("digest-mismatch"), "{}", text(&served.stderr));
}

#[test]
fn a_new_plugin_has_all_its_files_and_no_placeholder() {
    let home = Home::empty();
    for kind in ["backend", "family", "probe"] {
        let name = format!("my-{kind}");
        let made = home.run(&["plugin", "new", "--kind", kind, &name]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        for file in ["Cargo.toml", "README.md", "src/lib.rs"] {
            let written = fs::read_to_string(home.path(&format!("{name}/{file}"))).unwrap();
            assert!(!written.contains("{{"), "{name}/{file} has a placeholder");
        }
        let again = home.run(&["plugin", "new", "--kind", kind, &name]);
        assert!(text(&again.stderr).contains("exists already"));
    }
    assert!(!home.run(&["plugin", "new", "--kind", "backend", "../evil"]).status.success());
}

#[test]
fn a_stranger_may_not_be_listened_for_without_a_token() {
    let home = Home::with_components();
    let done = home.run(&["serve", "--server-listen", "0.0.0.0:0"]);
    assert!(!done.status.success());
    assert!(text(&done.stderr).contains("token"), "{}", text(&done.stderr));
}

#[test]
fn a_server_answers_names_its_source_and_stops_in_peace() {
    let home = Home::with_model();
    let mut server = home.serve(&[]);
    let body = r#"{"model":"smollm2","stream":false,"options":{"temperature":0,"num_predict":8},"messages":[{"role":"user","content":"Say hello."}]}"#;
    let answer = exchange(&server.address, "POST", "/api/chat", "", body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    for header in [
        "x-request-id: ",
        "x-gristmill-model: smollm2:latest",
        "x-gristmill-backend: cpu",
        "x-gristmill-digest: sha256:",
        "x-gristmill-generation: 1",
    ] {
        assert!(answer.head.contains(header), "{header} is not in\n{}", answer.head);
    }
    assert!(answer.body.contains(r#""eval_count":8"#), "{}", answer.body);

    let stopped = Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status();
    assert!(stopped.unwrap().success());
    assert!(server.child.wait().unwrap().success());
}
