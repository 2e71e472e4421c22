//! The servers behind bridges: `[backends.NAME]` in the configuration, and `--backend` of `serve`.
//!
//! Each names a plugin and an address. The name is what the back-end is called everywhere; the
//! address is bound to the one upstream that the plugin's grant names. Refused: a key that is not in
//! the table below, a name that cannot stand before a model's (`NAME/model`), two keys for one
//! server, and times that a grant would cut short.

use std::{collections::BTreeMap, env, fs, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use gristmill_policies::Grant;
use gristmill_router::Limits;
use gristmill_sandbox::Upstream;
use gristmill_upstream::{Client, Config, Credential, Endpoint, SystemResolver, Times, Trust};
use serde_json::json;
use toml::Value;

/// Keys of a back-end, with what each is for.
const KEYS: &[(&str, &str)] = &[
    ("plugin", "Pin of the bridge."),
    ("url", "Where it is: http://HOST:PORT/PREFIX of the server, or https."),
    ("key-env", "Environment variable that holds the server's key."),
    ("key-file", "File that holds the server's key."),
    ("key-header", "Header the key goes into; unset: Authorization, as a bearer token."),
    ("ca-file", "Certificates, in PEM form, of authorities to believe besides the usual ones."),
    ("connect-ms", "Longest wait for a connection."),
    (
        "head-ms",
        "Longest wait for an answer to begin; a server that does not stream computes here.",
    ),
    ("idle-ms", "Longest silence within an answer."),
    ("total-ms", "Longest exchange."),
    ("active", "Answers of one model at the same time; more wait."),
    ("queued", "Answers of one model that may wait; more are told to come back."),
    ("queue-ms", "Longest wait for a place; whoever waited as long is told to come back."),
];

/// One server as configured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Server {
    /// What the back-end is called.
    pub(crate) name: String,
    values: BTreeMap<String, Value>,
}

impl Server {
    /// From `[backends.NAME]`.
    pub(crate) fn from_table(name: &str, value: Value) -> Result<Self> {
        let Value::Table(table) = value else {
            bail!("backends.{name}: expected a table, found {}", value.type_str());
        };
        let mut values = BTreeMap::new();
        for (key, value) in table {
            check(&key, &value).with_context(|| format!("backends.{name}"))?;
            values.insert(key, value);
        }
        Self { name: name.to_owned(), values }.checked()
    }

