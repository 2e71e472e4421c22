//! Evidence: what was tested, where and with what result, as an in-toto Statement v1 about a
//! component's digest, and optionally signed (DSSE, Ed25519).
//!
//! Owns: the shape of a conformance report, its canonical bytes and digest, signing and verifying. A
//! statement names its own content's digest, so that a report that was edited is not read; a signature
//! says who stands for it. Evidence only ever takes claims away ([`Evidence::contradictions`]), so an
//! unsigned report is taken too.
//!
//! Refused (`invalid-evidence`): unknown fields, statement or predicate types, a date that is not RFC
//! 3339, a content digest that is not the content's, an envelope of another payload type, files above
//! [`MAX_EVIDENCE_BYTES`].

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::reports::{Contradiction, Evidence};
use crate::{
    LedgerError,
    date::Date,
    digest::{encoding, sorted},
    disk,
    look::named,
    sha256,
};

/// The folder's name in a ledger.
pub(crate) const EVIDENCE: &str = "evidence";

/// The longest report that is read.
pub const MAX_EVIDENCE_BYTES: u64 = 4 << 20;

/// The type of an in-toto statement.
pub const STATEMENT: &str = "https://in-toto.io/Statement/v1";
/// The type of its predicate: a test result, as in-toto has it, with the fields of [`TestResult`].
pub const TEST_RESULT: &str = "https://in-toto.io/attestation/test-result/v0.1";
/// What a DSSE envelope of a statement carries.
pub const PAYLOAD: &str = "application/vnd.in-toto+json";

/// What the statement is about, or what was used: a name and digests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Its name, for instance a pin's.
    pub name: String,
    /// Algorithm and hexadecimal digest; `sha256` always.
    pub digest: BTreeMap<String, String>,
}

impl Resource {
    /// A name with a SHA-256, with or without `sha256:` in front.
    #[must_use]
    pub fn new(name: impl Into<String>, digest: &str) -> Self {
        let hex = digest.strip_prefix("sha256:").unwrap_or(digest).to_owned();
        Self { name: name.into(), digest: [("sha256".to_owned(), hex)].into() }
    }

    /// `sha256:…`.
    #[must_use]
    pub fn sha256(&self) -> String {
        format!("sha256:{}", self.digest.get("sha256").map_or("", String::as_str))
    }
}

/// An in-toto Statement v1 with a test result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Statement {
    /// [`STATEMENT`].
    #[serde(rename = "_type")]
    #[schemars(extend("const" = STATEMENT))]
    pub kind: String,
    /// The component.
    pub subject: Vec<Resource>,
    /// [`TEST_RESULT`].
    #[schemars(extend("const" = TEST_RESULT))]
    pub predicate_type: String,
    /// What was found.
    pub predicate: TestResult,
}

/// The predicate: in-toto's `result`, `configuration` and lists of tests, and what this project adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TestResult {
    /// `PASSED`, `FAILED` where a check failed, or `WARNED` where none did and none passed.
    pub result: Verdict,
    /// The suite's components.
    pub configuration: Vec<Resource>,
    /// Ids of checks that passed.
    pub passed_tests: Vec<String>,
    /// Ids of checks that failed.
    pub failed_tests: Vec<String>,
    /// The back-end that was tested.
    pub backend: Tested,
    /// The model it was tested with.
    pub model: Model,
    /// Where.
    pub host: Host,
    /// When, RFC 3339, UTC, whole seconds.
    pub date: String,
    /// Every check, in the order in which it ran.
    pub checks: Vec<Finding>,
    /// SHA-256 of the canonical statement without this field; set by [`Statement::seal`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_digest: Option<String>,
}

/// All in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Something passed, and nothing failed.
    Passed,
    /// Something failed.
    Failed,
    /// Nothing failed and nothing passed: nothing is proven. In-toto's third word for it.
    #[serde(rename = "WARNED")]
    Unproven,
}

