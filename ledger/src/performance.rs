//! Measurements: how fast a component was, with which model, on which machine.
//!
//! A record is one file, `performance/COMPONENT-SHA256.json`, whose name has the digest of its bytes, so
//! that a changed one is not read. A run that computed nothing is a failed run, whatever its times say.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    LedgerError, date::Date, digest::is_digest, digest::is_file_name, disk, guardrail::Rates,
    sha256,
};

/// The folder's name in a ledger.
pub const PERFORMANCE: &str = "performance";

const MAX_RECORD_BYTES: u64 = 256 << 10;

/// The machine, as far as speed depends on it; nothing that names it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostFingerprint {
    /// For instance `linux`.
    pub os: String,
    /// For instance `x86_64`.
    pub arch: String,
    /// Instruction set of the kernels, for instance `avx512`.
    pub isa: String,
    /// Logical processors.
    pub processors: u32,
    /// The processor's own name, where it tells one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// Bytes of main memory.
    pub memory: u64,
    /// The runtime's version.
    pub runtime: String,
}

impl HostFingerprint {
    /// The class that guardrails name: what must be equal for rates to be compared.
    #[must_use]
    pub fn class(&self) -> String {
        format!("{}-{}-{}", self.arch, self.isa, self.processors)
    }
}

/// What a run is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResultClass {
    /// Repeated, and steady within its tolerance: may be a guardrail's baseline.
    Steady,
    /// Repeated, and not steady: kept, compared with nothing.
    Unsteady,
    /// Nothing was computed, or it ended early.
    Failed,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "measurement")]
pub struct Record {
    /// The pin's name.
    #[schemars(extend("pattern" = crate::digest::FILE_NAME))]
    pub component: String,
    /// Digest of the component.
    #[schemars(extend("pattern" = crate::digest::PATTERN))]
    pub component_digest: String,
    /// Where.
    pub host: HostFingerprint,
    /// Canonical id of the model.
    pub model: String,
    /// Digest of its weights; none where the back-end tells none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = crate::digest::PATTERN))]
    pub model_digest: Option<String>,
    /// For instance `Q4_K_M`.
    pub quantization: String,
    /// Where it computed: `cpu`, `gpu`, `hybrid`.
    pub placement: String,
    /// Threads it computed with.
    pub threads: u32,
    /// Tokens of the prompt, all runs together.
    pub prefill_tokens: u64,
    /// Tokens of the answers, all runs together.
    pub decode_tokens: u64,
    /// Median tokens per second while the prompt is read.
    pub prefill_per_second: f64,
    /// Median tokens per second while the answer is written.
    pub decode_per_second: f64,
    /// Bytes in use at the peak, by class: `weights`, `kv`, `scratch`, …
    pub memory: BTreeMap<String, u64>,
    /// What it is good for.
    pub result: ResultClass,
    /// When.
    pub date: Date,
}

impl Record {
    /// Its rates.
    #[must_use]
    pub fn rates(&self) -> Rates {
        Rates { prefill: self.prefill_per_second, decode: self.decode_per_second }
    }

    /// The rates, where a guardrail may be made of them.
    #[must_use]
    pub fn baseline(&self) -> Option<Rates> {
        (self.result == ResultClass::Steady).then(|| self.rates())
    }

    /// Reads a record.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn parse(text: &str) -> Result<Self, String> {
        let record: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        record.check()?;
        Ok(record)
    }

    /// The file's text.
    ///
    /// # Errors
    /// What makes this record invalid.
    pub fn to_json(&self) -> Result<String, String> {
        self.check()?;
        serde_json::to_string_pretty(self)
            .map(|text| text + "\n")
            .map_err(|error| error.to_string())
    }

    /// Puts the record into a ledger.
    ///
    /// # Errors
    /// `invalid-performance`, or that it cannot be written.
    pub fn store(&self, ledger: &Path) -> Result<PathBuf, LedgerError> {
        let folder = ledger.join(PERFORMANCE);
        let invalid = |reason| LedgerError::refused("invalid-performance", &folder, reason);
        let text = self.to_json().map_err(invalid)?;
        let digest = sha256(text.as_bytes());
        let path = folder.join(format!("{}-{digest}.json", self.component));
        disk::write(&path, text.as_bytes(), MAX_RECORD_BYTES)?;
        Ok(path)
    }

    fn check(&self) -> Result<(), String> {
        if !is_file_name(&self.component) {
            return Err(format!("component {:?}: expected a pin's name", self.component));
        }
        for digest in
            [Some(&self.component_digest), self.model_digest.as_ref()].into_iter().flatten()
        {
            if !is_digest(digest) {
                return Err(format!(
                    "digest {digest:?}: expected 64 lower-case hexadecimal digits"
                ));
            }
        }
        let computed = self.prefill_tokens > 0 && self.decode_tokens > 0 && self.rates().is_run();
        if !computed && self.result != ResultClass::Failed {
            return Err(
                "a run of zero tokens is a failed run: expected result \"failed\"".to_owned()
            );
        }
        Ok(())
    }
}

/// The rates of the last of these records that was steady.
pub fn latest<'a>(records: impl IntoIterator<Item = &'a Record>) -> Option<Rates> {
    let steady = records.into_iter().filter_map(|record| Some((record.date, record.baseline()?)));
    steady.max_by_key(|(date, _)| *date).map(|(_, rates)| rates)
}

/// Reads every record of a ledger.
///
/// # Errors
/// The first that is `invalid-performance`, or cannot be read.
pub fn open(ledger: &Path) -> Result<Vec<Record>, LedgerError> {
    let paths = disk::list(&ledger.join(PERFORMANCE), "json")?;
    paths.iter().map(|path| read(path)).collect()
}

pub(crate) fn read(path: &Path) -> Result<Record, LedgerError> {
    let invalid = |reason: String| LedgerError::refused("invalid-performance", path, reason);
    let bytes = disk::read(path, MAX_RECORD_BYTES)?;
    let digest = sha256(&bytes);
    let text = String::from_utf8(bytes).map_err(|error| invalid(error.to_string()))?;
    let record = Record::parse(&text).map_err(invalid)?;
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let expected = format!("{}-{digest}", record.component);
    if stem == expected {
        Ok(record)
    } else {
        Err(invalid(format!("its content belongs to the name {expected}.json: it was changed")))
    }
}
