//! The settings: one table from which the configuration file, the flags, the environment variables
//! and their documentation come.
//!
//! Precedence, highest first: flag, environment variable, file, default. A key that is not in the
//! table is refused with the nearest one that is.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result, anyhow, bail};
use toml::Value;

use crate::backends::{self, Server};

/// What a setting holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text.
    Text,
    /// A whole number that is not negative.
    Count,
    /// `true` or `false`.
    Flag,
    /// Texts, separated by commas outside the file.
    List,
}

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Section of the file.
    pub(crate) section: &'static str,
    /// Key in the section.
    pub(crate) key: &'static str,
    /// What it holds.
    pub(crate) kind: Kind,
    /// The default as TOML; empty: unset.
    pub(crate) default: &'static str,
    /// What it does, for the file's comment and the flag's help.
    pub(crate) help: &'static str,
}

impl Setting {
    /// `server.listen`
    pub(crate) fn path(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// `server-listen`
    pub(crate) fn flag(&self) -> String {
        format!("{}-{}", self.section, self.key.replace('_', "-"))
    }

    /// `GRISTMILL_SERVER_LISTEN`
    pub(crate) fn variable(&self) -> String {
        format!("GRISTMILL_{}_{}", self.section, self.key).to_uppercase()
    }
}

macro_rules! settings {
    ($($section:ident . $key:ident : $kind:ident = $default:literal, $help:literal;)*) => {
        /// Every setting, in the order of the file.
        pub(crate) const SETTINGS: &[Setting] = &[$(Setting {
            section: stringify!($section),
            key: stringify!($key),
            kind: Kind::$kind,
            default: $default,
            help: $help,
        }),*];
    };
}

settings! {
    server.listen: Text = "\"127.0.0.1:11450\"", "Address and port. Anything but loopback needs a key.";
    server.tokens: List = "[]", "Keys for inference without names and limits. Better in the environment than in a file; better still: gristmill key add.";
    server.max_body_mib: Count = "128", "Largest request body, in MiB.";
    server.model_changes: Flag = "false", "Whether clients may pull, copy and delete models.";
    server.origins: List = "[]", "Web origins allowed besides loopback ones.";
    server.hosts: List = "[]", "Host names by which clients may reach a loopback listener, besides local ones.";
    server.drain_seconds: Count = "30", "How long running answers may finish after a signal to stop.";
    paths.models: Text = "", "Where models are kept. Unset: the user's data folder.";
    paths.plugins: Text = "", "Where component files lie. Unset: share/gristmill/plugins beside the binary.";
    paths.ledger: Text = "", "The ledger with the pins. Unset: share/gristmill/ledger beside the binary.";
    paths.ledger_seen: Text = "", "What is remembered of the ledger outside its folder: the highest sequences. Each ledger has its own. Unset: gristmill/ledger-seen.toml in the user's data folder.";
    paths.keys: Text = "", "The file of the keys. Unset: keys.toml in the user's data folder.";
    paths.policies: Text = "", "Grants, blocks, parameter policies, profiles, approval rules. Unset: share/gristmill/policies beside the binary.";
    engine.threads: Count = "", "Threads that compute. Unset: what the machine, its affinity and its quota allow.";
    engine.pin: Flag = "true", "Whether each computing thread stays on one processor.";
    engine.context: Count = "", "Longest context of one answer, in tokens. Unset: what the model was trained for.";
    engine.max_active: Count = "4", "Answers computed at once; more wait.";
    engine.max_queued: Count = "64", "Answers that may wait; more are told to come back.";
    engine.max_wait_seconds: Count = "600", "Longest wait for a place; whoever waited as long is told to come back.";
    engine.kv_k: Text = "\"F16\"", "Type of cached keys: F16, BF16, Q8_0, Q4_0 or F32.";
    engine.kv_v: Text = "\"F16\"", "Type of cached values: F16, BF16, Q8_0, Q4_0 or F32.";
    engine.memory_mib: Count = "", "Memory that models and caches may take, in MiB. Unset: what the machine has, less a reserve.";
    engine.packages: Flag = "true", "Whether packed weights are kept in the store and shared between processes; otherwise each process packs into its own memory.";
    engine.speculation: Text = "\"auto\"", "auto: guess tokens from the text so far while that pays, which changes no answer; off: never.";
    engine.bulk: Flag = "true", "Whether prompts are read in bulk where the processor has tiles (AMX): faster, and rounded otherwise than answers are, so that how much of a prompt was in a cache may show in an answer. false: it never does.";
    models.keep_alive: Text = "\"5m\"", "How long an idle model stays loaded: 30s, 5m, 1h; 0 not at all, -1 for ever.";
    models.preload: List = "[]", "Models opened at start.";
    plugins.families: List = "[\"llama\", \"qwen\", \"gemma\", \"phi\", \"glm\", \"gpt-oss\", \"deepseek\", \"olmo\", \"granite\", \"cohere\", \"starcoder\", \"lfm\", \"qwen-next\", \"bert\"]", "Pins of the model families, asked in this order.";
    plugins.backend: Text = "\"cpu\"", "Pin of the back-end that serves local models; empty: none does.";
    log.format: Text = "\"human\"", "human or json.";
    log.filter: Text = "\"info\"", "What is logged, as in RUST_LOG: info, debug, gristmill_engine=trace, …";
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The table.
    Default,
    /// The configuration file.
    File,
    /// An environment variable.
    Environment,
    /// A flag.
    Flag,
}

/// All settings with their values and origins.
#[derive(Debug, Default, Clone)]
pub(crate) struct Settings {
    values: BTreeMap<String, (Value, Origin)>,
    servers: Vec<Server>,
}

impl Settings {
    /// Merges file, environment and flags over the defaults.
    ///
    /// `flags` and `environment` answer by flag and variable name.
    pub(crate) fn merge(
        file: Option<&Path>,
        environment: impl Fn(&str) -> Option<String>,
        flags: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let mut settings = Self::default();
        for setting in SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
            let value = from_toml(setting.default)?;
            settings.values.insert(setting.path(), (value, Origin::Default));
        }
        if let Some(path) = file {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read the configuration {}", path.display()))?;
            settings.add_file(&text).with_context(|| format!("in {}", path.display()))?;
        }
        for setting in SETTINGS {
            let variable = setting.variable();
            if let Some(text) = environment(&variable) {
                let value = from_text(setting, &text).with_context(|| variable.clone())?;
                settings.values.insert(setting.path(), (value, Origin::Environment));
            }
            if let Some(text) = flags(&setting.flag()) {
                let value =
                    from_text(setting, &text).with_context(|| format!("--{}", setting.flag()))?;
                settings.values.insert(setting.path(), (value, Origin::Flag));
            }
        }
        Ok(settings)
    }

