//! A ledger of one back-end, `voice`, whose components tell their own names.

use std::{
    fs,
    ops::Deref,
    time::{Duration, Instant},
};

use gristmill_testing::guests;
use serde_json::json;

use super::{Serving, exchange};

/// A machine with an empty ledger, and a grant for what tells its own name.
pub struct Home(super::Home);

impl Deref for Home {
    type Target = super::Home;

    fn deref(&self) -> &super::Home {
        &self.0
    }
}

impl Home {
    pub fn new() -> Self {
        let home = super::Home::empty();
        let folders = ["plugins", "ledger", "policies"].map(|folder| home.path(folder));
        let [plugins, ledger, policies] = folders;
        for folder in [&plugins, &ledger, &policies.join("grants")] {
            fs::create_dir_all(folder).unwrap();
        }
        let imports = "'gristmill:contract/*', 'wasi:cli/*', 'wasi:clocks/*', 'wasi:io/*'";
        let grant = format!("kind = 'backend'\nimports = [{imports}]\n");
        fs::write(policies.join("grants/voice.toml"), grant).unwrap();
        fs::write(policies.join("approvals.toml"), "otherwise = 0\n").unwrap();
        let cache = home.path("cache");
        Self(
            home.set("XDG_CACHE_HOME", cache)
                .set("GRISTMILL_PATHS_PLUGINS", plugins)
                .set("GRISTMILL_PATHS_LEDGER", ledger)
                .set("GRISTMILL_PATHS_POLICIES", policies)
                .set("GRISTMILL_PLUGINS_BACKEND", "voice")
                .set("GRISTMILL_PLUGINS_FAMILIES", ""),
        )
    }

    /// Proposes a guest as `voice` and puts it in force.
    pub fn promote(&self, guest: &str) {
        self.propose(guest);
        self.says(&["ledger", "promote", "voice"]);
    }

    pub fn propose(&self, guest: &str) {
        let file = self.path(&format!("{guest}.wasm"));
        fs::write(&file, guests::guest(guest).unwrap()).unwrap();
        self.says(&["ledger", "pin", "voice", file.to_str().unwrap()]);
    }
}

/// What a component that tells its own name answers.
pub fn said(address: &str, prompt: &str) -> Result<String, String> {
    let body = json!({"model": "teller", "prompt": prompt, "stream": false, "raw": true});
    let answer = exchange(address, "POST", "/api/generate", "", &body.to_string());
    match answer.status {
        200 => Ok(answer.json()["response"].as_str().unwrap().trim().to_owned()),
        status => Err(format!("{status} {}", answer.body)),
    }
}

pub fn voice(address: &str) -> Result<String, String> {
    said(address, "1")
}

/// Looks until it is so.
pub fn until(mut found: impl FnMut() -> String, wanted: impl Fn(&str) -> bool) {
    let begun = Instant::now();
    loop {
        let found = found();
        if wanted(&found) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{found}");
    }
}

/// Asks until this one answers.
pub fn answers(serving: &Serving, name: &str) {
    until(|| voice(&serving.address).unwrap(), |found| found == name);
}

/// Asks `/readyz` until it is so.
pub fn ready(serving: &Serving, wanted: impl Fn(&str) -> bool) {
    until(|| exchange(&serving.address, "GET", "/readyz", "", "").body, wanted);
}
