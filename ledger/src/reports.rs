//! The reports in a ledger's `evidence/` folder, and what they say about a component.
//!
//! A report is found by the component it is about, or by the digest of its file, which is how pins
//! name it. Reports take claims away ([`Evidence::contradictions`]) and never grant one.

use std::{collections::BTreeMap, path::Path};

use crate::{
    LedgerError, disk,
    evidence::{EVIDENCE, EvidenceError, Finding, MAX_EVIDENCE_BYTES, Outcome, Statement, read},
    sha256,
};

/// The reports of a ledger, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    statements: Vec<Statement>,
    files: BTreeMap<String, Statement>,
}

/// A claim that a probe has found to be wrong, for one component, server version and model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The capability.
    pub capability: String,
    /// The check that failed.
    pub check: String,
    /// Why.
    pub reason: String,
    /// When it was tested.
    pub date: String,
}

impl Evidence {
    /// Reads every `*.json` in `dir/evidence`. A ledger without that folder has no evidence.
    ///
    /// # Errors
    /// The first file that is not what it should be.
    pub fn open(dir: &Path) -> Result<Self, EvidenceError> {
        let mut files = BTreeMap::new();
        let paths = disk::list(&dir.join(EVIDENCE), "json").map_err(|error| match error {
            LedgerError::Io { path, source } => EvidenceError::Io { path, source },
            other => EvidenceError::Invalid {
                place: dir.display().to_string(),
                reason: other.to_string(),
            },
        })?;
        for path in paths {
            let bytes = read(&path, MAX_EVIDENCE_BYTES)?;
            let statement = Statement::parse(&bytes, &path.display().to_string())?;
            files.insert(sha256(&bytes), statement);
        }
        let mut evidence = Self::of(files.values().cloned().collect());
        evidence.files = files;
        Ok(evidence)
    }

    /// These reports.
    #[must_use]
    pub fn of(mut statements: Vec<Statement>) -> Self {
        // Equal dates: the order must not depend on the folder's.
        statements.sort_by(|a, b| {
            let key = |one: &Statement| {
                (one.predicate.date.clone(), one.predicate.content_digest.clone())
            };
            key(a).cmp(&key(b))
        });
        Self { statements, files: BTreeMap::new() }
    }

    /// How many reports there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// The report whose file has these bytes, by their SHA-256.
    #[must_use]
    pub fn file(&self, digest: &str) -> Option<&Statement> {
        self.files.get(digest)
    }

    /// Whether there is a report on this component (`sha256:…`).
    #[must_use]
    pub fn concerns(&self, component: &str) -> bool {
        let mut subjects = self.statements.iter().flat_map(|statement| &statement.subject);
        subjects.any(|subject| subject.sha256() == component)
    }

    /// What is contradicted for this component (`sha256:…`), as it is now, with this model: the
    /// newest result of each check counts. A report of another version of the back-end or its server
    /// says nothing about this one; nor does one with another model.
    #[must_use]
    pub fn contradictions(
        &self,
        component: &str,
        version: &str,
        server_version: Option<&str>,
        model: &str,
        digest: Option<&str>,
    ) -> Vec<Contradiction> {
        let mut newest: BTreeMap<&str, (&Finding, &str)> = BTreeMap::new();
        for statement in &self.statements {
            let predicate = &statement.predicate;
            let same_model = match (&predicate.model.digest, digest) {
                (Some(tested), Some(own)) => bare(tested) == bare(own),
                _ => predicate.model.id == model,
            };
            if same_model
                && statement.subject.iter().any(|subject| subject.sha256() == component)
                && predicate.backend.version == version
                && predicate.backend.server_version.as_deref() == server_version
            {
                for finding in &predicate.checks {
                    newest.insert(&finding.id, (finding, &predicate.date));
                }
            }
        }
        newest
            .into_values()
            .filter(|(finding, _)| finding.outcome == Outcome::Failed)
            .map(|(finding, date)| Contradiction {
                capability: finding.capability.clone(),
                check: finding.id.clone(),
                reason: finding.reason.clone().unwrap_or_default(),
                date: date.to_owned(),
            })
            .collect()
    }
}

fn bare(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}
