//! Domain events into a message, whole or as server-sent events. Pure.
//!
//! A stream is: `message_start`, `ping`; for each block `content_block_start`, deltas,
//! `content_block_stop`; then `message_delta` with why it ended and the counts, and `message_stop`.
//! A stream that fails ends with `error` instead.

use gristmill_core::{
    Error,
    event::{Event, Usage},
};
use serde_json::{Value, json};

use crate::{
    blocks::{Block, Blocks, Said, Step, object},
    drive::{Encoder, named_frame},
    error::Dialect,
};

/// Anthropic's own advice for arguments that are no JSON object, cut off for instance: an object of
/// this one key around their text.
pub const BROKEN: &str = "INVALID_JSON";

/// What an answer has besides its content.
#[derive(Debug, Clone)]
pub struct Head {
    /// Its id. It also signs the answer's thinking: it says whose it is.
    pub id: String,
    /// The model, as the client spelled it.
    pub model: String,
    /// Stop strings that the client named; others are the family's and end a turn.
    pub stops: Vec<String>,
    /// The request's id, for errors.
    pub request_id: String,
}

impl Head {
    fn message(&self, content: Vec<Value>, ending: (Value, Value), usage: Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": ending.0,
            "stop_sequence": ending.1,
            "usage": usage,
        })
    }

    /// `stop_reason` and `stop_sequence`.
    fn ending(&self, blocks: &Blocks) -> (Value, Value) {
        let Some(finish) = &blocks.finish else { return (Value::Null, Value::Null) };
        let calls = blocks.calls().next().is_some();
        let reason = match finish.reason.as_str() {
            "length" => "max_tokens",
            "content-filter" => "refusal",
            "tool-calls" => "tool_use",
            _ if calls => "tool_use",
            _ => match finish.stop.as_ref().filter(|stop| self.stops.contains(stop)) {
                Some(stop) => return (json!("stop_sequence"), json!(stop)),
                None => "end_turn",
            },
        };
        (json!(reason), Value::Null)
    }
}

/// Tokens from a cache are not counted as input here. Null where the back-end counts nothing: no
/// number is made up.
fn usage(usage: Option<&Usage>) -> Value {
    json!({
        "input_tokens": usage.map(|usage| usage.prompt.saturating_sub(usage.cached)),
        "cache_creation_input_tokens": usage.map(|_| 0),
        "cache_read_input_tokens": usage.map(|usage| usage.cached),
        "output_tokens": usage.map(|usage| usage.completion),
    })
}

/// A whole message.
#[must_use]
pub fn whole(head: &Head, blocks: &Blocks) -> Value {
    let content = blocks.blocks.iter().map(|block| content(head, block)).collect();
    head.message(content, head.ending(blocks), usage(blocks.usage.as_ref()))
}

fn content(head: &Head, block: &Block) -> Value {
    match &block.said {
        Said::Text(text) => json!({ "type": "text", "text": text }),
        Said::Reasoning(text) => {
            json!({ "type": "thinking", "thinking": text, "signature": head.id })
        }
        Said::Call(call) => json!({
            "type": "tool_use", "id": call.id, "name": call.name,
            "input": object(call).unwrap_or_else(|| json!({ BROKEN: call.arguments })),
        }),
    }
}

/// Named server-sent events.
pub struct Stream {
    head: Head,
    blocks: Blocks,
    begun: bool,
}

impl Stream {
    /// A stream that has not begun.
    #[must_use]
    pub fn new(head: Head) -> Self {
        Self { head, blocks: Blocks::default(), begun: false }
    }

    /// The events of a batch.
    pub fn events(&mut self, events: Vec<Event>) -> Vec<Value> {
        let mut out = Vec::new();
        if !self.begun {
            self.begun = true;
            // Counts come with the end; the clients' types want numbers here.
            let usage = json!({ "input_tokens": 0, "output_tokens": 0 });
            let message = self.head.message(Vec::new(), (Value::Null, Value::Null), usage);
            out.push(json!({ "type": "message_start", "message": message }));
            out.push(json!({ "type": "ping" }));
        }
        for step in self.blocks.push(events) {
            self.step(step, &mut out);
        }
        out
    }

    fn step(&self, step: Step, out: &mut Vec<Value>) {
        let (Step::Opened(place) | Step::Grew(place, ..) | Step::Closed(place)) = step;
        let Some(said) = self.blocks.blocks.get(place).map(|block| &block.said) else { return };
        let delta =
            |delta: Value| json!({ "type": "content_block_delta", "index": place, "delta": delta });
        match step {
            Step::Opened(_) => {
                let empty = match said {
                    Said::Text(_) => json!({ "type": "text", "text": "" }),
                    Said::Reasoning(_) => {
                        json!({ "type": "thinking", "thinking": "", "signature": "" })
                    }
                    Said::Call(call) => json!({
                        "type": "tool_use", "id": call.id, "name": call.name, "input": {},
                    }),
                };
                out.push(json!({
                    "type": "content_block_start", "index": place, "content_block": empty,
                }));
            }
            // Only log probabilities came, which this dialect does not have.
            Step::Grew(_, piece, _) if piece.is_empty() => {}
            Step::Grew(_, piece, _) => out.push(delta(match said {
                Said::Text(_) => json!({ "type": "text_delta", "text": piece }),
                Said::Reasoning(_) => json!({ "type": "thinking_delta", "thinking": piece }),
                Said::Call(_) => json!({ "type": "input_json_delta", "partial_json": piece }),
            })),
            Step::Closed(_) => {
                if let Said::Reasoning(_) = said {
                    out.push(delta(
                        json!({ "type": "signature_delta", "signature": self.head.id }),
                    ));
                }
                out.push(json!({ "type": "content_block_stop", "index": place }));
            }
        }
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
        let (reason, stop) = self.head.ending(&self.blocks);
        let delta = json!({
            "type": "message_delta",
            "delta": { "stop_reason": reason, "stop_sequence": stop },
            "usage": usage(self.blocks.usage.as_ref()),
        });
        named_frame(&delta) + &named_frame(&json!({ "type": "message_stop" }))
    }

    fn error(&mut self, error: &Error) -> String {
        named_frame(&Dialect::Anthropic.body(error, &self.head.request_id))
    }
}