    /// From `NAME=PLUGIN,URL[,KEY=VALUE…]`.
    pub(crate) fn from_flag(text: &str) -> Result<Self> {
        let form =
            || anyhow!("expected NAME=PLUGIN,URL and perhaps more KEY=VALUE, found {text:?}");
        let (name, rest) = text.split_once('=').ok_or_else(form)?;
        let mut parts = rest.split(',');
        let (plugin, url) = (parts.next().ok_or_else(form)?, parts.next().ok_or_else(form)?);
        let mut values = BTreeMap::from([
            ("plugin".to_owned(), Value::from(plugin)),
            ("url".to_owned(), Value::from(url)),
        ]);
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(form)?;
            let value = match value.parse::<i64>() {
                Ok(number) if is_number(key) => Value::Integer(number),
                _ => Value::from(value),
            };
            check(key, &value)?;
            values.insert(key.to_owned(), value);
        }
        Self { name: name.to_owned(), values }.checked()
    }

    fn checked(self) -> Result<Self> {
        let name = &self.name;
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
            bail!("back-end {name:?}: expected a name of small letters, digits, -, _ and .");
        }
        for key in ["plugin", "url"] {
            if self.text(key).is_none_or(str::is_empty) {
                bail!("backends.{name}.{key} is missing");
            }
        }
        if self.text("key-env").is_some() && self.text("key-file").is_some() {
            bail!("backends.{name}: expected key-env or key-file, found both");
        }
        self.endpoint()?;
        Ok(self)
    }

    /// The bridge's pin.
    pub(crate) fn plugin(&self) -> &str {
        self.text("plugin").unwrap_or_default()
    }

    /// Bounds of the queue in front of each of its models.
    pub(crate) fn limits(&self) -> Limits {
        let default = Limits { active: 64, ..Limits::default() };
        Limits {
            active: self.count("active").unwrap_or(default.active),
            queued: self.count("queued").unwrap_or(default.queued),
            wait: self
                .count("queue-ms")
                .map_or(default.wait, |ms| Duration::from_millis(ms as u64)),
        }
    }

    /// The client that the plugin with this grant reaches it by.
    pub(crate) fn client(&self, grant: &Grant) -> Result<Arc<dyn Upstream>> {
        let place = || format!("backends.{}", self.name);
        let mut granted = grant.upstreams.iter();
        let (Some((upstream, granted)), None) = (granted.next(), granted.next()) else {
            bail!(
                "{}: the grant of {} names {} upstreams, expected one for the url to be bound to",
                place(),
                self.plugin(),
                grant.upstreams.len()
            );
        };
        let times = self.times(grant)?;
        let authorities = self.text("ca-file").map(PathBuf::from);
        let trust = Trust::new(authorities.as_deref()).with_context(place)?;
        let config = Config {
            backend: self.name.clone(),
            upstream: upstream.clone(),
            endpoint: self.endpoint()?,
            credential: self.credential()?,
            times,
        };
        Ok(Arc::new(Client::new(config, granted.clone(), Arc::new(SystemResolver), trust)))
    }

    fn endpoint(&self) -> Result<Endpoint> {
        Endpoint::parse(self.text("url").unwrap_or_default())
            .with_context(|| format!("backends.{}", self.name))
    }

    fn credential(&self) -> Result<Option<Credential>> {
        let name = &self.name;
        let key = match (self.text("key-env"), self.text("key-file")) {
            (Some(variable), _) => env::var(variable).with_context(|| {
                format!("backends.{name}: cannot read the environment variable {variable}")
            })?,
            (None, Some(file)) => fs::read_to_string(file)
                .with_context(|| format!("backends.{name}: cannot read the key file {file}"))?,
            (None, None) if self.text("key-header").is_some() => {
                bail!("backends.{name}: key-header without key-env or key-file")
            }
            (None, None) => return Ok(None),
        };
        let credential = Credential::new(&key, self.text("key-header"));
        Ok(Some(credential.with_context(|| format!("backends.{name}"))?))
    }

    /// A wait that outlasts the grant's own limit would end as a fault of the plugin.
    fn times(&self, grant: &Grant) -> Result<Times> {
        let default = Times::default();
        let (call, generation) = (grant.limits.call(), grant.limits.generation());
        let time = |key: &str, default: Duration, most: Duration| {
            let most = most.saturating_sub(Duration::from_secs(1));
            match self.count(key) {
                None => Ok(default.min(most)),
                Some(ms) => {
                    let time = Duration::from_millis(ms as u64);
                    if time > most {
                        bail!(
                            "backends.{}.{key}: the grant of {} allows at most {} ms",
                            self.name,
                            self.plugin(),
                            most.as_millis()
                        );
                    }
                    Ok(time)
                }
            }
        };
        Ok(Times {
            connect: time("connect-ms", default.connect, call)?,
            head: time("head-ms", default.head, call)?,
            idle: time("idle-ms", default.idle, call)?,
            total: time("total-ms", default.total, generation)?,
        })
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).and_then(Value::as_str)
    }

    fn count(&self, key: &str) -> Option<usize> {
        self.values.get(key).and_then(Value::as_integer)?.try_into().ok()
    }

    /// Its values, one a line, for `config show`. There is no key among them.
    pub(crate) fn show(&self) -> impl Iterator<Item = String> + '_ {
        self.values.iter().map(|(key, value)| format!("backends.{}.{key} = {value}", self.name))
    }
}

/// Adds a server; one of the same name is replaced in its place.
pub(crate) fn add(servers: &mut Vec<Server>, server: Server) {
    match servers.iter_mut().find(|known| known.name == server.name) {
        Some(known) => *known = server,
        None => servers.push(server),
    }
}

/// The section for the commented file.
pub(crate) fn commented() -> String {
    let mut text = String::from(
        "\n# Servers that run models already, each behind a bridge; as many as there are, asked in this\n\
         # order. Also a flag: --backend NAME=PLUGIN,URL,KEY=VALUE.\n# [backends.NAME]\n",
    );
    for (key, help) in KEYS {
        let example = if is_number(key) { "0" } else { "\"…\"" };
        text.push_str(&format!("# {help}\n# {key} = {example}\n"));
    }
    text
}