impl Verdict {
    /// What follows from the lists of checks.
    #[must_use]
    pub fn of(passed: &[String], failed: &[String]) -> Self {
        match (passed, failed) {
            ([], []) => Self::Unproven,
            (_, []) => Self::Passed,
            _ => Self::Failed,
        }
    }
}

/// The back-end that was tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tested {
    /// The name it is live under.
    pub name: String,
    /// Its descriptor's id.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// Its own version.
    pub version: String,
    /// Version of the server behind it, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
}

/// The model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Model {
    /// Its canonical id.
    pub id: String,
    /// `sha256:…` of its weights, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Its family, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// For instance `Q4_K_M`, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
}

/// The machine, as far as results depend on it; nothing that names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Host {
    /// For instance `linux`.
    pub os: String,
    /// For instance `x86_64`.
    pub arch: String,
    /// Instruction set of the kernels.
    pub isa: String,
    /// Threads that may be used.
    pub threads: u32,
    /// The runtime's version.
    pub runtime: String,
}

/// One check's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finding {
    /// Which check.
    pub id: String,
    /// The capability it tests.
    pub capability: String,
    /// The probe it is a check of.
    pub probe: String,
    /// What was found.
    pub outcome: Outcome,
    /// Why it failed or is not applicable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was sent and seen, short.
    pub evidence: String,
}

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// As claimed.
    Passed,
    /// Not as claimed.
    Failed,
    /// Cannot be tested here.
    NotApplicable,
}

/// A DSSE envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Envelope {
    /// [`PAYLOAD`].
    #[schemars(extend("const" = PAYLOAD))]
    pub payload_type: String,
    /// The statement's bytes, base64.
    pub payload: String,
    /// Who stands for it.
    pub signatures: Vec<EnvelopeSignature>,
}

/// A signature of an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvelopeSignature {
    /// SHA-256 of the public key, hexadecimal.
    pub keyid: String,
    /// Ed25519 over the DSSE pre-authentication encoding, base64.
    pub sig: String,
}

/// Why evidence was not read or not signed.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// A file or folder could not be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It is not what evidence must be.
    #[error("{place}: {reason}")]
    Invalid {
        /// The file, or what else was read.
        place: String,
        /// What was expected and found.
        reason: String,
    },
}

impl EvidenceError {
    /// The documented word for the refusal.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "ledger-unreadable",
            Self::Invalid { .. } => "invalid-evidence",
        }
    }
}

fn invalid(place: &str, reason: impl ToString) -> EvidenceError {
    EvidenceError::Invalid { place: place.to_owned(), reason: reason.to_string() }
}

impl Statement {
    /// The canonical bytes: JSON without blanks, keys sorted, and without the content digest.
    ///
    /// # Errors
    /// Never for a statement that can be written at all.
    pub fn canonical(&self) -> Result<Vec<u8>, EvidenceError> {
        let mut bare = self.clone();
        bare.predicate.content_digest = None;
        let value = serde_json::to_value(&bare).map_err(|error| invalid("statement", error))?;
        serde_json::to_vec(&sorted(value)).map_err(|error| invalid("statement", error))
    }

    /// The digest of the content: `sha256:…`.
    ///
    /// # Errors
    /// As [`Statement::canonical`].
    pub fn digest(&self) -> Result<String, EvidenceError> {
        Ok(format!("sha256:{}", sha256(&self.canonical()?)))
    }

    /// Writes the content's digest into the statement. What is changed afterwards is not read.
    ///
    /// # Errors
    /// As [`Statement::canonical`].
    pub fn seal(mut self) -> Result<Self, EvidenceError> {
        self.predicate.content_digest = Some(self.digest()?);
        Ok(self)
    }

    fn check(&self, place: &str) -> Result<(), EvidenceError> {
        for (found, expected) in [(&self.kind, STATEMENT), (&self.predicate_type, TEST_RESULT)] {
            if found != expected {
                return Err(invalid(place, format!("expected type {expected}, found {found}")));
            }
        }
        self.predicate.date.parse::<Date>().map_err(|error| invalid(place, error))?;
        let digest = self.digest()?;
        match &self.predicate.content_digest {
            Some(named) if *named == digest => Ok(()),
            Some(named) => Err(invalid(
                place,
                format!("its content has digest {digest}, it says {named}: the report was changed"),
            )),
            None => Err(invalid(place, "it does not say its content's digest")),
        }
    }

