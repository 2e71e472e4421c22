//! Tool calls in the answer, shapes `json` and `json-list`, as they are written.
//!
//! A call is announced as soon as its name is known and its arguments have begun, and the
//! arguments are passed on byte for byte; left out, they are `{}`. What stands between the marks
//! must be a JSON object with the name and an object of arguments, and the name must be on offer.
//! If it is not, everything from the opening mark stays text; if that shows only inside the
//! arguments, the call ends there, its arguments as they were written, and what follows is text. Of
//! an answer that is cut the last call may lack its end, and a call that was not announced yet is
//! nothing.

use gristmill_core::{
    event::{Event, ToolStart},
    program::ToolFormat,
};

use super::{
    add,
    marks::{cut, partial},
};

mod scan;

use scan::{Scan, Scanner};

/// Finds calls in text.
#[derive(Debug)]
pub struct Calls {
    format: ToolFormat,
    names: Vec<String>,
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
    scanner: Scanner,
    /// Whether the current object was announced.
    announced: bool,
    /// Whether any object of this opening mark was announced: then `raw` must not come again.
    spoken: bool,
    /// Whether there was an opening mark.
    marked: bool,
}

impl Calls {
    /// Looks for calls of `names` spelled like `format`. Ids begin with `id`.
    #[must_use]
    pub fn new(format: ToolFormat, names: Vec<String>, parallel: bool, id: String) -> Self {
        Self {
            format,
            names,
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

    /// Whether this host has a parser for the shape.
    #[must_use]
    pub fn knows(shape: &str) -> bool {
        matches!(shape, "json" | "json-list")
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
            Place::Call(call) if call.announced => {
                if !cut {
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
        let list = self.format.shape == "json-list";
        if self.format.open.is_empty() {
            // Without a mark only a whole answer can be a call.
            let first = self.held.trim_start().chars().next();
            let begins = first == Some(if list { '[' } else { '{' });
            if first.is_none() && !self.texted {
                return false;
            }
            if begins && !self.texted {
                self.place = Place::Call(Box::new(Call::new(&self.format, String::new())));
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
            self.place = Place::Call(Box::new(Call::new(&self.format, open.to_owned())));
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

    fn read(&mut self, events: &mut Vec<Event>) -> bool {
        let Place::Call(call) = &mut self.place else { return false };
        let mut used = 0;
        let mut verdict = Scan::More;
        for (at, character) in self.held.char_indices() {
            verdict = call.scanner.push(character);
            used = at + character.len_utf8();
            if matches!(verdict, Scan::Wrong) {
                used = at;
                break;
            }
            call.raw.push(character);
            if !call.announced
                && let Some(name) = call.scanner.call()
            {
                if !self.names.iter().any(|known| known == name) {
                    verdict = Scan::Wrong;
                    break;
                }
                let start = ToolStart {
                    index: self.started,
                    id: format!("{}{}", self.id, self.started),
                    name: name.to_owned(),
                };
                events.push(Event::ToolStart(start));
                self.started += 1;
                call.announced = true;
                call.spoken = true;
            }
            if call.announced
                && let Some(arguments) = call.scanner.take_arguments()
            {
                add(events, Event::ToolArguments(self.started - 1, arguments));
            }
            if matches!(verdict, Scan::Object) {
                if !call.announced {
                    verdict = Scan::Wrong;
                    break;
                }
                call.announced = false;
                events.push(Event::ToolEnd(self.started - 1));
                self.completed += 1;
                self.ended = !self.parallel;
                if self.ended {
                    break;
                }
            }
            if matches!(verdict, Scan::Done) {
                break;
            }
        }
        let rest = cut(&self.held, used).1.to_owned();
        match verdict {
            Scan::Wrong => {
                let (announced, spoken) = (call.announced, call.spoken);
                let raw = std::mem::take(&mut call.raw);
                self.place = Place::Text;
                self.held = rest;
                if announced {
                    self.end(events);
                } else if !spoken {
                    // It goes out now, so that its mark is not found again.
                    self.say(&raw, events);
                }
            }
            Scan::Done => {
                self.place = Place::Text;
                self.held = rest;
            }
            Scan::More | Scan::Object => self.held = rest,
        }
        true
    }
}

impl Call {
    fn new(format: &ToolFormat, raw: String) -> Self {
        let marked = !raw.is_empty();
        Self { raw, scanner: Scanner::new(format), announced: false, spoken: false, marked }
    }
}

#[cfg(test)]
mod tests;
