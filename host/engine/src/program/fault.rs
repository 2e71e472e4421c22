//! What is wrong with a program: where, what was expected, what was found.

use std::fmt;

use gristmill_core::{Code, Error};

/// A program that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The step's number, if it is about one.
    pub step: Option<usize>,
    /// The operation or state kind.
    pub op: Option<String>,
    /// The layer.
    pub layer: Option<u32>,
    /// The attribute, value or tensor.
    pub subject: Option<String>,
    /// What was expected.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// Whether the program asks for something this host does not implement, rather than being wrong.
    pub unsupported: bool,
}

impl Fault {
    /// A contradiction.
    pub(super) fn wrong(
        subject: impl Into<String>,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Box<Self> {
        Box::new(Self {
            step: None,
            op: None,
            layer: None,
            subject: Some(subject.into()),
            expected: expected.to_string(),
            found: found.to_string(),
            unsupported: false,
        })
    }

    /// A word this host does not implement.
    pub(super) fn unknown(
        subject: impl Into<String>,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Box<Self> {
        let mut fault = Self::wrong(subject, expected, found);
        fault.unsupported = true;
        fault
    }

    /// The same fault, placed.
    pub(super) fn at(
        mut self: Box<Self>,
        step: Option<usize>,
        op: &str,
        layer: Option<u32>,
    ) -> Box<Self> {
        self.step = self.step.or(step);
        self.op.get_or_insert_with(|| op.to_owned());
        self.layer = self.layer.or(layer);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.step, &self.op) {
            (Some(step), Some(op)) => write!(f, "program step {step} ({op}")?,
            (_, Some(op)) => write!(f, "program state ({op}")?,
            _ => write!(f, "program")?,
        }
        if self.op.is_some() {
            if let Some(layer) = self.layer {
                write!(f, ", layer {layer}")?;
            }
            write!(f, ")")?;
        }
        if let Some(subject) = &self.subject {
            write!(f, ", {subject}")?;
        }
        write!(f, ": expected {}, found {}", self.expected, self.found)
    }
}

impl From<Box<Fault>> for Error {
    fn from(fault: Box<Fault>) -> Self {
        let code = if fault.unsupported { Code::Unsupported } else { Code::InvalidRequest };
        let mut error = Self::new(code, fault.to_string());
        if let Some(step) = fault.step {
            error = error.with("step", step);
        }
        if let Some(op) = &fault.op {
            error = error.with("op", op);
        }
        if let Some(subject) = &fault.subject {
            error = error.with("subject", subject);
        }
        error.with("expected", &fault.expected).with("found", &fault.found)
    }
}
