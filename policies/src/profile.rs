//! Application profiles: named sets of controls that an operator assigns to models or a caller
//! selects by name.
//!
//! A profile is one file, `policies/profiles/<name>.toml`. It fills what a request leaves out and
//! changes nothing that a request says. What it puts in is judged by the policies like everything
//! else, and every answer tells what it put in.
//!
//! Refused by name: unknown keys and controls, a value that the control cannot have, a profile of
//! nothing, and the name `none`, by which a caller asks for no profile.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    control::{Control, Setting, table_of},
    rules,
};

/// The name by which a caller asks for no profile.
pub const NONE: &str = "none";

/// One profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "application profile")]
pub struct Profile {
    /// The file's name without `.toml`.
    #[serde(skip_deserializing)]
    #[schemars(skip)]
    pub name: String,
    /// What it is for, in a sentence.
    pub description: String,
    /// Models it is assigned to, by any of their names, whole or with `*` at the end. For all others
    /// it has to be asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Kind of the back-end it is for; left out: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The values.
    #[schemars(schema_with = "values")]
    pub parameters: BTreeMap<Control, Setting>,
}

fn values(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let settable = Control::ALL
        .iter()
        .copied()
        .filter(|control| control.shape() != crate::control::Shape::Opaque);
    table_of::<Setting>(generator, settable)
}

impl Profile {
    /// Reads a profile from TOML.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut profile: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        name.clone_into(&mut profile.name);
        if name == NONE {
            return Err(format!("a profile cannot be called {NONE}: that asks for no profile"));
        }
        if profile.description.trim().is_empty() {
            return Err("description: a profile must say what it is for; it is empty".to_owned());
        }
        if profile.parameters.is_empty() {
            return Err("parameters: expected at least one value".to_owned());
        }
        rules::fold_patterns("models", &mut profile.models)?;
        for (control, value) in &profile.parameters {
            control.check(value).map_err(|reason| format!("parameters.{reason}"))?;
        }
        Ok(profile)
    }

    /// Whether it may be used on this kind of back-end.
    #[must_use]
    pub fn fits(&self, backend: &str) -> bool {
        self.backend.as_ref().is_none_or(|kind| kind == backend)
    }
}
