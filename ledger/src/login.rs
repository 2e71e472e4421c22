//! The login of a registry, as `docker login` writes it into `config.json`.
//!
//! An entry `auths.HOST.auth` is used, and sent to that registry and to the token endpoint it names, to
//! nobody else. What it holds is in no message and no log. A login that a credential helper keeps is not
//! asked for: no program is run for it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::Deserialize;

use crate::{LedgerError, disk};

const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Where logins are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Logins(pub(crate) Option<PathBuf>);

/// The login of one registry.
pub(crate) enum Login {
    /// None is known.
    None,
    /// `USER:PASSWORD` in base64, as the header has it.
    Basic(String),
    /// A credential helper keeps it, by its name.
    Helper(String),
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    auths: BTreeMap<String, Auth>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: String,
    identitytoken: String,
}

impl Logins {
    /// The file in which they are, for messages.
    pub(crate) fn place(&self) -> String {
        self.0.as_ref().map_or_else(
            || "a config.json, whose folder DOCKER_CONFIG names".to_owned(),
            |path| path.display().to_string(),
        )
    }

    /// The login of this registry.
    ///
    /// # Errors
    /// `invalid-login`: the file, or this registry's entry in it, is not what it must be.
    pub(crate) fn of(&self, host: &str) -> Result<Login, LedgerError> {
        let Some(path) = &self.0 else { return Ok(Login::None) };
        let Some(bytes) = disk::read_if_there(path, MAX_CONFIG_BYTES)? else {
            return Ok(Login::None);
        };
        // What the parser says may quote what it read.
        let config: Config = serde_json::from_slice(&bytes).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let reason = format!("expected a config.json of docker, line {line} column {column}");
            LedgerError::refused("invalid-login", path, reason)
        })?;
        config.of(path, host)
    }
}

impl Config {
    fn of(mut self, path: &Path, host: &str) -> Result<Login, LedgerError> {
        let invalid = |reason: String| LedgerError::refused("invalid-login", path, reason);
        let key = self.auths.keys().find(|key| is_of(key, host)).cloned();
        let entry = key.and_then(|key| Some((self.auths.remove(&key)?, key)));
        let helper = self.cred_helpers.into_iter().find(|(key, _)| is_of(key, host));
        let helper = helper.map(|(_, helper)| helper);
        let Some((Auth { auth, identitytoken }, key)) = entry else {
            return Ok(helper.map_or(Login::None, Login::Helper));
        };
        if !identitytoken.is_empty() {
            return Err(invalid(format!(
                "auths.{key} is an identity token, which is not spoken here; write an `auth` with a user and a password or access token"
            )));
        }
        if auth.is_empty() {
            // Where a helper keeps all logins, an empty entry says that there is one.
            return Ok(helper.or(self.creds_store).map_or(Login::None, Login::Helper));
        }
        let pair = BASE64.decode(auth.trim()).ok().and_then(|pair| String::from_utf8(pair).ok());
        let pair =
            pair.filter(|pair| pair.split_once(':').is_some_and(|(user, _)| !user.is_empty()));
        match pair {
            Some(pair) => Ok(Login::Basic(BASE64.encode(pair))),
            None => Err(invalid(format!("auths.{key}.auth: expected USER:PASSWORD in base64"))),
        }
    }
}

/// Whether an entry is this registry's: its name, or an address of it.
fn is_of(key: &str, host: &str) -> bool {
    let bare = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    bare.split('/').next().is_some_and(|own| own.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_by_its_registry_and_by_no_other() {
        for (key, host, found) in [
            ("registry.example", "registry.example", true),
            ("https://Registry.example/v2/", "registry.example", true),
            ("http://127.0.0.1:5000", "127.0.0.1:5000", true),
            ("https://other.example/v1/", "registry.example", false),
            ("registry.example", "registry.example:444", false),
            ("registry.example.org", "registry.example", false),
            ("other/registry.example", "registry.example", false),
        ] {
            // "ada:secret"
            let text = format!(r#"{{"auths":{{"{key}":{{"auth":"YWRhOnNlY3JldA=="}}}}}}"#);
            let config: Config = serde_json::from_str(&text).unwrap();
            let login = config.of(Path::new("config.json"), host).unwrap();
            assert_eq!(matches!(login, Login::Basic(_)), found, "{key} for {host}");
        }
    }
}
