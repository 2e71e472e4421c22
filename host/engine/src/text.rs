//! From token bytes to events: whole UTF-8, stop strings, reasoning, tool calls.
//!
//! Bytes go through four stages, each of which holds back only what it cannot yet decide:
//! [`Utf8`] (an unfinished character), [`Stops`] (the longest suffix that could begin a stop
//! string), reasoning spans and tool calls (the longest suffix that could begin a mark). Where a
//! family's answers are messages on channels, [`Channels`] stands in the place of the spans. The
//! text that comes out does not depend on how the bytes were cut into tokens.
//!
//! Stop strings are looked for in everything the model writes, reasoning and calls included.

mod calls;
mod channels;
mod marks;
mod spans;
mod stops;
mod utf8;

use gristmill_core::{
    event::Event,
    program::{Dialect, Span, ToolFormat},
};

pub use calls::{Calls, Offer};
pub(crate) use calls::{HARMONY, Kinds, deepseek, dsml, glm, letter, shape, tagged};
pub use stops::Stops;
pub use utf8::Utf8;

use channels::Channels;
use spans::{Piece, Spans};

/// What an answer's text is made into.
#[derive(Debug)]
pub struct Assembler {
    utf8: Utf8,
    stops: Stops,
    sections: Sections,
    calls: Option<Calls>,
    stopped: Option<String>,
    /// The answer is cut, not finished.
    cut: bool,
}

/// How thoughts, text and messages to functions are told apart.
#[derive(Debug)]
enum Sections {
    /// They are not: all is text.
    None,
    Spans(Spans),
    Channels(Channels),
}

/// How an answer's text is read.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// The caller's strings that end the answer.
    pub stops: Vec<String>,
    /// Texts that end a turn in the model's family; none of them is looked for in bound text.
    pub ends: Vec<String>,
    /// How reasoning is marked, if it is told apart.
    pub reasoning: Option<Span>,
    /// How calls are marked, if any may be made.
    pub tools: Option<ToolFormat>,
    /// Tools that may be called.
    pub offers: Vec<Offer>,
    /// Whether the answer is messages on channels.
    pub channels: bool,
    /// Whether more than one call may be made.
    pub parallel: bool,
    /// Beginning of the calls' ids.
    pub id: String,
}

impl Reading {
    /// Whether the text of a special token is one of the marks, and so must be read, or is left out.
    #[must_use]
    pub fn wants(dialect: &Dialect, text: &str) -> bool {
        let spans = dialect.reasoning.iter().flat_map(|span| [&span.open, &span.close]);
        let tools = dialect.tools.iter().flat_map(|tools| [&tools.open, &tools.close]);
        let text = text.trim();
        let named = !text.is_empty() && spans.chain(tools).any(|mark| mark.contains(text));
        named
            || dialect.tools.as_ref().is_some_and(|format| shape::inner(format, text))
            || (Self::on_channels(dialect) && channels::marks(text))
    }

    /// Whether the family's answers are messages on channels.
    #[must_use]
    pub fn on_channels(dialect: &Dialect) -> bool {
        dialect.tools.as_ref().is_some_and(|tools| tools.shape == HARMONY)
    }
}

impl Assembler {
    /// An assembler at the beginning of an answer.
    #[must_use]
    pub fn new(reading: Reading) -> Self {
        let calls = reading
            .tools
            .map(|format| Calls::new(format, reading.offers, reading.parallel, reading.id));
        let sections = match reading.reasoning {
            span if reading.channels => {
                Sections::Channels(Channels::new(span.is_some_and(|span| span.open_at_start)))
            }
            Some(span) => Sections::Spans(Spans::new(span)),
            None => Sections::None,
        };
        Self {
            utf8: Utf8::default(),
            stops: Stops::new(reading.stops, reading.ends),
            sections,
            calls,
            stopped: None,
            cut: false,
        }
    }

    /// The bytes of the next token, and whether a grammar binds them. Afterwards
    /// [`Assembler::ended`] says whether the answer is over.
    pub fn push(&mut self, bytes: &[u8], bound: bool, events: &mut Vec<Event>) {
        let text = self.utf8.push(bytes);
        self.text(&text, bound, events);
    }

    /// The end of the answer: what was held back is decided.
    pub fn finish(&mut self, events: &mut Vec<Event>) {
        if !self.ended() {
            let text = self.utf8.finish();
            self.text(&text, false, events);
        }
        if self.stopped.is_none() {
            let text = self.stops.finish();
            self.pieces(&text, events);
        }
        let pieces = match &mut self.sections {
            Sections::None => Vec::new(),
            Sections::Spans(spans) => spans.finish(),
            Sections::Channels(channels) => channels.finish(self.cut),
        };
        self.emit(pieces, events);
        if let Some(calls) = &mut self.calls {
            calls.finish(self.cut, events);
        }
    }

    /// The answer was cut: a call that had begun will not be completed, and is no text either.
    pub fn cut(&mut self) {
        self.cut = true;
    }

    /// Whether nothing more belongs to the answer: a stop string, or the only call allowed.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.stopped.is_some() || self.calls.as_ref().is_some_and(Calls::ended)
    }

    /// The stop string that ended it.
    #[must_use]
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// Calls that have ended.
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.calls.as_ref().map_or(0, Calls::completed)
    }

    /// Whether the model is thinking.
    #[must_use]
    pub fn reasoning(&self) -> bool {
        match &self.sections {
            Sections::None => false,
            Sections::Spans(spans) => spans.inside(),
            Sections::Channels(channels) => channels.thinking(),
        }
    }

    fn text(&mut self, text: &str, bound: bool, events: &mut Vec<Event>) {
        if text.is_empty() || self.stopped.is_some() {
            return;
        }
        let (text, stop) = self.stops.push(text, bound);
        self.stopped = stop;
        self.pieces(&text, events);
    }

    fn pieces(&mut self, text: &str, events: &mut Vec<Event>) {
        if text.is_empty() {
            return;
        }
        let pieces = match &mut self.sections {
            Sections::None => vec![Piece::Text(text.to_owned())],
            Sections::Spans(spans) => spans.push(text),
            Sections::Channels(channels) => channels.push(text),
        };
        self.emit(pieces, events);
    }

    fn emit(&mut self, pieces: Vec<Piece>, events: &mut Vec<Event>) {
        for piece in pieces {
            match (piece, &mut self.calls) {
                (Piece::Reasoning(text), _) => add(events, Event::Reasoning(text)),
                (Piece::Text(text), Some(calls)) => calls.push(&text, events),
                (Piece::Call(name, header), Some(calls)) => calls.begin(name, header, events),
                (Piece::Close(mark), Some(calls)) => calls.close(&mark, events),
                (Piece::Text(text) | Piece::Call(_, text) | Piece::Close(text), None) => {
                    add(events, Event::Text(text));
                }
            }
        }
    }
}

/// Adds an event, joining text to text.
fn add(events: &mut Vec<Event>, event: Event) {
    match (events.last_mut(), event) {
        (Some(Event::Text(old)), Event::Text(new))
        | (Some(Event::Reasoning(old)), Event::Reasoning(new)) => old.push_str(&new),
        (Some(Event::ToolArguments(i, old)), Event::ToolArguments(j, new)) if *i == j => {
            old.push_str(&new);
        }
        (_, Event::Text(text) | Event::Reasoning(text)) if text.is_empty() => {}
        (_, event) => events.push(event),
    }
}
