//! What is known of back-ends: blocks (regressions as data), claims that probes contradict, and how
//! fast they are with a model.
//!
//! Owns: whether a block hits a request, the refusal that names it, which back-end may answer
//! instead, and the claims of a model as they stand after the evidence. Nothing is ever substituted
//! that the block does not name as tested.
//!
//! Bounds: nothing is kept per request; blocks and evidence are as they were last read.

use std::sync::Arc;

use gristmill_core::{
    Code, Error,
    capability::{Claim, Descriptor, ModelInfo, Reason, Support},
};
use gristmill_ledger::{
    evidence::Evidence,
    performance::{Record, latest},
};
use gristmill_policies::Block;
use jiff::{Timestamp, civil::Date, tz::TimeZone};

/// The reason's code of a claim that a probe contradicts.
pub(crate) const CONTRADICTED: &str = "probe";

/// Tokens of the request by which speeds are compared, as `cargo xtask bench` measures them: read, …
pub const READ: f64 = 512.0;
/// … and written.
pub const WRITTEN: f64 = 128.0;

/// Blocks, evidence and measurements, as the host has read them.
#[derive(Debug, Clone, Default)]
pub struct Known {
    blocks: Vec<Block>,
    hardware: Vec<String>,
    evidence: Arc<Evidence>,
    measured: Arc<[Record]>,
}

impl Known {
    /// `hardware`: the words for this host that blocks may name. Expired blocks are reported and
    /// left out for as long as they are expired.
    #[must_use]
    pub fn new(blocks: Vec<Block>, hardware: Vec<String>, evidence: Evidence) -> Self {
        for block in blocks.iter().filter(|block| block.expired(today())) {
            tracing::warn!(block = block.id, expired = %block.expires, "an expired block is not applied");
        }
        Self { blocks, hardware, evidence: Arc::new(evidence), measured: Arc::default() }
    }

    /// The same evidence with these blocks.
    #[must_use]
    pub fn with_blocks(&self, blocks: Vec<Block>) -> Self {
        let Self { blocks, .. } = Self::new(blocks, Vec::new(), Evidence::default());
        Self { blocks, ..self.clone() }
    }

    /// The same blocks with this evidence.
    #[must_use]
    pub fn with_evidence(&self, evidence: Evidence) -> Self {
        Self { evidence: Arc::new(evidence), ..self.clone() }
    }

    /// The same with these measurements, which were made on this class of host.
    #[must_use]
    pub fn with_measured(&self, measured: Vec<Record>) -> Self {
        Self { measured: measured.into(), ..self.clone() }
    }

    /// What a request takes with this model and this component (`sha256:…`), in seconds: to read
    /// [`READ`] tokens and to write [`WRITTEN`], as last measured steadily. Nothing without a digest of the
    /// weights.
    #[must_use]
    pub fn takes(&self, component: &str, info: &ModelInfo) -> Option<f64> {
        let (component, weights) = (bare(component), bare(info.digest.as_deref()?));
        let of_it = self.measured.iter().filter(|record| {
            record.component_digest == component && record.model_digest.as_deref() == Some(weights)
        });
        latest(of_it).map(|rates| READ / rates.prefill + WRITTEN / rates.decode)
    }

    /// Every capability that a block forbids to somebody.
    pub(crate) fn blocked(&self) -> Vec<&str> {
        self.blocks.iter().map(|block| block.capability.as_str()).collect()
    }

    /// Whether anything at all is known against back-ends of this kind or this component, so that
    /// its server's version matters.
    #[must_use]
    pub fn concerns(&self, kind: &str, digest: &str) -> bool {
        self.blocks.iter().any(|block| block.backend == kind) || self.evidence.concerns(digest)
    }

    /// The first block that forbids one of these capabilities to this model on this back-end.
    /// `server`: the version of the server behind it, where it has one that is known.
    #[must_use]
    pub fn hit(
        &self,
        descriptor: &Descriptor,
        server: Option<&str>,
        info: &ModelInfo,
        capabilities: &[&str],
    ) -> Option<&Block> {
        self.hit_on(today(), descriptor, server, info, capabilities)
    }

    fn hit_on(
        &self,
        day: Date,
        descriptor: &Descriptor,
        server: Option<&str>,
        info: &ModelInfo,
        capabilities: &[&str],
    ) -> Option<&Block> {
        let version = version(descriptor, server);
        self.blocks.iter().find(|block| {
            let family = block.family.as_ref();
            let hardware = block.hardware.as_ref();
            !block.expired(day)
                && block.backend == descriptor.kind
                && capabilities.contains(&&*block.capability)
                && family.is_none_or(|family| info.family.as_ref() == Some(family))
                && hardware.is_none_or(|word| self.hardware.contains(word))
                && block.versions.hold(version)
        })
    }

