//! Calls as DeepSeek writes them, each between marks of its own inside the list's: V3 and R1
//! `function<｜tool▁sep｜>NAME`, a line end and the arguments in a fence, V3.1 `NAME<｜tool▁sep｜>` and
//! the arguments. Both are read.

use gristmill_core::program::ToolFormat;

use super::{
    scan::{Json, Scan, UNNAMED},
    shape::Shape,
};

/// The marks of one call.
pub(crate) const BEGIN: &str = "<｜tool▁call▁begin｜>";
pub(crate) const SEPARATOR: &str = "<｜tool▁sep｜>";
pub(crate) const END: &str = "<｜tool▁call▁end｜>";
/// What stands around the arguments of the older form.
pub(crate) const FENCES: [&str; 2] = ["```json", "```"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before a call, or the end of the list.
    Begin,
    /// Before the separator.
    Head,
    /// After it: the name, or the arguments already.
    Line,
    /// Before the arguments.
    Fence,
    Arguments,
    /// After them; the flag: a fence was ended.
    End(bool),
}

#[derive(Debug)]
pub(super) struct DeepSeek {
    close: String,
    place: Place,
    /// The mark or name being read.
    word: String,
    name: Option<String>,
    json: Json,
    arguments: Option<String>,
    /// Bytes since the last arguments.
    read: usize,
}

impl DeepSeek {
    pub(super) fn new(format: &ToolFormat) -> Self {
        Self {
            close: format.close.trim().to_owned(),
            place: Place::Begin,
            word: String::new(),
            name: None,
            json: Json::default(),
            arguments: None,
            read: 0,
        }
    }

    fn head(&mut self, c: char) -> Scan {
        self.word.push(c);
        if let Some(head) = self.word.strip_suffix(SEPARATOR) {
            self.name = Some(head.trim().to_owned());
            self.word.clear();
            self.place = Place::Line;
        }
        Scan::More
    }

    fn line(&mut self, c: char) -> Scan {
        let line = self.word.trim();
        match c {
            '{' if line.is_empty() => return self.argument(c),
            '\n' if !line.is_empty() => {
                self.name = Some(line.to_owned());
                self.word.clear();
                self.place = Place::Fence;
            }
            _ => self.word.push(c),
        }
        Scan::More
    }

    /// A fence, or white space, before the arguments.
    fn fence(&mut self, c: char) -> Scan {
        let whole = self.word.is_empty() || FENCES.contains(&self.word.as_str());
        match c {
            '{' if whole => return self.argument(c),
            _ if c.is_whitespace() && whole => self.word.clear(),
            _ => {
                self.word.push(c);
                if !FENCES.iter().any(|fence| fence.starts_with(&self.word)) {
                    return Scan::Wrong;
                }
            }
        }
        Scan::More
    }

    fn argument(&mut self, c: char) -> Scan {
        self.place = Place::Arguments;
        if self.name.as_ref().is_none_or(String::is_empty) || self.json.push(c).is_none() {
            return Scan::Wrong;
        }
        self.word.clear();
        self.arguments.get_or_insert_default().push(c);
        if self.json.depth() > 0 {
            return Scan::More;
        }
        self.json = Json::default();
        self.read = 0;
        self.place = Place::End(false);
        Scan::Object
    }

    /// Before a mark: the list's end, the beginning of a call, the end of one.
    fn mark(&mut self, c: char) -> Scan {
        if self.word.is_empty() && c.is_whitespace() {
            return Scan::More;
        }
        self.word.push(c);
        let word = self.word.as_str();
        let next = match self.place {
            Place::Begin if word == self.close => return Scan::Done,
            Place::Begin if word == BEGIN => Place::Head,
            Place::End(_) if word == END => Place::Begin,
            Place::End(false) if word == "```" => Place::End(true),
            Place::Begin if BEGIN.starts_with(word) || self.close.starts_with(word) => {
                return Scan::More;
            }
            Place::End(_) if END.starts_with(word) => return Scan::More,
            Place::End(false) if "```".starts_with(word) => return Scan::More,
            _ => return Scan::Wrong,
        };
        self.word.clear();
        self.place = next;
        Scan::More
    }
}

impl Shape for DeepSeek {
    fn push(&mut self, c: char) -> Scan {
        if self.place == Place::Arguments {
            return self.argument(c);
        }
        if matches!(self.place, Place::Begin | Place::End(_)) {
            // What the call before said has been taken.
            (self.name, self.arguments) = (None, None);
        }
        self.read += c.len_utf8();
        if self.read > UNNAMED {
            return Scan::Wrong;
        }
        match self.place {
            Place::Head => self.head(c),
            Place::Line => self.line(c),
            Place::Fence => self.fence(c),
            _ => self.mark(c),
        }
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn arguments(&mut self) -> &mut Option<String> {
        &mut self.arguments
    }
}
