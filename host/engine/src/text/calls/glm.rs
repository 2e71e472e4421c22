//! Calls as GLM 4.5 and later write them:
//! `NAME<arg_key>KEY</arg_key><arg_value>value</arg_value>…`, up to the closing mark.
//!
//! A value is what stands between its tags, line ends included. The closing mark ends the call: it
//! alone says that no more arguments follow.

use std::sync::Arc;

use gristmill_core::program::ToolFormat;

use super::{
    kinds::Offer,
    scan::{Scan, UNNAMED},
    shape::Shape,
    tagged::Arguments,
};

/// The tags around keys and values.
pub(crate) const KEY: &str = "<arg_key>";
pub(crate) const KEY_END: &str = "</arg_key>";
pub(crate) const VALUE: &str = "<arg_value>";
pub(crate) const VALUE_END: &str = "</arg_value>";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the function's name, or before it.
    Name,
    /// Between arguments.
    Between,
    /// In a key.
    Key,
    /// Between a key and its value.
    Middle,
    /// In a value.
    Value,
}

#[derive(Debug)]
pub(super) struct Glm {
    close: String,
    place: Place,
    /// The name, key or tag being read.
    word: String,
    name: Option<String>,
    arguments: Arguments,
    /// Bytes since the last value.
    read: usize,
}

impl Glm {
    pub(super) fn new(format: &ToolFormat, offers: Arc<[Offer]>) -> Self {
        Self {
            close: format.close.trim().to_owned(),
            place: Place::Name,
            word: String::new(),
            name: None,
            arguments: Arguments::new(offers, VALUE_END.to_owned(), false),
            read: 0,
        }
    }

    fn named(&mut self, c: char) -> Scan {
        let name = self.word.trim();
        match c {
            '\n' | '<' if !name.is_empty() => {
                self.name = Some(name.to_owned());
                self.word.clear();
                self.place = Place::Between;
                if c == '<' { self.tag(c) } else { Scan::More }
            }
            '<' => Scan::Wrong,
            _ => {
                self.word.push(c);
                Scan::More
            }
        }
    }

    /// A character of a tag, or white space before one.
    fn tag(&mut self, c: char) -> Scan {
        if self.word.is_empty() && c.is_whitespace() {
            return Scan::More;
        }
        self.word.push(c);
        if self.place == Place::Between && self.word == self.close {
            self.arguments.end();
            return Scan::Last;
        }
        let (wanted, next) = match self.place {
            Place::Between => (KEY, Place::Key),
            _ => (VALUE, Place::Value),
        };
        if self.word == wanted {
            self.word.clear();
            self.place = next;
        } else if !(wanted.starts_with(&self.word)
            || (self.place == Place::Between && self.close.starts_with(&self.word)))
        {
            return Scan::Wrong;
        }
        Scan::More
    }

    fn key(&mut self, c: char) -> Scan {
        self.word.push(c);
        let Some(key) = self.word.strip_suffix(KEY_END).map(str::trim) else { return Scan::More };
        if key.is_empty() {
            return Scan::Wrong;
        }
        self.arguments.begin(self.name.as_deref(), key);
        self.word.clear();
        self.read = 0;
        self.place = Place::Middle;
        Scan::More
    }
}

impl Shape for Glm {
    fn push(&mut self, c: char) -> Scan {
        if self.place == Place::Value {
            return self.arguments.push(c, &mut self.place, Place::Between);
        }
        self.read += c.len_utf8();
        if self.read > UNNAMED {
            return Scan::Wrong;
        }
        match self.place {
            Place::Name => self.named(c),
            Place::Key => self.key(c),
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
        if self.place == Place::Between && self.arguments.text.is_some() {
            self.arguments.end();
        }
    }
}