    /// Signs the statement with this key.
    ///
    /// # Errors
    /// As [`Statement::canonical`].
    pub fn sign(&self, key: &SigningKey) -> Result<Envelope, EvidenceError> {
        let payload = serde_json::to_vec(self).map_err(|error| invalid("statement", error))?;
        let signature = key.sign(&encoding(PAYLOAD, &payload));
        Ok(Envelope {
            payload_type: PAYLOAD.to_owned(),
            payload: BASE64.encode(&payload),
            signatures: vec![EnvelopeSignature {
                keyid: sha256(key.verifying_key().as_bytes()),
                sig: BASE64.encode(signature.to_bytes()),
            }],
        })
    }

    /// Reads a sealed statement, plain or in an envelope. Signatures are not verified here: see
    /// [`Envelope::verify`].
    ///
    /// # Errors
    /// What was expected and found; `place` says where.
    pub fn parse(bytes: &[u8], place: &str) -> Result<Self, EvidenceError> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| invalid(place, error))?;
        let statement = if value.get("payloadType").is_some() {
            let envelope: Envelope =
                serde_json::from_value(value).map_err(|error| invalid(place, error))?;
            envelope.statement(place)?
        } else {
            serde_json::from_value(value).map_err(|error| invalid(place, error))?
        };
        statement.check(place)?;
        Ok(statement)
    }
}

impl Envelope {
    fn payload(&self, place: &str) -> Result<Vec<u8>, EvidenceError> {
        if self.payload_type != PAYLOAD {
            let found = &self.payload_type;
            return Err(invalid(place, format!("expected a payload {PAYLOAD}, found {found}")));
        }
        BASE64.decode(&self.payload).map_err(|error| invalid(place, error))
    }

    fn statement(&self, place: &str) -> Result<Statement, EvidenceError> {
        serde_json::from_slice(&self.payload(place)?).map_err(|error| invalid(place, error))
    }

    /// The statement, if this key has signed it.
    ///
    /// # Errors
    /// A payload that is no statement, no signature of this key, or one that is not right.
    pub fn verify(&self, key: &VerifyingKey) -> Result<Statement, EvidenceError> {
        let place = "envelope";
        let payload = self.payload(place)?;
        let keyid = sha256(key.as_bytes());
        let by = self.signatures.iter().find(|signature| signature.keyid == keyid);
        let by = by.ok_or_else(|| invalid(place, format!("no signature by the key {keyid}")))?;
        let bytes = BASE64.decode(&by.sig).map_err(|error| invalid(place, error))?;
        let signature = Signature::from_slice(&bytes).map_err(|error| invalid(place, error))?;
        key.verify_strict(&encoding(PAYLOAD, &payload), &signature)
            .map_err(|_| invalid(place, "the signature is not of this content"))?;
        let statement = self.statement(place)?;
        statement.check(place)?;
        Ok(statement)
    }
}

/// Puts a report, plain or in an envelope, into a ledger: its file, and the digest by which pins name it.
///
/// # Errors
/// `invalid-evidence` for what is no report, `ledger-full` for what is too long, or that it cannot be
/// written.
pub fn store(ledger: &Path, name: &str, bytes: &[u8]) -> Result<(PathBuf, String), LedgerError> {
    let digest = sha256(bytes);
    let path = named(ledger, EVIDENCE, name)?.with_file_name(format!("{name}-{digest}.json"));
    Statement::parse(bytes, &path.display().to_string())?;
    disk::write(&path, bytes, MAX_EVIDENCE_BYTES)?;
    Ok((path, digest))
}

pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, EvidenceError> {
    let io = |source| EvidenceError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(io)?.take(most + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > most {
        return Err(invalid(&path.display().to_string(), format!("longer than {most} bytes")));
    }
    Ok(bytes)
}
