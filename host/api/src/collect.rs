//! A whole answer from its events.

use gristmill_core::event::{Event, Finish, Timings, TokenInfo, ToolStart, Usage};

use crate::ids;

/// A tool call as far as it has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// Position among the calls of this answer.
    pub index: u32,
    /// Stable; made here when the back-end has none.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// JSON text so far.
    pub arguments: String,
    /// Whether it is complete.
    pub ended: bool,
}

impl Call {
    /// A call that has just begun; an id is made for one that has none.
    #[must_use]
    pub fn begin(start: ToolStart) -> Self {
        let id = if start.id.is_empty() { ids::fresh("call_", 8) } else { start.id };
        Self { index: start.index, id, name: start.name, ..Self::default() }
    }
}

/// What an answer's events are put together into.
pub trait Collect: Default {
    /// Adds a batch of events.
    fn take(&mut self, events: Vec<Event>);
}

impl Collect for Whole {
    fn take(&mut self, events: Vec<Event>) {
        events.into_iter().for_each(|event| self.push(event));
    }
}

/// Everything an answer has said so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Whole {
    /// The answer.
    pub text: String,
    /// The reasoning.
    pub reasoning: String,
    /// Tool calls, in order of their beginning.
    pub calls: Vec<Call>,
    /// Tokens with log probabilities.
    pub tokens: Vec<TokenInfo>,
    /// Token counts.
    pub usage: Option<Usage>,
    /// Where the time went.
    pub timings: Option<Timings>,
    /// Why it ended.
    pub finish: Option<Finish>,
}

impl Whole {
    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        match event {
            Event::Text(text) => self.text.push_str(&text),
            Event::Reasoning(text) => self.reasoning.push_str(&text),
            Event::Tokens(tokens) => self.tokens.extend(tokens),
            Event::ToolStart(start) => self.calls.push(Call::begin(start)),
            Event::ToolArguments(index, piece) => {
                if let Some(call) = self.call(index) {
                    call.arguments.push_str(&piece);
                }
            }
            Event::ToolEnd(index) => {
                if let Some(call) = self.call(index) {
                    call.ended = true;
                    if call.arguments.trim().is_empty() {
                        call.arguments = "{}".to_owned();
                    }
                }
            }
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Timings(timings) => self.timings = Some(timings),
            Event::Finish(finish) => self.finish = Some(finish),
            Event::Other(..) => {}
        }
    }

    /// The call with this index; the latest, should an index repeat.
    pub fn call(&mut self, index: u32) -> Option<&mut Call> {
        self.calls.iter_mut().rev().find(|call| call.index == index)
    }
}

/// Text and reasoning of neighbouring events joined, so that one batch makes few pieces.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// More of the answer, with the log probabilities of the same stretch.
    Text(String, Vec<TokenInfo>),
    /// More of the reasoning, with the log probabilities of the same stretch.
    Reasoning(String, Vec<TokenInfo>),
    /// Anything else.
    Event(Event),
}

/// Joins a batch's neighbours.
#[must_use]
pub fn join(events: Vec<Event>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for event in events {
        match (pieces.last_mut(), event) {
            (Some(Piece::Text(text, _)), Event::Text(more))
            | (Some(Piece::Reasoning(text, _)), Event::Reasoning(more)) => text.push_str(&more),
            (Some(Piece::Text(_, tokens) | Piece::Reasoning(_, tokens)), Event::Tokens(more)) => {
                tokens.extend(more);
            }
            (_, Event::Text(text)) => pieces.push(Piece::Text(text, Vec::new())),
            (_, Event::Reasoning(text)) => pieces.push(Piece::Reasoning(text, Vec::new())),
            (_, Event::Tokens(tokens)) => pieces.push(Piece::Text(String::new(), tokens)),
            (_, event) => pieces.push(Piece::Event(event)),
        }
    }
    pieces
}
