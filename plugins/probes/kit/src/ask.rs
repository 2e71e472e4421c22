//! Requests that a check makes, and whole answers.

use gristmill_plugin::{prelude::*, probe::serving};

use crate::{Bench, Standing};

/// A tool call, its arguments whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// Position in the answer.
    pub index: u32,
    /// The id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// JSON text, as it came.
    pub arguments: String,
    /// How many pieces the arguments came in, empty ones not counted.
    pub pieces: u32,
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// All text.
    pub text: String,
    /// How many pieces the text came in, empty ones not counted.
    pub pieces: u32,
    /// All reasoning.
    pub reasoning: String,
    /// Whether reasoning came after text.
    pub late_reasoning: bool,
    /// Tool calls, in the order in which they started.
    pub calls: Vec<Call>,
    /// Log probabilities.
    pub tokens: Vec<TokenInfo>,
    /// Token counts, where told.
    pub usage: Option<Usage>,
    /// Times, where told.
    pub timings: Option<Timings>,
    /// Why it ended.
    pub finish: String,
    /// The stop string that ended it.
    pub stop: Option<String>,
    /// Events of a later contract.
    pub others: Vec<(String, String)>,
}

impl Answer {
    /// Takes one event in.
    pub fn add(&mut self, event: Event) {
        match event {
            Event::Text(text) => {
                self.text.push_str(&text);
                self.pieces += u32::from(!text.is_empty());
            }
            Event::Reasoning(text) => {
                self.late_reasoning |= !self.text.is_empty();
                self.reasoning.push_str(&text);
            }
            Event::ToolStart(ToolStart { index, id, name }) => {
                self.calls.push(Call { index, id, name, ..Call::default() });
            }
            Event::ToolArguments((index, text)) => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.index == index) {
                    call.arguments.push_str(&text);
                    call.pieces += u32::from(!text.is_empty());
                }
            }
            Event::ToolEnd(_) => {}
            Event::Tokens(tokens) => self.tokens.extend(tokens),
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Timings(timings) => self.timings = Some(timings),
            Event::Finish(finish) => {
                self.finish = finish.reason;
                self.stop = finish.stop;
            }
            Event::Other(other) => self.others.push(other),
        }
    }

    /// What a client sees of it, counts and times left out.
    #[must_use]
    pub fn seen(&self) -> String {
        let calls = self.calls.iter().map(|call| format!("[{} {}]", call.name, call.arguments));
        let calls: String = calls.collect();
        format!("<{}>{}{calls}", self.reasoning, self.text)
    }
}

/// The whole answer to a request, fetched in large pieces.
///
/// # Errors
/// The back-end's own.
pub fn ask(request: &Request) -> Result<Answer> {
    ask_by(request, 256)
}

/// The whole answer, at most `max` events at a time.
///
/// # Errors
/// The back-end's own; `no-finish` where the answer stops without saying that it is complete.
pub fn ask_by(request: &Request, max: u32) -> Result<Answer> {
    let running = serving::generate(request)?;
    let mut answer = Answer::default();
    while let Some(events) = running.next(max)? {
        events.into_iter().for_each(|event| answer.add(event));
    }
    if answer.finish.is_empty() {
        return Err(Error::new("no-finish", "the answer ended without saying why"));
    }
    Ok(answer)
}

impl Bench {
    /// A greedy request of one user message, or of plain text where the model has no chat format;
    /// thinking is off where it can be switched.
    #[must_use]
    pub fn request(&self, text: &str, max_tokens: u32) -> Request {
        let mut request = self.plain(text, max_tokens);
        if !matches!(self.standing("inference.chat"), Standing::Denied(_)) {
            request.prompt = Prompt::Chat(vec![Message::text(Role::User, text)]);
        }
        request
    }

    /// A greedy request of a text as it is.
    #[must_use]
    pub fn plain(&self, text: &str, max_tokens: u32) -> Request {
        let mut request = Request::new(&*self.model, Prompt::Text(text.to_owned()));
        "conformance".clone_into(&mut request.id);
        request.sampling.temperature = Some(0.0);
        request.max_tokens = Some(max_tokens);
        if self.claims("reasoning.control") {
            request.reasoning = Reasoning::Off;
        }
        request
    }

    /// A request with one tool, which must be called.
    #[must_use]
    pub fn forced(&self, text: &str, tool: Tool, max_tokens: u32) -> Request {
        let mut request = self.request(text, max_tokens);
        request.tool_choice = ToolChoice::Named(tool.name.clone());
        request.tools.push(tool);
        request
    }
}

/// A tool on offer.
#[must_use]
pub fn tool(name: &str, parameters: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        description: Some(format!("The tool {name}.")),
        parameters: parameters.to_owned(),
        strict: Some(true),
        extras: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_put_together_by_channel() {
        let mut answer = Answer::default();
        let start = |index, id: &str| {
            Event::ToolStart(ToolStart { index, id: id.into(), name: "f".into() })
        };
        for event in [
            Event::Text("a".into()),
            Event::Reasoning("r".into()),
            start(0, "x"),
            start(1, "y"),
            Event::ToolArguments((1, "{".into())),
            Event::ToolArguments((0, "[]".into())),
            Event::ToolArguments((1, String::new())),
            Event::ToolArguments((1, "}".into())),
            Event::finish("tool-calls"),
        ] {
            answer.add(event);
        }
        assert!(answer.late_reasoning);
        assert_eq!(answer.seen(), "<r>a[f []][f {}]");
        assert_eq!(answer.calls.last().map(|call| call.pieces), Some(2), "an empty one is none");
        assert_eq!(answer.pieces, 1);
        assert_eq!(answer.finish, "tool-calls");
    }
}
