//! Calls in tags, as Qwen 3 Coder and Seed-OSS write them:
//! `<function=NAME><parameter=KEY>value</parameter></function>`.
//!
//! A value is bare text; the line ends next to its tags are not part of it. Text flows on as it is
//! written. A value of another type is known only when it is whole; text that is nothing of that
//! type is a string after all.

use std::sync::Arc;

use gristmill_core::program::ToolFormat;

use super::{
    super::marks::partial,
    kinds::{Kinds, Offer},
    literal::escaped,
    scan::{Scan, UNNAMED},
    shape::Shape,
};

/// Bytes of a value that is not text.
const VALUE: usize = 1 << 20;
/// How null is spelled.
const NULLS: [&str; 2] = ["null", "None"];

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
    offers: Arc<[Offer]>,
    function: String,
    function_end: String,
    parameter: String,
    parameter_end: String,
    /// The same with the line end before it, which is no part of a value.
    line_end: String,
    close: String,
    place: Place,
    /// The tag or name being read.
    word: String,
    name: Option<String>,
    arguments: Option<String>,
    kinds: Kinds,
    /// What was read of a value and is not decided.
    value: String,
    /// Whether nothing of the value was read.
    fresh: bool,
    /// Whether the value was begun in the arguments.
    begun: bool,
    /// Bytes since the last value.
    read: usize,
}

impl Xml {
    pub(super) fn new(format: &ToolFormat, offers: Arc<[Offer]>) -> Self {
        let (function, parameter) = (&format.name_key, &format.arguments_key);
        Self {
            offers,
            function: format!("<{function}="),
            function_end: format!("</{function}>"),
            parameter: format!("<{parameter}="),
            parameter_end: format!("</{parameter}>"),
            line_end: format!("\n</{parameter}>"),
            close: format.close.trim().to_owned(),
            place: Place::Begin,
            word: String::new(),
            name: None,
            arguments: None,
            kinds: Kinds::default(),
            value: String::new(),
            fresh: true,
            begun: false,
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
            let end = if self.arguments.is_none() { "{}" } else { "}" };
            self.arguments.get_or_insert_default().push_str(end);
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
        let name = self.name.as_deref();
        let offer = self.offers.iter().find(|offer| Some(offer.name.as_str()) == name);
        self.kinds = offer.map_or_else(Kinds::default, |offer| offer.kinds(&word));
        let before = if self.arguments.is_none() { "{" } else { ", " };
        let key = format!("{before}\"{}\": ", escaped(&word));
        self.arguments.get_or_insert_default().push_str(&key);
        (self.fresh, self.begun, self.read) = (true, false, 0);
        self.place = Place::Value;
        Scan::More
    }

    /// A character of a value.
    fn valued(&mut self, c: char) -> Scan {
        let first = std::mem::replace(&mut self.fresh, false);
        if first && c == '\n' {
            return Scan::More;
        }
        self.value.push(c);
        let mut value = std::mem::take(&mut self.value);
        if let Some(text) = value.strip_suffix(&self.parameter_end) {
            self.complete(text.strip_suffix('\n').unwrap_or(text));
            self.place = Place::Body;
            return Scan::More;
        }
        if !self.kinds.text() {
            self.value = value;
            return if self.value.len() > VALUE { Scan::Wrong } else { Scan::More };
        }
        if self.kinds.nullable() && !self.begun && self.may_be_null(&value) {
            self.value = value;
            return Scan::More;
        }
        let hold = partial(&value, &self.line_end).max(partial(&value, &self.parameter_end));
        self.value = value.split_off(value.len() - hold);
        self.flow(&value);
        Scan::More
    }

    fn may_be_null(&self, value: &str) -> bool {
        NULLS.iter().any(|null| match value.strip_prefix(null) {
            Some(rest) => {
                let end = rest.strip_prefix('\n').unwrap_or(rest);
                self.parameter_end.starts_with(end)
            }
            None => null.starts_with(value),
        })
    }

    /// Text of a value.
    fn flow(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let arguments = self.arguments.get_or_insert_default();
        if !std::mem::replace(&mut self.begun, true) {
            arguments.push('"');
        }
        arguments.push_str(&escaped(text));
    }

    /// The last of a value.
    fn complete(&mut self, text: &str) {
        let converted = if !self.kinds.text() {
            self.kinds.convert(text)
        } else if self.kinds.nullable() && !self.begun && NULLS.contains(&text) {
            Some("null".to_owned())
        } else {
            None
        };
        let arguments = self.arguments.get_or_insert_default();
        if let Some(json) = converted {
            arguments.push_str(&json);
            return;
        }
        if !self.begun {
            arguments.push('"');
        }
        arguments.push_str(&escaped(text));
        arguments.push('"');
    }
}

impl Shape for Xml {
    fn push(&mut self, c: char) -> Scan {
        if matches!(self.place, Place::Begin | Place::Close) {
            // What the function before said has been taken.
            (self.name, self.arguments) = (None, None);
        }
        if self.place == Place::Value {
            return self.valued(c);
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
        &mut self.arguments
    }
}
