//! Domain events into OpenAI JSON, whole or as server-sent events. Pure.
//!
//! The order of a stream is fixed: for each choice a role chunk with empty content, the deltas, a
//! finish chunk with an empty delta; then, if asked for, the usage chunk without choices; then
//! `[DONE]`. A stream that fails has an error in the place of the rest, and no `[DONE]`.

use gristmill_core::{
    Error,
    event::{Event, Finish, TokenInfo, Usage},
};
use serde_json::{Map, Value, json};

use crate::{
    collect::{Call, Piece, Whole, join},
    drive::{Encoder, frame},
    error::Dialect,
};

/// Which of the two generating routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
}

/// What all chunks of an answer have in common.
#[derive(Debug, Clone)]
pub struct Head {
    /// Which route.
    pub form: Form,
    /// One id for the whole answer.
    pub id: String,
    /// Seconds since 1970, one for the whole answer.
    pub created: u64,
    /// The model, as the client spelled it.
    pub model: String,
    /// Names the component that answers.
    pub fingerprint: String,
    /// How many choices share one prompt.
    pub per_prompt: usize,
    /// Texts before the answers, choice by choice; empty when prompts are not echoed.
    pub echo: Vec<String>,
}

impl Head {
    fn object(&self, object: &str, choices: Value) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("id".into(), json!(self.id));
        map.insert("object".into(), json!(object));
        map.insert("created".into(), json!(self.created));
        map.insert("model".into(), json!(self.model));
        map.insert("system_fingerprint".into(), json!(self.fingerprint));
        map.insert("choices".into(), choices);
        map
    }

    fn echo(&self, choice: usize) -> &str {
        self.echo.get(choice).map_or("", String::as_str)
    }
}

/// Why an answer ended. An answer that was cut is `length`, whatever it was about to say.
fn reason(finish: &Finish, calls: bool) -> &'static str {
    match finish.reason.as_str() {
        "length" => "length",
        "content-filter" => "content_filter",
        "tool-calls" => "tool_calls",
        _ if calls => "tool_calls",
        _ => "stop",
    }
}

/// Token counts over all choices: a prompt that several choices share was read once.
#[derive(Debug, Clone, Default)]
struct Sum {
    usage: Usage,
    known: bool,
}

impl Sum {
    fn add(&mut self, usage: &Usage, first_of_prompt: bool) {
        self.known = true;
        if first_of_prompt {
            self.usage.prompt = self.usage.prompt.saturating_add(usage.prompt);
            self.usage.cached = self.usage.cached.saturating_add(usage.cached);
        }
        self.usage.completion = self.usage.completion.saturating_add(usage.completion);
        self.usage.reasoning = self.usage.reasoning.saturating_add(usage.reasoning);
    }

    /// Null where the back-end counts nothing: no number is made up.
    fn value(&self) -> Value {
        if !self.known {
            return Value::Null;
        }
        let usage = &self.usage;
        json!({
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": u64::from(usage.prompt) + u64::from(usage.completion),
            "prompt_tokens_details": { "cached_tokens": usage.cached },
            "completion_tokens_details": { "reasoning_tokens": usage.reasoning },
        })
    }
}

/// A whole answer.
#[must_use]
pub fn whole(head: &Head, answers: &[Whole]) -> Value {
    let mut sum = Sum::default();
    let mut choices = Vec::with_capacity(answers.len());
    for (index, answer) in answers.iter().enumerate() {
        if let Some(usage) = &answer.usage {
            sum.add(usage, index.is_multiple_of(head.per_prompt.max(1)));
        }
        let finish = answer.finish.clone().unwrap_or_else(|| Finish::because("stop"));
        let reason = reason(&finish, !answer.calls.is_empty());
        choices.push(match head.form {
            Form::Chat => json!({
                "index": index,
                "message": message(answer),
                "logprobs": chat_logprobs(&answer.tokens),
                "finish_reason": reason,
            }),
            Form::Completion => {
                let echo = head.echo(index);
                let mut offset = echo.chars().count();
                json!({
                    "text": format!("{echo}{}{}", answer.reasoning, answer.text),
                    "index": index,
                    "logprobs": text_logprobs(&answer.tokens, &mut offset),
                    "finish_reason": reason,
                })
            }
        });
    }
    let object = match head.form {
        Form::Chat => "chat.completion",
        Form::Completion => "text_completion",
    };
    let mut map = head.object(object, Value::Array(choices));
    map.insert("usage".into(), sum.value());
    Value::Object(map)
}

