//! The contract's worlds by digest: a pin says for which text of a world its component was built.

use crate::sha256;

/// A world of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// Contract version without the patch: `0.1`.
    pub contract: String,
    /// `backend`, `model-family` or `probe`.
    pub world: String,
    /// SHA-256 over the world's name and the digests of its version's WIT files.
    pub digest: String,
}

/// Version 0.1, file by file. Comments count: a released version never changes (`wit/README.md`).
const V0_1: [(&str, &str); 3] = [
    ("host.wit", include_str!("../../wit/v0.1/host.wit")),
    ("types.wit", include_str!("../../wit/v0.1/types.wit")),
    ("worlds.wit", include_str!("../../wit/v0.1/worlds.wit")),
];

/// Every world that this build knows.
#[must_use]
pub fn worlds() -> Vec<World> {
    ["backend", "model-family", "probe"].map(|world| World::of("0.1", world, &V0_1)).into()
}

impl World {
    /// The world of this name in a version with these files (name and text).
    #[must_use]
    pub fn of(contract: &str, world: &str, files: &[(&str, &str)]) -> Self {
        let mut text = format!("gristmill:contract {contract} {world}\n");
        for (name, content) in files {
            text.push_str(&format!("{name} {}\n", sha256(content.as_bytes())));
        }
        Self {
            contract: contract.to_owned(),
            world: world.to_owned(),
            digest: sha256(text.as_bytes()),
        }
    }
}
