//! Calls in tags, as Qwen 3 Coder and Seed-OSS write them:
//! `<function=NAME><parameter=KEY>value</parameter></function>`.
//!
//! The line ends next to a value's tags are not part of it.

use std::sync::Arc;

use gristmill_core::program::ToolFormat;

use super::{
    kinds::Offer,
    scan::{Scan, UNNAMED},
    shape::Shape,
    tagged::{Arguments, closing},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the function's tag.
    Begin,
    /// In the function's name.
    Name,
    /// Between parameters.
    Body,
    /// In a parameter's name.
    Key,
    /// In its value.
    Value,
    /// Before the closing mark.
    Close,
}

#[derive(Debug)]
pub(super) struct Xml {
    function: String,
    function_end: String,
    parameter: String,
    close: String,
    place: Place,
    /// The tag or name being read.
    word: String,
    name: Option<String>,
    arguments: Arguments,
    /// Bytes since the last value.
    read: usize,
}

impl Xml {
    pub(super) fn new(format: &ToolFormat, offers: Arc<[Offer]>) -> Self {
        let (function, parameter) = (&format.name_key, &format.arguments_key);
        Self {
            function: format!("<{function}="),
            function_end: closing(function),
            parameter: format!("<{parameter}="),
            close: format.close.trim().to_owned(),
            place: Place::Begin,
            word: String::new(),
            name: None,
            arguments: Arguments::new(offers, closing(parameter), true),
            read: 0,
        }
    }

    /// A character of a tag, or white space before one.
    fn tag(&mut self, c: char) -> Scan {
        if self.word.is_empty() && c.is_whitespace() {
            return Scan::More;
        }
        self.word.push(c);
        let (one, other) = match self.place {
            Place::Begin => (&self.function, None),
            Place::Close => (&self.close, None),
            _ => (&self.parameter, Some(&self.function_end)),
        };
        if *one == self.word {
            self.word.clear();
            self.place = match self.place {
                Place::Begin => Place::Name,
                Place::Close => return Scan::Done,
                _ => Place::Key,
            };
        } else if other == Some(&self.word) {
            self.word.clear();
            self.read = 0;
            self.arguments.end();
            self.place = if self.close.is_empty() { Place::Begin } else { Place::Close };
            return Scan::Object;
        } else if !one.starts_with(&self.word)
            && !other.is_some_and(|other| other.starts_with(&self.word))
        {
            return Scan::Wrong;
        }
        Scan::More
    }

    /// A character of a name.
    fn named(&mut self, c: char) -> Scan {
        if c != '>' {
            self.word.push(c);
            return if matches!(c, '<' | '\n') { Scan::Wrong } else { Scan::More };
        }
        if self.word.is_empty() {
            return Scan::Wrong;
        }
        let word = std::mem::take(&mut self.word);
        if self.place == Place::Name {
            self.name = Some(word);
            self.place = Place::Body;
            return Scan::More;
        }
        self.arguments.begin(self.name.as_deref(), &word);
        self.read = 0;
        self.place = Place::Value;
        Scan::More
    }
}

impl Shape for Xml {
    fn push(&mut self, c: char) -> Scan {
        if matches!(self.place, Place::Begin | Place::Close) {
            // What the function before said has been taken.
            (self.name, self.arguments.text) = (None, None);
        }
        if self.place == Place::Value {
            return self.arguments.push(c, &mut self.place, Place::Body);
        }
        self.read += c.len_utf8();
        if self.read > UNNAMED {
            return Scan::Wrong;
        }
        match self.place {
            Place::Name | Place::Key => self.named(c),
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
