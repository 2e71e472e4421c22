//! Tool calls in the answer, in the shapes `json`, `json-list`, `xml`, `glm`, `dsml`, `mistral`,
//! `pythonic`, `deepseek`, `kimi` and `harmony`, as they are written.
//!
//! A call is announced as soon as its name is known and its arguments have begun. Arguments that
//! are JSON are passed on byte for byte, others become JSON on the way, in the order they are
//! written; left out, they are `{}`. What stands between the marks must be a call in the family's
//! shape, and the name must be on offer. If it is not, everything from the opening mark stays text;
//! if that shows only inside the arguments, the call ends there, its arguments as far as they were
//! understood, and what follows is text. Of an answer that is cut the last call may lack its end,
//! and a call that was not announced yet is nothing.

use std::sync::Arc;

use gristmill_core::{
    event::{Event, ToolStart},
    program::ToolFormat,
};

use super::{
    add,
    marks::{cut, partial},
};

pub(crate) mod deepseek;
pub(crate) mod dsml;
pub(crate) mod glm;
mod harmony;
mod kinds;
mod literal;
mod mistral;
mod pythonic;
mod scan;
pub(crate) mod shape;
pub(crate) mod tagged;
mod xml;

pub(crate) use kinds::Kinds;
pub use kinds::Offer;
pub(crate) use pythonic::letter;
use scan::Scan;
pub(crate) use shape::HARMONY;
use shape::Reader;

/// Finds calls in text.
#[derive(Debug)]
pub struct Calls {
    format: ToolFormat,
    offers: Arc<[Offer]>,
    parallel: bool,
    id: String,
    started: u32,
    completed: u32,
    place: Place,
    held: String,
    /// Whether any text has been let through.
    texted: bool,
    ended: bool,
}

#[derive(Debug)]
enum Place {
    /// Text, looking for the opening mark.
    Text,
    /// Between the marks: what was read since the opening mark, and how far it is understood.
    Call(Box<Call>),
}

#[derive(Debug)]
struct Call {
    /// Everything from the opening mark, in case it is no call.
    raw: String,
    reader: Reader,
    /// Whether the current object was announced.
    announced: bool,
    /// Whether any object of this opening mark was announced: then `raw` must not come again.
    spoken: bool,
    /// Whether there was an opening mark.
    marked: bool,
    /// Whether nothing but white space followed it.
    empty: bool,
}

impl Calls {
    /// Looks for calls of the tools on offer, spelled like `format`. Ids begin with `id`.
    #[must_use]
    pub fn new(format: ToolFormat, offers: Vec<Offer>, parallel: bool, id: String) -> Self {
        Self {
            format,
            offers: offers.into(),
            parallel,
            id,
            started: 0,
            completed: 0,
            place: Place::Text,
            held: String::new(),
            texted: false,
            ended: false,
        }
    }

    /// Whether this host has a parser for the shape, and a grammar.
    #[must_use]
    pub fn knows(shape: &str) -> bool {
        shape::knows(shape)
    }

    /// Whether the only call that was allowed is over.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Calls that have ended.
    #[must_use]
    pub fn completed(&self) -> u32 {
        self.completed
    }

    /// More text.
    pub fn push(&mut self, text: &str, events: &mut Vec<Event>) {
        self.held.push_str(text);
        while !self.held.is_empty() && !self.ended && self.advance(events) {}
    }

    /// Nothing follows; `cut`: because the answer was cut.
    pub fn finish(&mut self, cut: bool, events: &mut Vec<Event>) {
        match std::mem::replace(&mut self.place, Place::Text) {
            Place::Call(mut call) if call.announced => {
                if !cut {
                    call.reader.finish();
                    if let Some(arguments) = call.reader.take_arguments() {
                        add(events, Event::ToolArguments(self.started - 1, arguments));
                    }
                    self.end(events);
                }
            }
            // A call or list may lack its closing mark: the end of the answer closes it.
            Place::Call(call) if call.spoken || (cut && call.marked) => {}
            Place::Call(call) => self.say(&call.raw, events),
            Place::Text => {}
        }
        let held = std::mem::take(&mut self.held);
        if !self.ended {
            self.say(&held, events);
        }
    }

    /// A message to a function begins; `header` is how it was written.
    pub(super) fn begin(&mut self, name: String, header: String, events: &mut Vec<Event>) {
        if self.ended {
            return;
        }
        if self.offered(&name) {
            self.place = Place::Call(Box::new(Call::new(Reader::body(name), header)));
        } else {
            self.say(&header, events);
        }
    }

    /// A message to a function is over; `mark` is how that was written.
    pub(super) fn close(&mut self, mark: &str, events: &mut Vec<Event>) {
        match std::mem::replace(&mut self.place, Place::Text) {
            _ if self.ended => {}
            Place::Call(call) if call.announced => self.end(events),
            Place::Call(call) if call.spoken => {}
            Place::Call(call) if call.empty => {
                if let Some(name) = call.reader.name() {
                    self.announce(name.to_owned(), events);
                    add(events, Event::ToolArguments(self.started - 1, "{}".to_owned()));
                    self.end(events);
                }
            }
            Place::Call(call) => {
                self.say(&call.raw, events);
                self.say(mark, events);
            }
            Place::Text => self.say(mark, events),
        }
    }

