//! Programs and small random models for the tests: what family plugins will return, written by hand.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    unreachable_pub,
    reason = "tests may fail loudly, and each uses a part of this"
)]

pub mod families;
pub mod made;
pub mod random;
pub mod ready;
pub mod serve;
pub mod tiny;

use std::sync::Arc;

use gristmill_core::program::{
    Attribute, Dialect, Families, Metadata, Program, Resolved, State, Step, Value,
};

/// Builds a program step by step.
pub struct Steps {
    pub steps: Vec<Step>,
    pub states: Vec<State>,
    pub layer: Option<u32>,
}

pub fn int(name: &str, value: usize) -> (String, Attribute) {
    (name.into(), Attribute::Int(value as i64))
}
pub fn float(name: &str, value: f64) -> (String, Attribute) {
    (name.into(), Attribute::Float(value))
}
pub fn text(name: &str, value: &str) -> (String, Attribute) {
    (name.into(), Attribute::Text(value.into()))
}
pub fn flag(name: &str, value: bool) -> (String, Attribute) {
    (name.into(), Attribute::Flag(value))
}
pub fn tensor(name: &str, value: impl Into<String>) -> (String, Attribute) {
    (name.into(), Attribute::Tensor(value.into()))
}

impl Steps {
    pub fn new() -> Self {
        Self { steps: Vec::new(), states: Vec::new(), layer: None }
    }

    pub fn op(&mut self, op: &str, inputs: &[u32], attributes: Vec<(String, Attribute)>) -> u32 {
        let value = self.steps.len() as u32;
        self.steps.push(Step {
            op: op.into(),
            layer: self.layer,
            inputs: inputs.to_vec(),
            outputs: vec![value],
            attributes,
        });
        value
    }

    pub fn kv(&mut self, attributes: Vec<(String, Attribute)>) {
        self.states.push(State { kind: "kv".into(), layer: self.layer.unwrap(), attributes });
    }

    pub fn program(self, vocabulary: u32, width: u32, layers: u32, context: u32) -> Program {
        Program {
            vocabulary,
            width,
            layers,
            context_native: context,
            result_value: self.steps.len() as u32 - 1,
            steps: self.steps,
            states: self.states,
            extras: Vec::new(),
        }
    }
}

pub fn number(metadata: &Metadata, key: &str) -> usize {
    match metadata.get(key) {
        Some(Value::Int(value)) => usize::try_from(*value).unwrap(),
        other => panic!("{key}: {other:?}"),
    }
}

pub fn number_or(metadata: &Metadata, key: &str, default: usize) -> usize {
    metadata.get(key).map_or(default, |_| number(metadata, key))
}

pub fn real(metadata: &Metadata, key: &str, default: f64) -> f64 {
    match metadata.get(key) {
        Some(Value::Float(value)) => *value,
        None => default,
        other => panic!("{key}: {other:?}"),
    }
}

/// Families for the tests: the builders of [`families`], by architecture.
pub struct TestFamilies(pub Dialect);

impl Families for TestFamilies {
    fn resolve(&self, metadata: &Metadata) -> gristmill_core::Result<Resolved> {
        let program = families::program(metadata).ok_or_else(|| {
            gristmill_core::Error::unsupported(format!("no family for {}", metadata.architecture))
        })?;
        Ok(Resolved {
            family: metadata.architecture.clone(),
            digest: "sha256:test".into(),
            program,
            dialect: self.0.clone(),
        })
    }
}

pub fn families(dialect: Dialect) -> Arc<dyn Families> {
    Arc::new(TestFamilies(dialect))
}
