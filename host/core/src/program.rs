//! A model family as data: what a model file says of itself, the program that computes it, and the
//! dialect it speaks. `docs/program.md` is the step vocabulary.

use serde::{Deserialize, Serialize};

use crate::{Extras, request::Sampling};

/// A metadata value of a model file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    /// Any integer type.
    Int(i64),
    /// Any floating type.
    Float(f64),
    /// A truth value.
    Flag(bool),
    /// Text.
    Text(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Floating-point numbers.
    Floats(Vec<f64>),
    /// Texts.
    Texts(Vec<String>),
    /// An array too long to pass (the vocabulary): its length.
    Long(u64),
}

/// A tensor's name, shape and element type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorInfo {
    /// Its name in the file.
    pub name: String,
    /// Fastest-varying dimension first, as GGUF has it: a matrix is `[columns, rows]`.
    pub shape: Vec<u64>,
    /// `F32`, `Q4_K`, …
    pub element: String,
}

/// What a model file says of itself, without its payload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    /// `general.architecture`.
    pub architecture: String,
    /// All keys, in file order.
    pub keys: Vec<(String, Value)>,
    /// All tensors, in file order.
    pub tensors: Vec<TensorInfo>,
}

impl Metadata {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.keys.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// A tensor by name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }
}

/// A step's attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attribute {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A truth value.
    Flag(bool),
    /// A word.
    Text(String),
    /// A tensor's name.
    Tensor(String),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f64>),
    /// Words.
    Texts(Vec<String>),
}

/// One operation by name; values are numbered in the order in which they arise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The operation's name.
    pub op: String,
    /// The layer it belongs to.
    pub layer: Option<u32>,
    /// Values read.
    pub inputs: Vec<u32>,
    /// Values written, each once in the program.
    pub outputs: Vec<u32>,
    /// Named attributes.
    pub attributes: Vec<(String, Attribute)>,
}

/// State that lives with a session: `kv`, `conv`, `recurrent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// What kind.
    pub kind: String,
    /// Whose layer.
    pub layer: u32,
    /// Its sizes.
    pub attributes: Vec<(String, Attribute)>,
}

/// How a model is computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Tokens in the vocabulary.
    pub vocabulary: u32,
    /// Width of the residual stream.
    pub width: u32,
    /// Layers.
    pub layers: u32,
    /// Longest context the model was trained for.
    pub context_native: u32,
    /// What a session keeps.
    pub states: Vec<State>,
    /// The operations, in order.
    pub steps: Vec<Step>,
    /// The value that holds logits, or the pooled vector.
    pub result_value: u32,
    /// What a later contract knows.
    pub extras: Extras,
}

/// Reasoning between marks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Opening mark.
    pub open: String,
    /// Closing mark.
    pub close: String,
    /// The template has opened it already.
    pub open_at_start: bool,
}

/// How tool calls are spelled in the output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFormat {
    /// Opening mark.
    pub open: String,
    /// Closing mark.
    pub close: String,
    /// `json`, `json-list`, `xml`, `glm`, `dsml`, `mistral`, `pythonic`, `deepseek`, `kimi`, `harmony`,
    /// …: the host's parsers by name.
    pub shape: String,
    /// Key of the tool's name.
    pub name_key: String,
    /// Key of the arguments.
    pub arguments_key: String,
    /// What a later contract knows.
    pub extras: Extras,
}

/// How a family speaks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Dialect {
    /// A Jinja chat template; none: the one in the file.
    pub template: Option<String>,
    /// Whether the template knows a system role; otherwise the system text is put before the first user turn.
    pub system_role: bool,
    /// Texts of tokens that end a turn.
    pub stops: Vec<String>,
    /// How reasoning is marked.
    pub reasoning: Option<Span>,
    /// How tool calls are marked.
    pub tools: Option<ToolFormat>,
    /// The family's own sampling.
    pub defaults: Sampling,
    /// What a later contract knows.
    pub extras: Extras,
}

/// A family's answer for one model, and which component gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The family's name, for instance `llama`.
    pub family: String,
    /// `sha256:…` of the component that answered.
    pub digest: String,
    /// How the model is computed.
    pub program: Program,
    /// How it speaks.
    pub dialect: Dialect,
}

/// Whoever can ask the installed families. The sandbox implements it; the engine uses it.
pub trait Families: Send + Sync {
    /// Asks the families in order and returns the first that knows the model. Runs Wasm: call it
    /// at load, never per token, and not on an async worker.
    ///
    /// # Errors
    /// `unsupported` when no family knows the architecture; the family's own error; `plugin-fault`.
    fn resolve(&self, metadata: &Metadata) -> crate::Result<Resolved>;
}
