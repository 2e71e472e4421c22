//! One grant: imports, upstream names and limits of one plugin.

use std::{collections::BTreeMap, time::Duration};

use gristmill_ledger::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{keys, upstream::Upstream};

/// What a plugin may import and use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "grant")]
pub struct Grant {
    /// Whom it is for.
    pub kind: Kind,
    /// Interfaces without version, as `gristmill:contract/engine`, or a whole package, as
    /// `wasi:io/*`. Interfaces that carry only types need no grant.
    #[serde(default)]
    pub imports: Vec<String>,
    /// The servers it may send to through `upstream`, by name; the host knows their addresses.
    #[serde(default)]
    pub upstreams: BTreeMap<String, Upstream>,
    /// How much it may use.
    #[serde(default)]
    pub limits: Limits,
}

/// How much a plugin may use. Each limit that a guest hits ends its store with a fault named in
/// `docs/contract.md`; only [`Limits::stores`] makes a caller wait its turn (`busy`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Limits {
    /// MiB of linear memory of one store, all memories together.
    #[schemars(range(min = 1, max = 256))]
    pub memory_mib: u32,
    /// Elements of one table.
    #[schemars(range(min = 1, max = 100_000))]
    pub table_elements: u32,
    /// Core instances of one store.
    #[schemars(range(min = 1, max = 32))]
    pub instances: u32,
    /// Live handles of one store: those of the guest and those the host holds for it.
    #[schemars(range(min = 1, max = 100_000))]
    pub handles: u32,
    /// Bytes that one call may carry from the guest to the host, arguments or results.
    #[schemars(range(min = 1, max = 268_435_456))]
    pub host_call_bytes: u32,
    /// Log records of one store.
    #[schemars(range(min = 1, max = 100_000))]
    pub log_records: u32,
    /// Bytes of log messages and fields of one store.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub log_bytes: u32,
    /// Milliseconds of CPU time that one call may use.
    #[schemars(range(min = 1, max = 600_000))]
    pub cpu_ms: u32,
    /// Milliseconds that one call may take, waiting included.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub call_ms: u64,
    /// Milliseconds that one answer may take from its start to its finish.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub generation_ms: u64,
    /// Events of one answer.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub answer_events: u32,
    /// Stores at the same time; one more is refused with `busy`.
    #[schemars(range(min = 1, max = 256))]
    pub stores: u32,
}

impl Default for Limits {
    /// Limits that an ordinary bridge does not notice.
    fn default() -> Self {
        Self {
            memory_mib: 64,
            table_elements: 10_000,
            instances: 16,
            handles: 1_024,
            host_call_bytes: 8 << 20,
            log_records: 1_000,
            log_bytes: 256 << 10,
            cpu_ms: 1_000,
            call_ms: 600_000,
            generation_ms: 3_600_000,
            answer_events: 1_000_000,
            stores: 64,
        }
    }
}

impl Limits {
    /// Bytes of linear memory of one store.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        (self.memory_mib as usize) << 20
    }

    /// CPU time of one call.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        Duration::from_millis(self.cpu_ms.into())
    }

    /// Time of one call.
    #[must_use]
    pub fn call(&self) -> Duration {
        Duration::from_millis(self.call_ms)
    }

    /// Time of one answer.
    #[must_use]
    pub fn generation(&self) -> Duration {
        Duration::from_millis(self.generation_ms)
    }
}

/// Every limit with the largest value a grant may give it. The memory bound is that of the host's
/// pool; the others keep a typing error (a digit too many) from being a grant without limit.
const BOUNDS: &[(&str, u64)] = &[
    ("memory-mib", 256),
    ("table-elements", 100_000),
    ("instances", 32),
    ("handles", 100_000),
    ("host-call-bytes", 256 << 20),
    ("log-records", 100_000),
    ("log-bytes", 16 << 20),
    ("cpu-ms", 600_000),
    ("call-ms", 86_400_000),
    ("generation-ms", 86_400_000),
    ("answer-events", 100_000_000),
    ("stores", 256),
];

impl Grant {
    /// A grant of this kind that allows no import, with default limits; a family gets less.
    #[must_use]
    pub fn none(kind: Kind) -> Self {
        let mut limits = Limits::default();
        if kind == Kind::Family {
            limits.call_ms = 10_000;
            limits.generation_ms = 10_000;
            limits.handles = 64;
            limits.stores = 4;
        }
        Self { kind, imports: Vec::new(), upstreams: BTreeMap::new(), limits }
    }

    /// Reads a grant from TOML. Limits that are not written have the default of the kind.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        keys::check("in a grant", &table, &["kind", "imports", "upstreams", "limits"])?;

        let kind = table.get("kind").and_then(toml::Value::as_str).unwrap_or_default();
        let kind = match kind {
            "backend" => Kind::Backend,
            "family" => Kind::Family,
            "probe" => Kind::Probe,
            other => {
                return Err(format!("kind {other:?}: expected backend, family or probe"));
            }
        };
        let mut limits =
            toml::Table::try_from(&Self::none(kind).limits).map_err(|error| error.to_string())?;
        match table.remove("limits") {
            None => {}
            Some(toml::Value::Table(given)) => {
                let known: Vec<_> = BOUNDS.iter().map(|(name, _)| *name).collect();
                keys::check("in [limits]", &given, &known)?;
                limits.extend(given);
            }
            Some(other) => {
                return Err(format!("limits: expected a table, found {}", other.type_str()));
            }
        }
        for (name, most) in BOUNDS {
            let value = limits.get(*name).and_then(toml::Value::as_integer);
            if !value.is_some_and(|value| value >= 1 && value.unsigned_abs() <= *most) {
                return Err(format!("{name}: expected a whole number from 1 to {most}"));
            }
        }
        table.insert("limits".to_owned(), toml::Value::Table(limits));
        let upstreams = match table.remove("upstreams") {
            None => BTreeMap::new(),
            Some(toml::Value::Table(given)) => given
                .into_iter()
                .map(|(name, value)| Ok((name.clone(), Upstream::parse(&name, value)?)))
                .collect::<Result<_, String>>()?,
            Some(other) => {
                return Err(format!(
                    "upstreams: expected a table [upstreams.NAME], found {}",
                    other.type_str()
                ));
            }
        };

        let mut grant: Self = table.try_into().map_err(|error| error.to_string())?;
        grant.upstreams = upstreams;
        for pattern in &grant.imports {
            check_pattern(pattern)?;
        }
        Ok(grant)
    }

    /// Whether this interface (without version) may be imported.
    #[must_use]
    pub fn allows(&self, interface: &str) -> bool {
        self.imports.iter().any(|pattern| match pattern.strip_suffix("/*") {
            Some(package) => interface.split('/').next() == Some(package),
            None => pattern == interface,
        })
    }

    /// What it may ask of the server of this name, if anything.
    #[must_use]
    pub fn upstream(&self, name: &str) -> Option<&Upstream> {
        self.upstreams.get(name)
    }
}

/// `namespace:package/interface` or `namespace:package/*`.
fn check_pattern(pattern: &str) -> Result<(), String> {
    let word = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    let parts = pattern.split_once(':').and_then(|(space, rest)| {
        rest.split_once('/').map(|(package, name)| (space, package, name))
    });
    match parts {
        Some((space, package, name))
            if word(space) && word(package) && (name == "*" || word(name)) =>
        {
            Ok(())
        }
        _ => Err(format!(
            "import {pattern:?}: expected namespace:package/interface or namespace:package/*, without a version"
        )),
    }
}
