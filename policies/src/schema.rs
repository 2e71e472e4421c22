//! JSON Schemas of the files: what an editor completes and checks. Made from the types that read the
//! files; what only the whole file shows (a value where its class needs one that the control can
//! have, two policies that are equally specific) is left to the reader.

use crate::{Approvals, Block, Grant, ParameterPolicy, Profile};

/// Every kind of file, with what is in it.
pub const KINDS: [(&str, &str); 5] = [
    ("grant", "grants/<plugin>.toml: what a plugin may import and use"),
    ("block", "blocks/<id>.toml: a known regression"),
    ("parameter", "parameters/<id>.toml: what is known of the controls of a generation"),
    ("profile", "profiles/<name>.toml: a named set of controls"),
    ("approval", "approvals.toml: how many people approve which change"),
];

/// The schema of a kind of file; `None` for a word that is no kind.
#[must_use]
pub fn of(kind: &str) -> Option<serde_json::Value> {
    let schema = match kind {
        "grant" => schemars::schema_for!(Grant),
        "block" => schemars::schema_for!(Block),
        "parameter" => schemars::schema_for!(ParameterPolicy),
        "profile" => schemars::schema_for!(Profile),
        "approval" => schemars::schema_for!(Approvals),
        _ => return None,
    };
    Some(schema.to_value())
}
