//! A candidate: a pin that is made, signed and qualified before it is promoted; and who signs.

use std::{borrow::Cow, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Bytes, in base64 with its padding.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Base64(pub Vec<u8>);

impl TryFrom<String> for Base64 {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        STANDARD.decode(text).map(Self).map_err(|error| format!("expected base64: {error}"))
    }
}

impl From<Base64> for String {
    fn from(bytes: Base64) -> Self {
        STANDARD.encode(bytes.0)
    }
}

impl fmt::Debug for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl JsonSchema for Base64 {
    fn schema_name() -> Cow<'static, str> {
        "Base64".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Bytes, in base64 with its padding.",
            "type": "string",
            "contentEncoding": "base64",
        })
    }
}

/// Propose a component for a name: a candidate, in place of the one that was there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Propose {
    /// The plugin's name.
    pub name: String,
    /// Where the component comes from.
    pub source: Origin,
    /// The plugin's version; absent: the one it had, else 0.1.0.
    #[serde(default)]
    pub version: Option<String>,
    /// Reports that speak for it: SHA-256 of files in the ledger's `evidence/`.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// From when on it may be in force, as in 2026-11-30T12:00:00Z.
    #[serde(default)]
    pub not_before: Option<String>,
    /// Until when.
    #[serde(default)]
    pub expires: Option<String>,
}

/// Where a component comes from. No path: what lies on the host's disk is the host's.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "kebab-case")]
pub enum Origin {
    /// The host fetches it from a registry.
    Registry {
        /// `oci:HOST/REPOSITORY:TAG` or `oci:HOST/REPOSITORY@sha256:DIGEST`.
        reference: String,
    },
    /// It is in this request.
    Bytes {
        /// The component, of at most 32 MiB.
        component: Base64,
        /// What to call it in the pin; absent: the file name under which it is kept.
        #[serde(default)]
        original: Option<String>,
    },
}

/// Which name's candidate.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfName {
    /// The plugin's name.
    pub name: String,
}

/// A candidate as it lies in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Proposed {
    /// The plugin's name.
    pub name: String,
    /// Counts the pins that this name has had.
    pub sequence: u64,
    /// `sha256:…` of the component.
    pub digest: String,
    /// What a registry's tag was resolved to, where it was asked for just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<String>,
    /// The pin's file, which says everything that a signature stands for.
    pub text: String,
    /// The bytes that an Ed25519 signature covers. `gristmill ledger sign --candidate` makes them of `text`.
    pub signed: Base64,
    /// Whose signatures it has.
    pub signatures: Vec<Signer>,
    /// So many different keys must have signed it; rules of approval may ask for more.
    pub threshold: u32,
    /// What the ledger's keys find wanting; absent: nothing.
    pub wanting: Option<String>,
}

/// Who has signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Signer {
    /// Id of the key: SHA-256 of its public half.
    pub key: String,
    /// Whose key it is; absent: the ledger does not know it, and it does not count.
    pub name: Option<String>,
}

/// Put a signature into a candidate. It was made where the secret key is, which is not here.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sign {
    /// The plugin's name.
    pub name: String,
    /// The key's public half: 64 hexadecimal digits.
    pub public: String,
    /// Ed25519 over [`Proposed::signed`], base64.
    pub signature: String,
}

/// Hold a candidate against what is in force, on this machine. It takes minutes.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Qualify {
    /// The plugin's name.
    pub name: String,
    /// The model to test and measure with: `MODEL`, or `BACKEND/MODEL` where several back-ends are this plugin.
    pub model: String,
    /// Pairs of measured answers, 1 to 1000; absent: 8.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub rounds: Option<u32>,
    /// How much slower it may be than what is in force, as a share from 0 to below 1; absent: 0.05.
    #[serde(default)]
    #[schemars(extend("minimum" = 0, "exclusiveMaximum" = 1))]
    pub tolerance: Option<f64>,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The candidate has its evidence and its guardrail; earlier signatures are gone.
    Qualified,
    /// It lost something and is withdrawn.
    Lost,
    /// The measurements were not steady: it is as it was, without a guardrail.
    Unsteady,
    /// Somebody changed it meanwhile: it is as that one left it.
    Changed,
}

/// A candidate against what is in force.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Qualified {
    /// The plugin's name.
    pub name: String,
    /// `sha256:…` of the component.
    pub digest: String,
    /// What came of it.
    pub verdict: Outcome,
    /// What it lost.
    pub lost: Vec<String>,
    /// Its speed as a share of that of what is in force; none where nothing is.
    pub ratios: Vec<Ratio>,
    /// SHA-256 of the report in `evidence/`.
    pub evidence: String,
    /// The measurement's own keys, as in `performance/`.
    pub performance: Value,
}

/// A speed as a share of another.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Ratio {
    /// `prefill` or `decode`.
    pub what: String,
    /// The median of the pairs.
    pub ratio: f64,
    /// How many there were.
    pub pairs: usize,
}