    fn offered(&self, name: &str) -> bool {
        self.offers.iter().any(|offer| offer.name == name)
    }

    fn announce(&mut self, name: String, events: &mut Vec<Event>) {
        let (index, id) = (self.started, format!("{}{}", self.id, self.started));
        events.push(Event::ToolStart(ToolStart { index, id, name }));
        self.started += 1;
    }

    /// The call that was announced last is over.
    fn end(&mut self, events: &mut Vec<Event>) {
        events.push(Event::ToolEnd(self.started - 1));
        self.completed += 1;
        self.ended = !self.parallel;
    }

    /// Text that is not a call; white space alone after a call is dropped, as is any before another.
    fn say(&mut self, text: &str, events: &mut Vec<Event>) {
        if !text.is_empty() && (self.started == 0 || !text.trim().is_empty()) {
            self.texted = true;
            add(events, Event::Text(text.to_owned()));
        }
    }

    fn advance(&mut self, events: &mut Vec<Event>) -> bool {
        match &mut self.place {
            Place::Text => self.look(events),
            Place::Call(_) => self.read(events),
        }
    }

    fn look(&mut self, events: &mut Vec<Event>) -> bool {
        if self.format.shape == HARMONY {
            // The channels say where a call begins.
            let held = std::mem::take(&mut self.held);
            self.say(&held, events);
            return false;
        }
        if self.format.open.is_empty() {
            // Without a mark only a whole answer can be a call.
            let first = self.held.trim_start().chars().next();
            let begins = first == Some(shape::begins(&self.format.shape));
            if first.is_none() && !self.texted {
                return false;
            }
            if begins && !self.texted {
                self.place = Place::Call(Box::new(Call::new(self.reader(), String::new())));
                return true;
            }
            let held = std::mem::take(&mut self.held);
            self.say(&held, events);
            return false;
        }
        if let Some(at) = self.held.find(&self.format.open) {
            let held = std::mem::take(&mut self.held);
            let (before, rest) = cut(&held, at);
            self.say(if self.started > 0 { before.trim_end() } else { before }, events);
            let (open, rest) = cut(rest, self.format.open.len());
            self.place = Place::Call(Box::new(Call::new(self.reader(), open.to_owned())));
            rest.clone_into(&mut self.held);
            return true;
        }
        let mut hold = partial(&self.held, &self.format.open);
        // White space before a mark that may come is not yet text either.
        let (free, _) = cut(&self.held, self.held.len() - hold);
        if self.started > 0 {
            hold += free.len() - free.trim_end().len();
        }
        let held = std::mem::take(&mut self.held);
        let (free, rest) = cut(&held, held.len() - hold);
        self.say(free, events);
        rest.clone_into(&mut self.held);
        false
    }

    fn reader(&self) -> Reader {
        Reader::new(&self.format, &self.offers)
    }

    fn read(&mut self, events: &mut Vec<Event>) -> bool {
        let Place::Call(mut call) = std::mem::replace(&mut self.place, Place::Text) else {
            return false;
        };
        let held = std::mem::take(&mut self.held);
        let mut used = 0;
        let mut verdict = Scan::More;
        for (at, character) in held.char_indices() {
            verdict = call.reader.push(character);
            used = at + character.len_utf8();
            if matches!(verdict, Scan::Wrong) {
                used = at;
                break;
            }
            call.raw.push(character);
            call.empty &= character.is_whitespace();
            if !call.announced
                && let Some(name) = call.reader.call().map(str::to_owned)
            {
                if !self.offered(&name) {
                    verdict = Scan::Wrong;
                    break;
                }
                self.announce(name, events);
                call.announced = true;
                call.spoken = true;
            }
            if call.announced
                && let Some(arguments) = call.reader.take_arguments()
            {
                add(events, Event::ToolArguments(self.started - 1, arguments));
            }
            if matches!(verdict, Scan::Object | Scan::Last) {
                if !call.announced {
                    verdict = Scan::Wrong;
                    break;
                }
                call.announced = false;
                call.reader.settle();
                self.end(events);
                if self.ended {
                    break;
                }
            }
            if matches!(verdict, Scan::Done | Scan::Last) {
                break;
            }
        }
        let rest = cut(&held, used).1.to_owned();
        match verdict {
            Scan::Wrong if call.spoken => {
                // What was read since arguments were taken last is text too.
                self.held = call.reader.take_loose().trim_start().to_owned() + &rest;
                if call.announced {
                    self.end(events);
                }
            }
            Scan::Wrong => {
                self.held = rest;
                // It goes out now, so that its mark is not found again.
                self.say(&call.raw, events);
            }
            Scan::Done | Scan::Last => self.held = rest,
            Scan::More | Scan::Next | Scan::Object => {
                self.held = rest;
                self.place = Place::Call(call);
            }
        }
        true
    }
}

impl Call {
    fn new(reader: Reader, raw: String) -> Self {
        let marked = !raw.is_empty();
        Self { raw, reader, announced: false, spoken: false, marked, empty: true }
    }
}

#[cfg(test)]
mod tests;