    /// The model's claims after the evidence against this component: what a probe contradicts is
    /// `unsupported`, whoever claimed it.
    #[must_use]
    pub fn judged(
        &self,
        digest: &str,
        descriptor: &Descriptor,
        server: Option<&str>,
        mut info: ModelInfo,
    ) -> ModelInfo {
        let contradictions = self.evidence.contradictions(
            digest,
            &descriptor.version,
            server,
            &info.id,
            info.digest.as_deref(),
        );
        for found in contradictions {
            info.claims.retain(|claim| claim.name != found.capability);
            let detail = format!("probe {} of {}: {}", found.check, found.date, found.reason);
            info.claims.push(Claim {
                name: found.capability,
                support: Support::Unsupported(Reason { code: CONTRADICTED.to_owned(), detail }),
                value: None,
            });
        }
        info
    }
}

/// The version that ranges are about. A bridge's own says nothing of a server that does not tell its
/// own.
pub(crate) fn version<'a>(descriptor: &'a Descriptor, server: Option<&'a str>) -> &'a str {
    match (server, &*descriptor.execution) {
        (Some(server), _) => server,
        (None, "external") => "unknown",
        (None, _) => &descriptor.version,
    }
}

/// The refusal of a request that a block hits.
#[must_use]
pub fn refusal(block: &Block, backend: &str, model: &str) -> Error {
    let message = format!(
        "\"{model}\" on {backend} is blocked for {} by {}: {} (evidence: {}; until {})",
        block.capability, block.id, block.reason, block.evidence, block.expires
    );
    Error::new(Code::Blocked, message)
        .with("block", &block.id)
        .with("reason", &block.reason)
        .with("capability", &block.capability)
        .with("backend", backend)
}

/// Whether two back-ends mean the same weights: by digest where both know it, else by name.
#[must_use]
pub fn same_model(a: &ModelInfo, b: &ModelInfo) -> bool {
    match (&a.digest, &b.digest) {
        (Some(a), Some(b)) => bare(a) == bare(b),
        _ => a.id == b.id,
    }
}

fn bare(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

fn today() -> Date {
    Timestamp::now().to_zoned_datetime(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(version: &str, execution: &str) -> Descriptor {
        Descriptor {
            id: "b".into(),
            kind: "ollama".into(),
            version: version.into(),
            execution: execution.into(),
            claims: Vec::new(),
            extras: Vec::new(),
        }
    }

    fn gemma() -> ModelInfo {
        ModelInfo { id: "g".into(), family: Some("gemma3".into()), ..ModelInfo::default() }
    }

    fn known(more: &str) -> Known {
        let text = format!(
            "backend = \"ollama\"\nversions = \"<0.5\"\ncapability = \"tools.calling\"\n\
             reason = \"r\"\nevidence = \"e\"\nexpires = \"2027-01-01\"\n{more}"
        );
        let block = Block::parse("t", &text).unwrap();
        Known::new(vec![block], vec!["x86_64".into(), "avx2".into()], Evidence::default())
    }

    #[test]
    fn a_block_hits_what_it_names_and_nothing_else() {
        let day: Date = "2026-12-01".parse().unwrap();
        let tools = ["inference.text", "tools.calling"];
        let old = descriptor("0.4.9", "library");
        let hit = |known: &Known, descriptor: &Descriptor, server: Option<&str>, words: &[&str]| {
            known.hit_on(day, descriptor, server, &gemma(), words).is_some()
        };
        assert!(hit(&known(""), &old, None, &tools));
        assert!(!hit(&known(""), &old, None, &["inference.text"]), "another capability");
        assert!(!hit(&known(""), &descriptor("0.5.1", "library"), None, &tools), "repaired");
        for (server, expected) in [(Some("0.4"), true), (Some("0.6"), false), (None, true)] {
            let bridge = descriptor("9.0", "external");
            assert_eq!(hit(&known(""), &bridge, server, &tools), expected, "the server's counts");
        }
        for (more, expected) in [
            ("family = \"gemma3\"", true),
            ("family = \"llama\"", false),
            ("hardware = \"avx2\"", true),
            ("hardware = \"avx512\"", false),
        ] {
            assert_eq!(hit(&known(more), &old, None, &tools), expected, "{more}");
        }
        let later: Date = "2027-01-02".parse().unwrap();
        assert!(known("").hit_on(later, &old, None, &gemma(), &tools).is_none(), "expired");
        let mut other = old.clone();
        other.kind = "vllm".into();
        assert!(!hit(&known(""), &other, None, &tools), "another back-end");
        assert!(
            known("").concerns("ollama", "sha256:0") && !known("").concerns("vllm", "sha256:0")
        );
    }

    #[test]
    fn weights_are_the_same_by_digest_before_they_are_by_name() {
        let model = |id: &str, digest: Option<&str>| ModelInfo {
            id: id.into(),
            digest: digest.map(str::to_owned),
            ..ModelInfo::default()
        };
        assert!(same_model(&model("a", Some("sha256:1")), &model("b", Some("1"))));
        assert!(!same_model(&model("a", Some("1")), &model("a", Some("2"))));
        assert!(same_model(&model("a", None), &model("a", Some("2"))));
    }
}
