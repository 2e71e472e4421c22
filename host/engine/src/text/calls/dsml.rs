//! Calls as DeepSeek V3.2 and V4 write them, in tags with attributes inside the list's marks:
//! `<｜DSML｜invoke name="NAME">`, for each parameter
//! `<｜DSML｜parameter name="KEY" string="true">value</｜DSML｜parameter>`, `</｜DSML｜invoke>`.
//!
//! `string` says whether a value is text or JSON; where it is missing the tool's schema does. A value
//! is what stands between its tags, line ends included. The format is described beside the weights
//! (`encoding_dsv32.py`, `encoding_dsv4.py`, MIT).

use std::sync::Arc;

use gristmill_core::program::ToolFormat;

use super::{
    kinds::{Kinds, Offer},
    scan::{Scan, UNNAMED},
    shape::Shape,
    tagged::{Arguments, closing},
};

/// The attributes of a value.
pub(crate) const STRING: &str = " string=\"true\"";
pub(crate) const JSON: &str = " string=\"false\"";

/// What stands before a name.
pub(crate) fn opening(tag: &str) -> String {
    format!("<{tag} name=\"")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before a call, or the end of the list.
    Begin,
    /// In the function's name.
    Name,
    /// Behind it, in the tag.
    NameEnd,
    /// Between parameters.
    Body,
    /// In a parameter's name.
    Key,
    /// Behind it, in the tag.
    KeyEnd,
    /// In its value.
    Value,
}

#[derive(Debug)]
pub(super) struct Dsml {
    call: String,
    call_end: String,
    parameter: String,
    close: String,
    place: Place,
    /// The tag or name being read.
    word: String,
    name: Option<String>,
    key: String,
    arguments: Arguments,
    /// Bytes since the last value.
    read: usize,
}

impl Dsml {
    pub(super) fn new(format: &ToolFormat, offers: Arc<[Offer]>) -> Self {
        Self {
            call: opening(&format.name_key),
            call_end: closing(&format.name_key),
            parameter: opening(&format.arguments_key),
            close: format.close.trim().to_owned(),
            place: Place::Begin,
            word: String::new(),
            name: None,
            key: String::new(),
            arguments: Arguments::new(offers, closing(&format.arguments_key), false),
            read: 0,
        }
    }

    /// A character of a tag, or white space before one.
    fn tag(&mut self, c: char) -> Scan {
        if self.word.is_empty() && c.is_whitespace() {
            return Scan::More;
        }
        self.word.push(c);
        let inside = self.place == Place::Body;
        let (begin, end) = match inside {
            true => (&self.parameter, &self.call_end),
            false => (&self.call, &self.close),
        };
        if *begin == self.word {
            self.word.clear();
            self.place = if inside { Place::Key } else { Place::Name };
        } else if *end == self.word {
            self.word.clear();
            if !inside {
                return Scan::Done;
            }
            self.read = 0;
            self.arguments.end();
            self.place = Place::Begin;
            return Scan::Object;
        } else if !begin.starts_with(&self.word) && !end.starts_with(&self.word) {
            return Scan::Wrong;
        }
        Scan::More
    }

    /// A character of a name.
    fn named(&mut self, c: char) -> Scan {
        if c != '"' {
            self.word.push(c);
            return if matches!(c, '<' | '>' | '\n') { Scan::Wrong } else { Scan::More };
        }
        if self.word.is_empty() {
            return Scan::Wrong;
        }
        let word = std::mem::take(&mut self.word);
        if self.place == Place::Name {
            self.name = Some(word);
            self.place = Place::NameEnd;
        } else {
            self.key = word;
            self.place = Place::KeyEnd;
        }
        Scan::More
    }

    /// What follows a parameter's name in its tag.
    fn attribute(&mut self, c: char) -> Scan {
        if c != '>' {
            self.word.push(c);
            let may = [STRING, JSON].iter().any(|whole| whole.starts_with(&self.word));
            return if may { Scan::More } else { Scan::Wrong };
        }
        match self.word.as_str() {
            STRING => self.arguments.begin_as(Kinds::TEXT, &self.key),
            JSON => self.arguments.begin_as(Kinds::JSON, &self.key),
            "" => self.arguments.begin(self.name.as_deref(), &self.key),
            _ => return Scan::Wrong,
        }
        self.word.clear();
        self.read = 0;
        self.place = Place::Value;
        Scan::More
    }
}

impl Shape for Dsml {
    fn push(&mut self, c: char) -> Scan {
        if self.place == Place::Value {
            return self.arguments.push(c, &mut self.place, Place::Body);
        }
        if self.place == Place::Begin {
            // What the call before said has been taken.
            (self.name, self.arguments.text) = (None, None);
        }
        self.read += c.len_utf8();
        if self.read > UNNAMED {
            return Scan::Wrong;
        }
        match self.place {
            Place::Name | Place::Key => self.named(c),
            Place::KeyEnd => self.attribute(c),
            Place::NameEnd if c == '>' => {
                self.place = Place::Body;
                Scan::More
            }
            Place::NameEnd => Scan::Wrong,
            _ => self.tag(c),
        }
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn arguments(&mut self) -> &mut Option<String> {
        &mut self.arguments.text
    }

    fn finish(&mut self) {
        if self.place == Place::Body && self.arguments.text.is_some() && self.word.is_empty() {
            self.arguments.end();
        }
    }
}
