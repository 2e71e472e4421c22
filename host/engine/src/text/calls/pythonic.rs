//! Calls in Python's spelling, as LFM2 writes them: `[name(a="x", b=[1, None])]`. Values become
//! JSON as they are read.
//!
//! The same models write a list of JSON objects between the same marks when their prompt shows it.

use gristmill_core::program::ToolFormat;

use super::{
    literal::{Literal, Step, escaped},
    scan::{Scan, Scanner, UNNAMED},
    shape::Shape,
};

#[derive(Debug)]
enum Place {
    /// Before the list.
    List,
    /// In a function's name, or before the end of the list.
    Name,
    /// In a parameter's name, or before the end of the call.
    Key,
    /// In its value.
    Value(Literal),
    /// After it.
    After,
    /// Between calls.
    Next,
    /// In the closing mark, after so many of its characters.
    Close(usize),
    /// It is a list of JSON objects.
    Json(Box<Scanner>),
}

#[derive(Debug)]
pub(super) struct Pythonic {
    close: String,
    place: Place,
    /// The name being read.
    word: String,
    name: Option<String>,
    arguments: Option<String>,
    /// Whether there was a call.
    called: bool,
    /// Bytes since the last value.
    read: usize,
}

impl Pythonic {
    pub(super) fn new(format: &ToolFormat) -> Self {
        Self {
            close: format.close.trim().to_owned(),
            place: Place::List,
            word: String::new(),
            name: None,
            arguments: None,
            called: false,
            read: 0,
        }
    }

    fn named(&mut self, c: char) -> Scan {
        match c {
            _ if self.word.is_empty() && c.is_whitespace() => {}
            ']' if self.word.is_empty() => return self.end(),
            '{' if self.word.is_empty() && !self.called => return self.json(),
            '(' if !self.word.is_empty() => {
                self.name = Some(std::mem::take(&mut self.word));
                self.place = Place::Key;
            }
            _ if letter(c) => self.word.push(c),
            _ => return Scan::Wrong,
        }
        Scan::More
    }

    fn key(&mut self, c: char) -> Scan {
        let word = self.word.trim_end();
        match c {
            _ if self.word.is_empty() && c.is_whitespace() => {}
            ')' if self.word.is_empty() => return self.complete(),
            '=' if !word.is_empty() => {
                let before = if self.arguments.is_none() { "{" } else { ", " };
                let key = format!("{before}\"{}\": ", escaped(word));
                self.arguments.get_or_insert_default().push_str(&key);
                self.word.clear();
                self.read = 0;
                self.place = Place::Value(Literal::default());
            }
            ' ' => self.word.push(c),
            _ if letter(c) && word.len() == self.word.len() => self.word.push(c),
            _ => return Scan::Wrong,
        }
        Scan::More
    }

    fn after(&mut self, c: char) -> Scan {
        match c {
            _ if c.is_whitespace() => {}
            ',' => self.place = Place::Key,
            ')' => return self.complete(),
            _ => return Scan::Wrong,
        }
        Scan::More
    }

    /// The end of a call.
    fn complete(&mut self) -> Scan {
        let end = if self.arguments.is_none() { "{}" } else { "}" };
        self.arguments.get_or_insert_default().push_str(end);
        (self.called, self.read) = (true, 0);
        self.place = Place::Next;
        Scan::Object
    }

    /// The end of the list.
    fn end(&mut self) -> Scan {
        if self.close.is_empty() {
            return Scan::Done;
        }
        self.place = Place::Close(0);
        Scan::More
    }

    fn json(&mut self) -> Scan {
        let mut json = Box::new(Scanner::new(&ToolFormat {
            open: String::new(),
            close: self.close.clone(),
            shape: "json-list".to_owned(),
            name_key: "name".to_owned(),
            arguments_key: "arguments".to_owned(),
            extras: Vec::new(),
        }));
        json.push('[');
        let verdict = json.push('{');
        self.place = Place::Json(json);
        verdict
    }
}

impl Shape for Pythonic {
    fn push(&mut self, c: char) -> Scan {
        if let Place::Next | Place::Close(_) = self.place {
            // What the call before said has been taken.
            (self.name, self.arguments) = (None, None);
        }
        match &mut self.place {
            Place::Json(json) => return json.push(c),
            Place::Value(value) => {
                let step = value.push(c);
                let json = value.take();
                self.arguments.get_or_insert_default().push_str(&json);
                match step {
                    Step::More => {}
                    Step::Whole => self.place = Place::After,
                    Step::Before => {
                        self.place = Place::After;
                        return match self.after(c) {
                            Scan::More => Scan::Next,
                            verdict => verdict,
                        };
                    }
                    Step::Wrong => return Scan::Wrong,
                }
                return Scan::More;
            }
            _ => {}
        }
        self.read += c.len_utf8();
        if self.read > UNNAMED {
            return Scan::Wrong;
        }
        match self.place {
            Place::Name => self.named(c),
            Place::Key => self.key(c),
            Place::After => self.after(c),
            Place::Close(read) if read > 0 || !c.is_whitespace() => {
                let mut rest = self.close.chars().skip(read);
                match (rest.next() == Some(c), rest.next()) {
                    (false, _) => return Scan::Wrong,
                    (true, None) => return Scan::Done,
                    (true, Some(_)) => self.place = Place::Close(read + 1),
                }
                Scan::More
            }
            _ if c.is_whitespace() => Scan::More,
            Place::List if c == '[' => {
                self.place = Place::Name;
                Scan::More
            }
            Place::Next if c == ',' => {
                self.place = Place::Name;
                Scan::More
            }
            Place::Next if c == ']' => self.end(),
            _ => Scan::Wrong,
        }
    }

    fn name(&self) -> Option<&str> {
        match &self.place {
            Place::Json(json) => json.name(),
            _ => self.name.as_deref(),
        }
    }

    fn arguments(&mut self) -> &mut Option<String> {
        match &mut self.place {
            Place::Json(json) => json.arguments(),
            _ => &mut self.arguments,
        }
    }
}

/// What names are made of.
pub(crate) fn letter(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}
