//! Approval rules: how many people must approve which change of what runs.
//!
//! One file, `policies/approvals.toml`, of plain data. Whoever promotes a pin says what would change
//! ([`Change::between`]) and asks [`Approvals::needed`]; of several rules the strictest counts. An approval
//! is a signature that the ledger's keys accept. Where there is no file, every change needs one.
//!
//! Refused by name: unknown keys and changes, a rule about nothing or without reason, and more
//! approvals than [`MOST`].

use std::{collections::BTreeSet, path::Path};

use gristmill_ledger::{Kind, Pin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{PolicyError, files};

/// Most approvals a rule may want.
pub const MOST: u32 = 16;

/// What a pin that comes in force changes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A name that had no pin.
    NewPlugin,
    /// Other bytes under a name.
    NewBytes,
    /// Imports that the pin before did not have.
    NewImports,
    /// Another kind of plugin, or another version of the contract.
    OtherContract,
    /// A grant that is not the one of the pin before.
    OtherGrant,
    /// The pin before comes back.
    Rollback,
}

impl Change {
    /// The word in files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NewPlugin => "new-plugin",
            Self::NewBytes => "new-bytes",
            Self::NewImports => "new-imports",
            Self::OtherContract => "other-contract",
            Self::OtherGrant => "other-grant",
            Self::Rollback => "rollback",
        }
    }

    /// What a pin changes against the one before it. The same pin changes nothing.
    #[must_use]
    pub fn between(previous: Option<&Pin>, next: &Pin) -> BTreeSet<Self> {
        let Some(previous) = previous else { return BTreeSet::from([Self::NewPlugin]) };
        let mut changes = BTreeSet::new();
        if previous.sha256 != next.sha256 || previous.size != next.size {
            changes.insert(Self::NewBytes);
        }
        if next.imports.iter().any(|import| !previous.imports.contains(import)) {
            changes.insert(Self::NewImports);
        }
        if previous.kind != next.kind || previous.contract != next.contract {
            changes.insert(Self::OtherContract);
        }
        if previous.grant != next.grant {
            changes.insert(Self::OtherGrant);
        }
        changes
    }
}

/// How many approvals a change needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rule {
    /// The changes it is about.
    pub changes: BTreeSet<Change>,
    /// The kind of plugin it is about; left out: every kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The plugins it is about, by name; left out: every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// How many.
    #[schemars(range(max = 16))]
    pub approvals: u32,
    /// Why, in a sentence.
    pub reason: String,
}

/// All approval rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "approval rules")]
pub struct Approvals {
    /// How many approvals a change needs that no rule is about.
    #[schemars(range(max = 16))]
    pub otherwise: u32,
    /// The rules.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

impl Default for Approvals {
    /// One approval for everything.
    fn default() -> Self {
        Self { otherwise: 1, rules: Vec::new() }
    }
}

/// How many approvals are needed, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Needed {
    /// How many: the most of any of the changes.
    pub approvals: u32,
    /// For each change how many, and the reason of the rule that says so.
    pub because: Vec<(Change, u32, Option<String>)>,
}

impl Approvals {
    /// Reads rules from TOML.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rules: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let bounded = |approvals: u32| match approvals {
            0..=MOST => Ok(()),
            more => Err(format!("expected at most {MOST} approvals, found {more}")),
        };
        bounded(rules.otherwise).map_err(|reason| format!("otherwise: {reason}"))?;
        for (place, rule) in rules.rules.iter().enumerate() {
            let fault = |what: String| format!("rules[{place}]: {what}");
            bounded(rule.approvals).map_err(fault)?;
            if rule.changes.is_empty() {
                return Err(fault("changes: expected at least one".to_owned()));
            }
            if rule.reason.trim().is_empty() {
                return Err(fault("reason: a rule must say why; it is empty".to_owned()));
            }
        }
        Ok(rules)
    }

    /// Reads `dir/approvals.toml`; the default where there is none.
    ///
    /// # Errors
    /// When it cannot be read or is not what it must be.
    pub fn open(dir: &Path) -> Result<Self, PolicyError> {
        let path = dir.join("approvals.toml");
        if !path.try_exists().map_err(|source| PolicyError::Io { path: path.clone(), source })? {
            return Ok(Self::default());
        }
        let text = files::read(&path)?;
        Self::parse(&text).map_err(|reason| PolicyError::InvalidFile {
            folder: "approvals",
            path,
            reason,
        })
    }

    /// How many approvals these changes of this plugin need. No change needs none.
    #[must_use]
    pub fn needed(&self, name: &str, kind: Kind, changes: &BTreeSet<Change>) -> Needed {
        let mut needed = Needed::default();
        for change in changes {
            let about = |rule: &&Rule| {
                rule.changes.contains(change)
                    && rule.kind.is_none_or(|it| it == kind)
                    && (rule.names.is_empty() || rule.names.iter().any(|it| it == name))
            };
            let strictest = self.rules.iter().filter(about).max_by_key(|rule| rule.approvals);
            let (approvals, reason) = match strictest {
                Some(rule) => (rule.approvals, Some(rule.reason.clone())),
                None => (self.otherwise, None),
            };
            needed.approvals = needed.approvals.max(approvals);
            needed.because.push((*change, approvals, reason));
        }
        needed
    }
}