    fn add_file(&mut self, text: &str) -> Result<()> {
        let table: toml::Table = text.parse().map_err(|error| anyhow!("{error}"))?;
        for (section, keys) in table {
            let Value::Table(keys) = keys else { return Err(unknown(&section)) };
            if section == "backends" {
                for (name, value) in keys {
                    backends::add(&mut self.servers, Server::from_table(&name, value)?);
                }
                continue;
            }
            if !SETTINGS.iter().any(|setting| setting.section == section) {
                return Err(unknown(&section));
            }
            for (key, value) in keys {
                let path = format!("{section}.{key}");
                let setting = SETTINGS
                    .iter()
                    .find(|setting| setting.path() == path)
                    .ok_or_else(|| unknown(&path))?;
                check(setting, &value).with_context(|| path.clone())?;
                self.values.insert(path, (value, Origin::File));
            }
        }
        Ok(())
    }

    /// A text setting, if set.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.values.get(path).and_then(|(value, _)| value.as_str())
    }

    /// A number, if set.
    pub(crate) fn count(&self, path: &str) -> Option<u64> {
        self.values.get(path).and_then(|(value, _)| value.as_integer()?.try_into().ok())
    }

    /// A truth value; unset is false.
    pub(crate) fn flag(&self, path: &str) -> bool {
        self.values.get(path).and_then(|(value, _)| value.as_bool()).unwrap_or(false)
    }

    /// A list; unset is empty.
    pub(crate) fn list(&self, path: &str) -> Vec<String> {
        let values = self.values.get(path).and_then(|(value, _)| value.as_array());
        values.into_iter().flatten().filter_map(|value| value.as_str().map(str::to_owned)).collect()
    }

    /// The servers behind bridges, in the order in which they were named.
    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Adds a server, or replaces the one of its name.
    pub(crate) fn add_server(&mut self, server: Server) {
        backends::add(&mut self.servers, server);
    }

    /// Every setting with value and origin; tokens are not shown.
    pub(crate) fn show(&self) -> String {
        let mut text = String::new();
        for setting in SETTINGS {
            let path = setting.path();
            let line = match self.values.get(&path) {
                None => format!("{path} is unset"),
                Some((Value::Array(tokens), origin)) if path == "server.tokens" => {
                    format!("{path} = {} tokens, not shown  # {origin:?}", tokens.len())
                }
                Some((value, origin)) => format!("{path} = {value}  # {origin:?}"),
            };
            let _ = writeln!(text, "{line}");
        }
        for line in self.servers.iter().flat_map(Server::show) {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

/// The commented configuration file with every default.
pub(crate) fn commented_file() -> String {
    let mut text = String::from(
        "# Gristmill's configuration. Every key is also a flag (--server-listen) and an environment\n\
         # variable (GRISTMILL_SERVER_LISTEN); a flag wins over a variable, a variable over this file.\n\
         # The values here are the defaults; a key that is commented out is unset.\n",
    );
    let mut section = "";
    for setting in SETTINGS {
        if setting.section != section {
            section = setting.section;
            let _ = writeln!(text, "\n[{section}]");
        }
        let _ = writeln!(text, "# {}", setting.help);
        let _ = match setting.default {
            "" => writeln!(text, "# {} = {}", setting.key, example(setting.kind)),
            default => writeln!(text, "{} = {default}", setting.key),
        };
    }
    text.push_str(&backends::commented());
    text
}

fn example(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "\"…\"",
        Kind::Count => "0",
        Kind::Flag => "false",
        Kind::List => "[]",
    }
}

fn unknown(path: &str) -> anyhow::Error {
    let nearest = SETTINGS
        .iter()
        .map(|setting| setting.path())
        .max_by(|a, b| strsim::jaro_winkler(a, path).total_cmp(&strsim::jaro_winkler(b, path)));
    match nearest {
        Some(nearest) => anyhow!("there is no setting {path}; did you mean {nearest}?"),
        None => anyhow!("there is no setting {path}"),
    }
}

/// A setting's default, as JSON has it; none where it is unset.
pub(crate) fn default(setting: &Setting) -> Option<serde_json::Value> {
    let value = from_toml(setting.default).ok()?;
    serde_json::to_value(value).ok()
}

fn from_toml(text: &str) -> Result<Value> {
    let table: toml::Table = format!("value = {text}").parse()?;
    table.into_iter().next().map(|(_, value)| value).context("a default has a value")
}

fn from_text(setting: &Setting, text: &str) -> Result<Value> {
    let value = match setting.kind {
        Kind::Text => Value::String(text.to_owned()),
        Kind::Count => Value::Integer(
            text.parse().map_err(|_| anyhow!("expected a whole number, found {text:?}"))?,
        ),
        Kind::Flag => Value::Boolean(
            text.parse().map_err(|_| anyhow!("expected true or false, found {text:?}"))?,
        ),
        Kind::List => Value::Array(
            text.split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty())
                .map(|part| Value::String(part.to_owned()))
                .collect(),
        ),
    };
    check(setting, &value)?;
    Ok(value)
}