/// The JSON Schema of the section.
pub(crate) fn schema() -> serde_json::Value {
    let mut properties = serde_json::Map::new();
    for (key, help) in KEYS {
        let value = match is_number(key) {
            true => json!({ "type": "integer", "minimum": 1, "description": help }),
            false => json!({ "type": "string", "minLength": 1, "description": help }),
        };
        properties.insert((*key).to_owned(), value);
    }
    json!({
        "type": "object",
        "description": "Servers that run models already, each behind a bridge.",
        "propertyNames": { "pattern": "^[a-z0-9_.-]{1,64}$" },
        "additionalProperties": {
            "type": "object",
            "properties": properties,
            "required": ["plugin", "url"],
            "not": { "required": ["key-env", "key-file"] },
            "additionalProperties": false,
        },
    })
}

fn is_number(key: &str) -> bool {
    key.ends_with("-ms") || key == "active" || key == "queued"
}

fn check(key: &str, value: &Value) -> Result<()> {
    if !KEYS.iter().any(|(known, _)| *known == key) {
        let nearest = KEYS
            .iter()
            .map(|(known, _)| *known)
            .max_by(|a, b| strsim::jaro_winkler(a, key).total_cmp(&strsim::jaro_winkler(b, key)));
        bail!("there is no key {key}; did you mean {}?", nearest.unwrap_or_default());
    }
    let fits = match is_number(key) {
        true => value.as_integer().is_some_and(|number| number >= 1),
        false => value.is_str(),
    };
    if fits {
        return Ok(());
    }
    let expected = if is_number(key) { "a whole number from 1" } else { "text" };
    Err(anyhow!("{key}: expected {expected}, found {}", value.type_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_and_the_flag_say_the_same() {
        let table: toml::Table =
            "plugin = 'vllm'\nurl = 'http://h:1/v'\nhead-ms = 5\nkey-env = 'KEY'".parse().unwrap();
        let file = Server::from_table("a", Value::Table(table)).unwrap();
        let flag = Server::from_flag("a=vllm,http://h:1/v,head-ms=5,key-env=KEY").unwrap();
        assert_eq!(file, flag);
        assert_eq!((file.plugin(), file.limits().active), ("vllm", 64));
    }

    #[test]
    fn what_cannot_be_a_server_is_refused() {
        for (flag, word) in [
            ("vllm", "NAME=PLUGIN,URL"),
            ("a=vllm", "NAME=PLUGIN,URL"),
            ("A b=vllm,http://h", "small letters"),
            ("a/b=vllm,http://h", "small letters"),
            ("a=,http://h", "plugin is missing"),
            ("a=vllm,ftp://h", "http://"),
            ("a=vllm,http://user:secret@h", "key-env"),
            ("a=vllm,http://h,head=3", "head-ms"),
            ("a=vllm,http://h,head-ms=x", "whole number"),
            ("a=vllm,http://h,head-ms=0", "whole number"),
            ("a=vllm,http://h,key-env=A,key-file=B", "found both"),
        ] {
            let error = format!("{:#}", Server::from_flag(flag).unwrap_err());
            assert!(error.contains(word), "{flag}: {error}");
        }
        let error = format!("{:#}", Server::from_flag("a=vllm,http://u:secret@h").unwrap_err());
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_url_is_bound_to_the_only_upstream_and_times_fit_the_grant() {
        let grant = |upstreams: &str| {
            Grant::parse(&format!("kind = 'backend'\n[limits]\ncall-ms = 60000\n{upstreams}"))
                .unwrap()
        };
        let one =
            "[upstreams.primary]\nnetwork = ['loopback']\nmethods = ['GET']\npaths = ['/a']\n";
        let two = format!("{one}{}", one.replace("primary", "second"));
        let server = Server::from_flag("a=vllm,http://127.0.0.1:1").unwrap();
        assert!(server.client(&grant(one)).is_ok());
        for (upstreams, count) in [("", "names 0"), (two.as_str(), "names 2")] {
            let error = format!("{:#}", server.client(&grant(upstreams)).err().unwrap());
            assert!(error.contains(count), "{error}");
        }
        assert_eq!(server.times(&grant(one)).unwrap().head, Duration::from_secs(59));
        let slow = Server::from_flag("a=vllm,http://127.0.0.1:1,head-ms=60000").unwrap();
        let error = slow.client(&grant(one)).err().unwrap().to_string();
        assert!(error.contains("at most 59000 ms"), "{error}");
        let keyed = Server::from_flag("a=vllm,http://127.0.0.1:1,key-file=/nowhere/key").unwrap();
        assert!(keyed.client(&grant(one)).is_err());
    }
}
