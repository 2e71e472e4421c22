//! Constructors and accessors for the contract's records, so that a plugin names only the fields
//! it sets.

use alloc::{string::String, vec::Vec};

use crate::{
    Claim, Descriptor, Event, Extras, Finish, Message, ModelInfo, Part, Prompt, Readiness, Reason,
    Request, Role, Sampling, Support,
};

/// The value of an extra.
#[must_use]
pub fn extra<'e>(extras: &'e Extras, name: &str) -> Option<&'e str> {
    extras.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

impl Claim {
    /// A capability that is there.
    pub fn supported(name: impl Into<String>) -> Self {
        Self { name: name.into(), support: Support::Supported, value: None }
    }

    /// A capability that is there, with its number or list.
    pub fn valued(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { value: Some(value.into()), ..Self::supported(name) }
    }

    /// A capability that is not there, and why.
    pub fn unsupported(
        name: impl Into<String>,
        code: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        let reason = Reason { code: code.into(), detail: detail.into() };
        Self { name: name.into(), support: Support::Unsupported(reason), value: None }
    }

    /// A capability that depends on host, model or request.
    pub fn conditional(name: impl Into<String>, expression: impl Into<String>) -> Self {
        Self { name: name.into(), support: Support::Conditional(expression.into()), value: None }
    }
}

impl Descriptor {
    /// A back-end with this id, of this kind, without claims.
    pub fn new(
        id: impl Into<String>,
        kind: impl Into<String>,
        version: impl Into<String>,
        execution: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            kind: kind.into(),
            version: version.into(),
            execution: execution.into(),
            claims: Vec::new(),
            extras: Vec::new(),
        }
    }
}

impl ModelInfo {
    /// A model of which only the name is known.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            names: Vec::new(),
            digest: None,
            family: None,
            quantization: None,
            parameters: None,
            size_bytes: None,
            context_native: None,
            claims: Vec::new(),
            extras: Vec::new(),
        }
    }
}

impl Readiness {
    /// Ready, in a sentence.
    pub fn ready(detail: impl Into<String>) -> Self {
        Self { ready: true, detail: detail.into(), extras: Vec::new() }
    }

    /// Not ready, and why.
    pub fn not_ready(detail: impl Into<String>) -> Self {
        Self { ready: false, detail: detail.into(), extras: Vec::new() }
    }
}

impl Event {
    /// The end of an answer, for this reason.
    pub fn finish(reason: impl Into<String>) -> Self {
        Self::Finish(Finish { reason: reason.into(), stop: None })
    }
}

impl Message {
    /// A message of text alone.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            content: alloc::vec![Part::Text(text.into())],
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
            extras: Vec::new(),
        }
    }

    /// All text of the message, parts joined.
    #[must_use]
    pub fn whole_text(&self) -> String {
        let mut whole = String::new();
        for part in &self.content {
            if let Part::Text(text) = part {
                whole.push_str(text);
            }
        }
        whole
    }
}

impl Request {
    /// A request with nothing set but its model and prompt.
    pub fn new(model: impl Into<String>, prompt: Prompt) -> Self {
        Self {
            id: String::new(),
            model: model.into(),
            prompt,
            tools: Vec::new(),
            tool_choice: crate::ToolChoice::Auto,
            parallel_tool_calls: None,
            constraint: None,
            reasoning: crate::Reasoning::Unset,
            sampling: Sampling::default(),
            max_tokens: None,
            stop: Vec::new(),
            logprobs: None,
            context: None,
            extras: Vec::new(),
        }
    }
}
