//! Domain events into a response object, whole or as typed server-sent events. Pure, but for what
//! [`Stream`] is told to do with the finished response.
//!
//! A stream is: `created`, `in_progress`; for each output item `output_item.added`, its parts and
//! deltas, `output_item.done`; then `completed` or `incomplete` with the whole response. A stream
//! that fails ends with `failed` and `error` instead. Every event has the next `sequence_number`.

use gristmill_core::{
    Error,
    event::{Event, TokenInfo, Usage},
};
use serde_json::{Map, Value, json};

use crate::{
    blocks::{Block, Blocks, Said, Step},
    collect::Call,
    drive::{Encoder, named_frame},
    error, ids,
    openai::encode::logprobs,
};

/// What a response says besides its output.
#[derive(Debug, Clone)]
pub struct Head {
    /// Its id.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The model, as the client spelled it.
    pub model: String,
    /// Whether it is kept.
    pub store: bool,
    /// What it repeats of the request.
    pub echo: Map<String, Value>,
}

/// How far a response is.
#[derive(Debug, Clone, Copy)]
enum State<'a> {
    Running,
    Done(&'a Blocks),
    Failed(&'a Error),
}

impl Head {
    fn object(&self, output: Vec<Value>, state: State<'_>) -> Value {
        let (status, reason) = match state {
            State::Running => ("in_progress", None),
            State::Failed(_) => ("failed", None),
            State::Done(blocks) => match blocks.finish.as_ref().map(|end| end.reason.as_str()) {
                Some("length") => ("incomplete", Some("max_output_tokens")),
                Some("content-filter") => ("incomplete", Some("content_filter")),
                _ => ("completed", None),
            },
        };
        let failure = match state {
            State::Failed(error) => {
                json!({ "code": error::word(error), "message": error.message })
            }
            _ => Value::Null,
        };
        let usage = match state {
            State::Done(blocks) => blocks.usage.as_ref().map_or(Value::Null, usage),
            _ => Value::Null,
        };
        let mut map = Map::new();
        map.insert("id".into(), json!(self.id));
        map.insert("object".into(), json!("response"));
        map.insert("created_at".into(), json!(self.created));
        map.insert("status".into(), json!(status));
        map.insert("background".into(), json!(false));
        map.insert("error".into(), failure);
        map.insert(
            "incomplete_details".into(),
            reason.map_or(Value::Null, |reason| json!({ "reason": reason })),
        );
        map.insert("model".into(), json!(self.model));
        map.insert("output".into(), Value::Array(output));
        map.insert("store".into(), json!(self.store));
        map.insert("usage".into(), usage);
        map.extend(self.echo.clone());
        Value::Object(map)
    }
}

/// Null where the back-end counts nothing: no number is made up.
fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": { "cached_tokens": usage.cached, "cache_write_tokens": 0 },
        "output_tokens": usage.completion,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
        "total_tokens": u64::from(usage.prompt) + u64::from(usage.completion),
    })
}

/// A whole response.
#[must_use]
pub fn whole(head: &Head, blocks: &Blocks) -> Value {
    let output = blocks.blocks.iter().map(|block| item(&name(block), block)).collect();
    head.object(output, State::Done(blocks))
}

/// An id for an output item.
fn name(block: &Block) -> String {
    let prefix = match block.said {
        Said::Text(_) => "msg_",
        Said::Reasoning(_) => "rs_",
        Said::Call(_) => "fc_",
    };
    ids::fresh(prefix, 24)
}

/// An output item as it stands when its block is complete.
fn item(id: &str, block: &Block) -> Value {
    let status = match block {
        Block { open: true, .. } => "in_progress",
        Block { cut: true, .. } => "incomplete",
        _ => "completed",
    };
    match &block.said {
        Said::Text(_) => json!({
            "type": "message", "id": id, "status": status, "role": "assistant",
            "content": parts(block),
        }),
        Said::Reasoning(_) => json!({
            "type": "reasoning", "id": id, "summary": [], "content": parts(block),
            "encrypted_content": null, "status": status,
        }),
        Said::Call(call) => json!({
            "type": "function_call", "id": id, "call_id": call.id, "name": call.name,
            "arguments": if block.open { "" } else { &call.arguments }, "status": status,
        }),
    }
}

/// The one part of a message or of reasoning; none while it is being written.
fn parts(block: &Block) -> Vec<Value> {
    if block.open {
        return Vec::new();
    }
    part(&block.said, &block.tokens).into_iter().collect()
}

fn part(said: &Said, tokens: &[TokenInfo]) -> Option<Value> {
    match said {
        Said::Text(text) => Some(json!({
            "type": "output_text", "text": text, "annotations": [], "logprobs": logprobs(tokens),
        })),
        Said::Reasoning(text) => Some(json!({ "type": "reasoning_text", "text": text })),
        Said::Call(_) => None,
    }
}

/// Told of the finished response.
pub type Finished = Box<dyn FnOnce(&Value, &Blocks) + Send>;

/// Typed server-sent events.
pub struct Stream {
    head: Head,
    blocks: Blocks,
    /// Ids of the output items, by place.
    names: Vec<String>,
    sequence: u64,
    finished: Option<Finished>,
}

impl Stream {
    /// A stream that has not begun.
    #[must_use]
    pub fn new(head: Head, finished: Finished) -> Self {
        Self {
            head,
            blocks: Blocks::default(),
            names: Vec::new(),
            sequence: 0,
            finished: Some(finished),
        }
    }