fn message(answer: &Whole) -> Value {
    let mut message = Map::new();
    message.insert("role".into(), json!("assistant"));
    let silent = answer.text.is_empty() && !answer.calls.is_empty();
    message.insert("content".into(), if silent { Value::Null } else { json!(answer.text) });
    message.insert("refusal".into(), Value::Null);
    if !answer.reasoning.is_empty() {
        message.insert("reasoning".into(), json!(answer.reasoning));
        message.insert("reasoning_content".into(), json!(answer.reasoning));
    }
    if !answer.calls.is_empty() {
        let call = |call: &Call| {
            json!({
                "id": call.id,
                "type": "function",
                "function": { "name": call.name, "arguments": call.arguments },
            })
        };
        message.insert("tool_calls".into(), answer.calls.iter().map(call).collect());
    }
    Value::Object(message)
}

fn chat_logprobs(tokens: &[TokenInfo]) -> Value {
    if tokens.is_empty() {
        return Value::Null;
    }
    json!({ "content": logprobs(tokens), "refusal": null })
}

/// Log probabilities, an object for each token.
#[must_use]
pub fn logprobs(tokens: &[TokenInfo]) -> Vec<Value> {
    let one = |bytes: &[u8], logprob: f32| json!({ "token": String::from_utf8_lossy(bytes), "logprob": logprob, "bytes": bytes });
    tokens
        .iter()
        .map(|token| {
            let mut value = one(&token.bytes, token.logprob);
            let others: Vec<_> =
                token.alternatives.iter().map(|other| one(&other.bytes, other.logprob)).collect();
            if let Some(value) = value.as_object_mut() {
                value.insert("top_logprobs".into(), Value::Array(others));
            }
            value
        })
        .collect()
}

