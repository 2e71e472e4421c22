//! Domain events into Ollama JSON. Pure but for the clock, which is passed in.

use std::time::{Duration, SystemTime};

use gristmill_core::{
    Error,
    event::{Event, Finish, TokenInfo},
};
use serde_json::{Map, Value, json};

use crate::{
    collect::{Call, Piece, Whole, join},
    drive::Encoder,
    error::Dialect,
};

/// Which of the two generating routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `/api/chat`: a `message`.
    Chat,
    /// `/api/generate`: `response` and `thinking`.
    Generate,
}

/// When a line is written.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// By the wall clock.
    pub now: SystemTime,
    /// Since the request came in.
    pub elapsed: Duration,
}

/// Tells the time.
pub type Clock = Box<dyn Fn() -> Stamp + Send>;

/// RFC 3339, UTC, as fine as the clock.
#[must_use]
pub fn timestamp(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// Ollama's word for why an answer ended: tool calls end with `stop`.
fn reason(finish: &Finish) -> &str {
    match finish.reason.as_str() {
        "length" => "length",
        _ => "stop",
    }
}

/// NDJSON.
pub struct Lines {
    form: Form,
    model: String,
    clock: Clock,
    whole: Whole,
}

impl Lines {
    /// A stream that has not begun. `model` is echoed as the client spelled it.
    #[must_use]
    pub fn new(form: Form, model: String, clock: Clock) -> Self {
        Self { form, model, clock, whole: Whole::default() }
    }

    /// The lines of a batch.
    pub fn lines(&mut self, events: Vec<Event>) -> Vec<Value> {
        let mut lines = Vec::new();
        for piece in join(events) {
            match piece {
                Piece::Text(text, tokens) => lines.push(self.line(&text, "", None, &tokens)),
                Piece::Reasoning(text, tokens) => lines.push(self.line("", &text, None, &tokens)),
                Piece::Event(event) => lines.extend(self.event(event)),
            }
        }
        lines
    }

    fn event(&mut self, event: Event) -> Option<Value> {
        let ended = match &event {
            Event::ToolEnd(index) => Some(*index),
            _ => None,
        };
        let finish = match &event {
            Event::Finish(finish) => Some(finish.clone()),
            _ => None,
        };
        self.whole.push(event);
        if let Some(call) = ended.and_then(|index| self.whole.call(index)).cloned() {
            return Some(match call_value(&call) {
                Some(value) => self.line("", "", Some(json!([value])), &[]),
                // Arguments that are no object cannot be said as a call here, and are not lost.
                None => self.line(&call.arguments, "", None, &[]),
            });
        }
        finish.map(|finish| {
            let mut line = self.line("", "", None, &[]);
            if let Some(line) = line.as_object_mut() {
                close(line, &finish, &self.whole, (self.clock)().elapsed);
            }
            line
        })
    }

    fn line(
        &self,
        text: &str,
        thinking: &str,
        calls: Option<Value>,
        tokens: &[TokenInfo],
    ) -> Value {
        let stamp = (self.clock)();
        Value::Object(open(self.form, &self.model, stamp.now, text, thinking, calls, tokens))
    }
}

impl Encoder for Lines {
    fn content_type(&self) -> &'static str {
        "application/x-ndjson"
    }

    fn batch(&mut self, _: usize, events: Vec<Event>) -> String {
        self.lines(events).iter().map(|line| format!("{line}\n")).collect()
    }

    fn end(&mut self) -> String {
        String::new()
    }

    fn error(&mut self, error: &Error) -> String {
        format!("{}\n", Dialect::Ollama.body(error, ""))
    }
}

/// A whole answer in one object.
#[must_use]
pub fn whole(form: Form, model: &str, answer: &Whole, stamp: Stamp) -> Value {
    let mut text = answer.text.clone();
    let mut calls = Vec::new();
    // A call that was cut off is not one; `done_reason` says that the answer was.
    for call in answer.calls.iter().filter(|call| call.ended) {
        match call_value(call) {
            Some(value) => calls.push(value),
            None => text.push_str(&call.arguments),
        }
    }
    let calls = (!calls.is_empty()).then_some(Value::Array(calls));
    let mut object = open(form, model, stamp.now, &text, &answer.reasoning, calls, &answer.tokens);
    let finish = answer.finish.clone().unwrap_or_else(|| Finish::because("stop"));
    close(&mut object, &finish, answer, stamp.elapsed);
    Value::Object(object)
}

/// The answer to a request that generates nothing: `load` or `unload`.
#[must_use]
pub fn nothing(form: Form, model: &str, why: &str, stamp: Stamp) -> Value {
    let mut object = open(form, model, stamp.now, "", "", None, &[]);
    object.insert("done".into(), json!(true));
    object.insert("done_reason".into(), json!(why));
    Value::Object(object)
}

fn open(
    form: Form,
    model: &str,
    now: SystemTime,
    text: &str,
    thinking: &str,
    calls: Option<Value>,
    tokens: &[TokenInfo],
) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("model".into(), json!(model));
    object.insert("created_at".into(), json!(timestamp(now)));
    let mut said = Map::new();
    match form {
        Form::Chat => {
            said.insert("role".into(), json!("assistant"));
            said.insert("content".into(), json!(text));
        }
        Form::Generate => {
            said.insert("response".into(), json!(text));
        }
    }
    if !thinking.is_empty() {
        said.insert("thinking".into(), json!(thinking));
    }
    if let Some(calls) = calls {
        said.insert("tool_calls".into(), calls);
    }
    match form {
        Form::Chat => {
            object.insert("message".into(), Value::Object(said));
        }
        Form::Generate => object.extend(said),
    }
    object.insert("done".into(), json!(false));
    if !tokens.is_empty() {
        object.insert("logprobs".into(), tokens.iter().map(token).collect());
    }
    object
}

fn close(line: &mut Map<String, Value>, finish: &Finish, whole: &Whole, elapsed: Duration) {
    line.insert("done".into(), json!(true));
    line.insert("done_reason".into(), json!(reason(finish)));
    let nanoseconds = |micros: u64| micros.saturating_mul(1000);
    let timings = whole.timings.clone().unwrap_or_default();
    let usage = whole.usage.clone().unwrap_or_default();
    let numbers = [
        ("total_duration", u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)),
        ("load_duration", nanoseconds(timings.load)),
        ("prompt_eval_count", usage.prompt.into()),
        ("prompt_eval_duration", nanoseconds(timings.prefill)),
        ("eval_count", usage.completion.into()),
        ("eval_duration", nanoseconds(timings.decode)),
    ];
    for (name, number) in numbers {
        if number > 0 {
            line.insert(name.into(), json!(number));
        }
    }
}

/// A call with its arguments as an object; `None` when they are none.
fn call_value(call: &Call) -> Option<Value> {
    let arguments: Map<String, Value> = serde_json::from_str(&call.arguments).ok()?;
    Some(json!({
        "id": call.id,
        "function": { "index": call.index, "name": call.name, "arguments": arguments },
    }))
}

fn token(token: &TokenInfo) -> Value {
    let one = |bytes: &[u8], logprob: f32| json!({ "token": String::from_utf8_lossy(bytes), "logprob": logprob, "bytes": bytes });
    let mut value = one(&token.bytes, token.logprob);
    if let Some(object) = value.as_object_mut().filter(|_| !token.alternatives.is_empty()) {
        let others = token.alternatives.iter().map(|other| one(&other.bytes, other.logprob));
        object.insert("top_logprobs".into(), others.collect());
    }
    value
}