    /// The events of a batch.
    pub fn events(&mut self, events: Vec<Event>) -> Vec<Value> {
        let mut out = self.begin();
        let steps = self.blocks.push(events);
        // Taken out for the while: its texts are read, not copied.
        let blocks = std::mem::take(&mut self.blocks);
        for step in steps {
            let (Step::Opened(place) | Step::Grew(place, ..) | Step::Closed(place)) = step;
            if let Some(block) = blocks.blocks.get(place) {
                self.step(step, place, block, &mut out);
            }
        }
        self.blocks = blocks;
        out
    }

    /// The first events, once.
    fn begin(&mut self) -> Vec<Value> {
        if self.sequence > 0 {
            return Vec::new();
        }
        ["response.created", "response.in_progress"]
            .map(|kind| {
                let response = self.head.object(Vec::new(), State::Running);
                self.event(kind, json!({ "response": response }))
            })
            .into()
    }

    fn event(&mut self, kind: &str, fields: Value) -> Value {
        let mut map = Map::new();
        map.insert("type".into(), json!(kind));
        if let Value::Object(fields) = fields {
            map.extend(fields);
        }
        map.insert("sequence_number".into(), json!(self.sequence));
        self.sequence += 1;
        Value::Object(map)
    }

    fn step(&mut self, step: Step, place: usize, block: &Block, out: &mut Vec<Value>) {
        let said = &block.said;
        let id = match &step {
            Step::Opened(_) => {
                self.names.push(name(block));
                self.names.last()
            }
            _ => self.names.get(place),
        };
        let id = id.cloned().unwrap_or_default();
        let mut send = |kind: &str, fields: Value| {
            let mut all = Map::new();
            all.insert("item_id".into(), json!(id));
            all.insert("output_index".into(), json!(place));
            if !matches!(said, Said::Call(_)) {
                all.insert("content_index".into(), json!(0));
            }
            if let Value::Object(fields) = fields {
                all.extend(fields);
            }
            out.push(self.event(kind, Value::Object(all)));
        };
        match step {
            Step::Opened(_) => {
                // The block may have grown in the same batch; it begins with nothing all the same.
                let empty = match said {
                    Said::Text(_) => Said::Text(String::new()),
                    Said::Reasoning(_) => Said::Reasoning(String::new()),
                    Said::Call(call) => {
                        Said::Call(Call { arguments: String::new(), ..call.clone() })
                    }
                };
                let part = part(&empty, &[]);
                let empty = Block { said: empty, tokens: Vec::new(), open: true, cut: false };
                let fields = json!({ "output_index": place, "item": item(&id, &empty) });
                out.push(self.event("response.output_item.added", fields));
                if let Some(part) = part {
                    let fields = json!({
                        "item_id": id, "output_index": place, "content_index": 0, "part": part,
                    });
                    out.push(self.event("response.content_part.added", fields));
                }
            }
            Step::Grew(_, piece, tokens) => match said {
                Said::Text(_) => send(
                    "response.output_text.delta",
                    json!({ "delta": piece, "logprobs": logprobs(&tokens) }),
                ),
                Said::Reasoning(_) => {
                    send("response.reasoning_text.delta", json!({ "delta": piece }));
                }
                Said::Call(_) => {
                    send("response.function_call_arguments.delta", json!({ "delta": piece }));
                }
            },
            Step::Closed(_) => {
                match said {
                    Said::Text(text) => send(
                        "response.output_text.done",
                        json!({ "text": text, "logprobs": logprobs(&block.tokens) }),
                    ),
                    Said::Reasoning(text) => {
                        send("response.reasoning_text.done", json!({ "text": text }));
                    }
                    Said::Call(call) => send(
                        "response.function_call_arguments.done",
                        json!({ "name": call.name, "arguments": call.arguments }),
                    ),
                }
                if let Some(part) = part(said, &block.tokens) {
                    send("response.content_part.done", json!({ "part": part }));
                }
                let fields = json!({ "output_index": place, "item": item(&id, block) });
                out.push(self.event("response.output_item.done", fields));
            }
        }
    }

    fn output(&self) -> Vec<Value> {
        let blocks = self.blocks.blocks.iter().zip(&self.names);
        blocks.map(|(block, id)| item(id, block)).collect()
    }
}

impl Encoder for Stream {
    fn content_type(&self) -> &'static str {
        "text/event-stream"
    }

    fn batch(&mut self, _: usize, events: Vec<Event>) -> String {
        self.events(events).iter().map(named_frame).collect()
    }

    fn end(&mut self) -> String {
        let response = self.head.object(self.output(), State::Done(&self.blocks));
        if let Some(finished) = self.finished.take() {
            finished(&response, &self.blocks);
        }
        let kind = if response.get("status").is_some_and(|status| status == "incomplete") {
            "response.incomplete"
        } else {
            "response.completed"
        };
        named_frame(&self.event(kind, json!({ "response": response })))
    }

    fn error(&mut self, error: &Error) -> String {
        let response = self.head.object(self.output(), State::Failed(error));
        let failed = self.event("response.failed", json!({ "response": response }));
        // Flat as the documentation has it, and with the object that makes clients raise it.
        let inner = error::object(error);
        let mut fields = Map::new();
        for name in ["code", "message", "param"] {
            fields.insert(name.to_owned(), inner.get(name).cloned().unwrap_or(Value::Null));
        }
        fields.insert("error".to_owned(), Value::Object(inner));
        let event = self.event("error", Value::Object(fields));
        named_frame(&failed) + &named_frame(&event)
    }
}