/// `offset` counts characters from the beginning of the choice's text.
fn text_logprobs(tokens: &[TokenInfo], offset: &mut usize) -> Value {
    if tokens.is_empty() {
        return Value::Null;
    }
    let (mut texts, mut logprobs, mut tops, mut offsets) = (vec![], vec![], vec![], vec![]);
    for token in tokens {
        let text = String::from_utf8_lossy(&token.bytes).into_owned();
        offsets.push(json!(*offset));
        *offset += text.chars().count();
        texts.push(json!(text));
        logprobs.push(json!(token.logprob));
        let top: Map<_, _> = token
            .alternatives
            .iter()
            .map(|other| (String::from_utf8_lossy(&other.bytes).into_owned(), json!(other.logprob)))
            .collect();
        tops.push(Value::Object(top));
    }
    json!({ "tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets })
}

/// Server-sent events.
pub struct Stream {
    head: Head,
    include_usage: bool,
    sum: Sum,
    /// Choices begun so far.
    begun: usize,
    /// Tool calls of the choice at work.
    calls: Whole,
    /// Characters of the choice at work, for log probabilities.
    offset: usize,
}

impl Stream {
    /// A stream that has not begun.
    #[must_use]
    pub fn new(head: Head, include_usage: bool) -> Self {
        Self {
            head,
            include_usage,
            sum: Sum::default(),
            begun: 0,
            calls: Whole::default(),
            offset: 0,
        }
    }

    /// The chunks of a batch of one choice.
    pub fn chunks(&mut self, choice: usize, events: Vec<Event>) -> Vec<Value> {
        let mut chunks = Vec::new();
        if choice >= self.begun {
            self.begun = choice + 1;
            self.calls = Whole::default();
            let echo = self.head.echo(choice).to_owned();
            self.offset = echo.chars().count();
            match self.head.form {
                Form::Chat => {
                    let delta = json!({ "role": "assistant", "content": "", "refusal": null });
                    chunks.push(self.delta(choice, delta, &[], None));
                }
                Form::Completion if !echo.is_empty() => {
                    chunks.push(self.text(choice, &echo, &[], None));
                }
                Form::Completion => {}
            }
        }
        for piece in join(events) {
            let chunk = match (self.head.form, piece) {
                (Form::Chat, Piece::Text(text, tokens)) => {
                    Some(self.delta(choice, json!({ "content": text }), &tokens, None))
                }
                (Form::Chat, Piece::Reasoning(text, tokens)) => {
                    let delta = json!({ "reasoning": text, "reasoning_content": text });
                    Some(self.delta(choice, delta, &tokens, None))
                }
                (Form::Completion, Piece::Text(text, tokens) | Piece::Reasoning(text, tokens)) => {
                    Some(self.text(choice, &text, &tokens, None))
                }
                (_, Piece::Event(event)) => self.event(choice, event),
            };
            chunks.extend(chunk);
        }
        chunks
    }

    fn event(&mut self, choice: usize, event: Event) -> Option<Value> {
        let delta = match &event {
            Event::ToolStart(start) => {
                let index = start.index;
                self.calls.push(event);
                let call = self.calls.call(index)?;
                json!({
                    "index": index, "id": call.id, "type": "function",
                    "function": { "name": call.name, "arguments": "" },
                })
            }
            Event::ToolArguments(index, piece) => {
                let delta = json!({ "index": index, "function": { "arguments": piece } });
                self.calls.push(event);
                delta
            }
            Event::ToolEnd(index) => {
                // A call without arguments has the empty object for them.
                let index = *index;
                if !self.calls.call(index)?.arguments.trim().is_empty() {
                    return None;
                }
                self.calls.push(event);
                json!({ "index": index, "function": { "arguments": "{}" } })
            }
            Event::Usage(usage) => {
                self.sum.add(usage, choice.is_multiple_of(self.head.per_prompt.max(1)));
                return None;
            }
            Event::Finish(finish) => {
                let reason = reason(finish, !self.calls.calls.is_empty());
                return Some(match self.head.form {
                    Form::Chat => self.delta(choice, json!({}), &[], Some(reason)),
                    Form::Completion => self.text(choice, "", &[], Some(reason)),
                });
            }
            _ => return None,
        };
        (self.head.form == Form::Chat)
            .then(|| self.delta(choice, json!({ "tool_calls": [delta] }), &[], None))
    }

    fn delta(
        &self,
        choice: usize,
        delta: Value,
        tokens: &[TokenInfo],
        reason: Option<&str>,
    ) -> Value {
        self.chunk(json!([{
            "index": choice,
            "delta": delta,
            "logprobs": chat_logprobs(tokens),
            "finish_reason": reason,
        }]))
    }

    fn text(
        &mut self,
        choice: usize,
        text: &str,
        tokens: &[TokenInfo],
        reason: Option<&str>,
    ) -> Value {
        let logprobs = text_logprobs(tokens, &mut self.offset);
        self.chunk(json!([{
            "text": text,
            "index": choice,
            "logprobs": logprobs,
            "finish_reason": reason,
        }]))
    }

    fn chunk(&self, choices: Value) -> Value {
        let object = match self.head.form {
            Form::Chat => "chat.completion.chunk",
            Form::Completion => "text_completion",
        };
        let mut map = self.head.object(object, choices);
        if self.include_usage {
            map.insert("usage".into(), Value::Null);
        }
        Value::Object(map)
    }
}

impl Encoder for Stream {
    fn content_type(&self) -> &'static str {
        "text/event-stream"
    }

    fn batch(&mut self, choice: usize, events: Vec<Event>) -> String {
        self.chunks(choice, events).iter().map(frame).collect()
    }

    fn end(&mut self) -> String {
        let mut text = String::new();
        if self.include_usage {
            let mut chunk = self.chunk(json!([]));
            if let Some(chunk) = chunk.as_object_mut() {
                chunk.insert("usage".into(), self.sum.value());
            }
            text.push_str(&frame(&chunk));
        }
        text.push_str("data: [DONE]\n\n");
        text
    }

    fn error(&mut self, error: &Error) -> String {
        frame(&Dialect::OpenAi.body(error, ""))
    }
}
