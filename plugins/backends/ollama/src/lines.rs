//! The lines of an answer, of both routes.

use gristmill_bridge::{
    answer::{Answer, Fragment},
    stream::Decoder,
};
use gristmill_plugin::{prelude::*, upstream::Frame};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

/// Reads lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    calls: u32,
}

#[derive(Debug, Deserialize)]
struct Line {
    error: Option<IgnoredAny>,
    message: Option<Message>,
    response: Option<String>,
    thinking: Option<String>,
    tool_calls: Option<Vec<Call>>,
    logprobs: Option<Vec<Entry>>,
    done: Option<bool>,
    done_reason: Option<String>,
    load_duration: Option<u64>,
    prompt_eval_count: Option<u32>,
    prompt_eval_duration: Option<u64>,
    eval_count: Option<u32>,
    eval_duration: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Message {
    content: Option<String>,
    thinking: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

#[derive(Debug, Deserialize)]
struct Call {
    id: Option<String>,
    function: Function,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    arguments: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    token: String,
    logprob: f64,
    bytes: Option<Vec<u8>>,
    top_logprobs: Option<Vec<Entry>>,
}

/// The id of a token whose server tells its text alone.
const UNKNOWN: u32 = u32::MAX;

impl Entry {
    fn bytes(&self) -> Vec<u8> {
        self.bytes.clone().unwrap_or_else(|| self.token.clone().into_bytes())
    }

    fn info(&self) -> TokenInfo {
        TokenInfo {
            id: UNKNOWN,
            bytes: self.bytes(),
            logprob: self.logprob as f32,
            alternatives: (self.top_logprobs.iter().flatten())
                .map(|other| (UNKNOWN, other.bytes(), other.logprob as f32))
                .collect(),
        }
    }
}

impl Lines {
    fn line(&mut self, bytes: &[u8], answer: &mut Answer) -> Result<()> {
        let manners = answer.manners();
        let text = core::str::from_utf8(bytes)
            .map_err(|_| manners.nonsense("ollama: a line is not UTF-8", bytes))?;
        let line: Line = serde_json::from_str(text).map_err(|error| {
            manners.nonsense(&format!("ollama: a line of another shape ({error})"), bytes)
        })?;
        if line.error.is_some()
            && let Some(error) = manners.inside(bytes)
        {
            return Err(error);
        }
        let message = line.message.as_ref();
        let within = message.and_then(|it| it.thinking.as_deref());
        for thought in [line.thinking.as_deref(), within] {
            answer.reasoning(thought.unwrap_or_default());
        }
        let within = message.and_then(|it| it.content.as_deref());
        for said in [line.response.as_deref(), within] {
            answer.text(said.unwrap_or_default())?;
        }
        let calls = message.and_then(|it| it.tool_calls.as_ref()).or(line.tool_calls.as_ref());
        for call in calls.into_iter().flatten() {
            // Calls are whole, and their own numbers start anew with every line.
            answer.fragment(&Fragment {
                index: Some(self.calls),
                id: call.id.as_deref(),
                name: Some(&call.function.name),
                arguments: call.function.arguments.as_ref().map(|raw| raw.get()),
            })?;
            self.calls += 1;
        }
        answer.tokens(line.logprobs.iter().flatten().map(Entry::info).collect());
        if line.done != Some(true) {
            return Ok(());
        }
        answer.usage(Usage {
            prompt: line.prompt_eval_count.unwrap_or_default(),
            cached: 0,
            completion: line.eval_count.unwrap_or_default(),
            reasoning: 0,
            extras: Vec::new(),
        });
        let micros = |nanoseconds: Option<u64>| nanoseconds.unwrap_or_default() / 1000;
        answer.timings(Timings {
            queue: 0,
            load: micros(line.load_duration),
            prefill: micros(line.prompt_eval_duration),
            decode: micros(line.eval_duration),
            extras: Vec::new(),
        });
        let reason = line.done_reason.as_deref().filter(|reason| !reason.is_empty());
        answer.reason(reason.unwrap_or("stop"), None)?;
        answer.complete()
    }
}

impl Decoder for Lines {
    fn frame(&mut self, frame: &Frame, answer: &mut Answer) -> Result<()> {
        let line = frame.data.trim_ascii();
        if line.is_empty() { Ok(()) } else { self.line(line, answer) }
    }

    fn end(&mut self, answer: &mut Answer) -> Result<()> {
        Err(answer.wrong("the stream closed before a line that says done"))
    }

    fn body(&mut self, body: &[u8], answer: &mut Answer) -> Result<()> {
        self.line(body.trim_ascii(), answer)?;
        if answer.is_over() { Ok(()) } else { self.end(answer) }
    }
}
