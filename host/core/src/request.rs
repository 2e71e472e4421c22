//! What a caller asks for, whichever dialect it was written in.

use serde::{Deserialize, Serialize};

use crate::Extras;

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
    /// A role this build does not know.
    Other(String),
}

impl Role {
    /// The word templates use.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Other(word) => word,
        }
    }
}

/// A picture or a sound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// MIME type.
    pub mime: String,
    /// The encoded bytes.
    pub data: Vec<u8>,
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Text.
    Text(String),
    /// A picture.
    Image(Media),
    /// A sound.
    Audio(Media),
    /// A kind this build does not know, and its content.
    Other(String, String),
}

/// A call the model made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Stable from the first fragment to the result that answers it.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// JSON text, byte for byte.
    pub arguments: String,
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: Vec<Part>,
    /// What was thought before it.
    pub reasoning: Option<String>,
    /// The calls an assistant made.
    pub tool_calls: Vec<ToolCall>,
    /// On a tool message: the call it answers.
    pub tool_call_id: Option<String>,
    /// The speaker's or the tool's name.
    pub name: Option<String>,
    /// What a later contract knows.
    pub extras: Extras,
}

impl Message {
    /// A message of text alone.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            content: vec![Part::Text(text.into())],
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
            extras: Vec::new(),
        }
    }
}

/// A tool the model may call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// JSON Schema text, keys in the caller's order.
    pub parameters: String,
    /// Whether arguments must satisfy the schema exactly.
    pub strict: Option<bool>,
    /// What a later contract knows.
    pub extras: Extras,
}

/// Whether, and which, tool must be called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No call.
    None,
    /// At least one call.
    Required,
    /// A call of this tool.
    Named(String),
}

/// What the answer must look like. It binds the answer, not the reasoning before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Constraint {
    /// Any JSON object.
    JsonObject,
    /// JSON that satisfies this schema.
    JsonSchema(String),
    /// Text that matches this regular expression.
    Regex(String),
    /// Text of this grammar.
    Grammar(String),
    /// A kind this build does not know, and its source.
    Other(String, String),
}

/// Whether the model should think first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reasoning {
    /// Not said: the family's own way.
    #[default]
    Unset,
    /// Do not.
    Off,
    /// Do.
    On,
    /// With this effort.
    Effort(String),
}

/// How tokens are chosen. Unset means the family's or the back-end's own value; nothing is injected.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// Smallest set of tokens with this much probability.
    pub top_p: Option<f32>,
    /// The likeliest so many; 0 is all.
    pub top_k: Option<u32>,
    /// At least this share of the likeliest token's probability.
    pub min_p: Option<f32>,
    /// Locally typical sampling.
    pub typical_p: Option<f32>,
    /// Divides the logits of recent tokens.
    pub repeat_penalty: Option<f32>,
    /// How far back the penalties look; -1 is the whole context, 0 is off.
    pub repeat_last_n: Option<i32>,
    /// Subtracted once from tokens that occurred.
    pub presence_penalty: Option<f32>,
    /// Subtracted for each occurrence.
    pub frequency_penalty: Option<f32>,
    /// The same seed gives the same answer on the same build.
    pub seed: Option<u64>,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// What a later contract knows.
    pub extras: Extras,
}

/// What generation starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prompt {
    /// A conversation, rendered by the family's format.
    Chat(Vec<Message>),
    /// Text as it is.
    Text(String),
    /// Tokens as they are.
    Tokens(Vec<u32>),
    /// Text before and after the gap.
    Infill(String, String),
}

/// One generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The request's id, in logs and headers.
    pub id: String,
    /// Canonical model id.
    pub model: String,
    /// What it starts from.
    pub prompt: Prompt,
    /// Tools on offer.
    pub tools: Vec<Tool>,
    /// Whether one must be called.
    pub tool_choice: ToolChoice,
    /// Whether several may be called at once.
    pub parallel_tool_calls: Option<bool>,
    /// What the answer must look like.
    pub constraint: Option<Constraint>,
    /// Whether to think first.
    pub reasoning: Reasoning,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// At most so many tokens.
    pub max_tokens: Option<u32>,
    /// Strings that end the answer, and are not part of it.
    pub stop: Vec<String>,
    /// Alternatives per token; none: no log probabilities.
    pub logprobs: Option<u32>,
    /// A context length the caller insists on.
    pub context: Option<u32>,
    /// What a later contract knows.
    pub extras: Extras,
}

impl Request {
    /// A request with nothing set but its id, model and prompt.
    #[must_use]
    pub fn new(id: impl Into<String>, model: impl Into<String>, prompt: Prompt) -> Self {
        Self {
            id: id.into(),
            model: model.into(),
            prompt,
            tools: Vec::new(),
            tool_choice: ToolChoice::default(),
            parallel_tool_calls: None,
            constraint: None,
            reasoning: Reasoning::default(),
            sampling: Sampling::default(),
            max_tokens: None,
            stop: Vec::new(),
            logprobs: None,
            context: None,
            extras: Vec::new(),
        }
    }

    /// The value of an extra.
    #[must_use]
    pub fn extra(&self, name: &str) -> Option<&str> {
        self.extras.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Texts to turn into vectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbedRequest {
    /// Canonical model id.
    pub model: String,
    /// The texts, in order.
    pub inputs: Vec<String>,
    /// Keep only so many leading dimensions, normalised again.
    pub dimensions: Option<u32>,
    /// Cut to the model's limit instead of failing.
    pub truncate: bool,
    /// What a later contract knows.
    pub extras: Extras,
}

/// `rows` vectors of `dim`, one after the other, in the order of the inputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Embeddings {
    /// Length of each vector.
    pub dim: u32,
    /// How many.
    pub rows: u32,
    /// `rows × dim` numbers.
    pub data: Vec<f32>,
    /// Tokens read.
    pub prompt_tokens: u32,
}

/// Documents to order by relevance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RerankRequest {
    /// Canonical model id.
    pub model: String,
    /// What is looked for.
    pub query: String,
    /// The documents, in order.
    pub documents: Vec<String>,
    /// Only the best so many.
    pub top_n: Option<u32>,
    /// What a later contract knows.
    pub extras: Extras,
}

/// A document's place in the order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// Which document.
    pub index: u32,
    /// Relevance in 0..1.
    pub score: f32,
}
