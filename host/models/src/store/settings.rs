//! How pulls reach the world. Read from the environment once, when a store is opened.

use std::{env, fmt, path::PathBuf, time::Duration};

/// Settings of the sources.
#[derive(Clone)]
#[non_exhaustive]
pub struct Sources {
    /// The hub that `hf:` means: `https://HOST[/PATH]`; plain http for a loopback address only.
    pub hub: String,
    /// Sent to the hub, and to no other host.
    pub token: Option<String>,
    /// Certificates to trust in place of the built-in ones, in PEM.
    pub certificates: Option<PathBuf>,
    /// The interpreter whose pip serves `pypi:`.
    pub python: PathBuf,
    /// More arguments for `pip download`.
    pub pip_arguments: Vec<String>,
    /// How often a broken download is continued before the pull fails.
    pub retries: u32,
    /// The pause before the first of these; it doubles each time.
    pub pause: Duration,
    /// How long a server may say nothing.
    pub silence: Duration,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            hub: "https://huggingface.co".to_owned(),
            token: None,
            certificates: None,
            python: PathBuf::from("python3"),
            pip_arguments: Vec::new(),
            retries: 4,
            pause: Duration::from_millis(500),
            silence: Duration::from_secs(60),
        }
    }
}

impl Sources {
    /// The defaults with what `HF_ENDPOINT`, `HF_TOKEN` and `SSL_CERT_FILE` say. Proxies
    /// (`HTTPS_PROXY`, `NO_PROXY`, …) and pip's own variables are followed where they are used.
    #[must_use]
    pub fn from_env() -> Self {
        let text = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let mut out = Self::default();
        if let Some(hub) = text("HF_ENDPOINT") {
            out.hub = hub;
        }
        out.token = text("HF_TOKEN");
        out.certificates = env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        out
    }
}

/// Without the token.
impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("hub", &self.hub)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("certificates", &self.certificates)
            .field("python", &self.python)
            .field("pip_arguments", &self.pip_arguments)
            .field("retries", &self.retries)
            .field("pause", &self.pause)
            .field("silence", &self.silence)
            .finish()
    }
}