fn check(setting: &Setting, value: &Value) -> Result<()> {
    let fits = match setting.kind {
        Kind::Text => value.is_str(),
        Kind::Count => value.as_integer().is_some_and(|number| number >= 0),
        Kind::Flag => value.is_bool(),
        Kind::List => value.as_array().is_some_and(|parts| parts.iter().all(|part| part.is_str())),
    };
    if fits {
        return Ok(());
    }
    let expected = match setting.kind {
        Kind::Text => "a text",
        Kind::Count => "a whole number that is not negative",
        Kind::Flag => "true or false",
        Kind::List => "a list of texts",
    };
    bail!("expected {expected}, found {value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    fn with_file(text: &str) -> Result<Settings> {
        let mut settings = Settings::merge(None, none, none)?;
        settings.add_file(text)?;
        Ok(settings)
    }

    #[test]
    fn a_flag_wins_over_a_variable_and_a_variable_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gristmill.toml");
        fs::write(&file, "[engine]\nmax_active = 7\nmax_queued = 7\nthreads = 7\n").unwrap();
        let variable = |name: &str| {
            ["GRISTMILL_ENGINE_MAX_QUEUED", "GRISTMILL_ENGINE_THREADS"]
                .contains(&name)
                .then(|| "8".to_owned())
        };
        let flag = |name: &str| (name == "engine-threads").then(|| "9".to_owned());
        let settings = Settings::merge(Some(&file), variable, flag).unwrap();
        assert_eq!(settings.count("engine.max_active"), Some(7));
        assert_eq!(settings.count("engine.max_queued"), Some(8));
        assert_eq!(settings.count("engine.threads"), Some(9));
        assert_eq!(settings.text("server.listen"), Some("127.0.0.1:11450"));
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest() {
        for (text, nearest) in [
            ("[server]\nlistn = \"x\"", "server.listen"),
            ("[engine]\nthread = 1", "engine.threads"),
            ("[sever]\nlisten = \"x\"", "server."),
            ("[sever]", "server."),
        ] {
            let message = with_file(text).unwrap_err().to_string();
            assert!(message.contains(nearest), "{message}");
        }
    }

    #[test]
    fn a_wrong_type_is_refused() {
        for text in [
            "[server]\nlisten = 5",
            "[engine]\nthreads = -1",
            "[engine]\npin = \"yes\"",
            "[server]\ntokens = [1]",
            "server = 1",
        ] {
            assert!(with_file(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_shipped_file_is_the_table() {
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../gristmill.toml");
        assert_eq!(
            fs::read_to_string(shipped).unwrap(),
            commented_file(),
            "write it anew: gristmill config default > gristmill.toml"
        );
        let settings = with_file(&commented_file()).unwrap();
        assert_eq!(settings.count("server.max_body_mib"), Some(128));
    }

    #[test]
    fn tokens_are_not_shown() {
        let settings = with_file("[server]\ntokens = [\"secret\"]").unwrap();
        assert!(!settings.show().contains("secret"));
    }
}
