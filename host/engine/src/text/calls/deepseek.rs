//! Calls that each stand between marks of their own inside the list's.
//!
//! DeepSeek V3 and R1 write `function<｜tool▁sep｜>NAME`, a line end and the arguments in a fence,
//! V3.1 `NAME<｜tool▁sep｜>` and the arguments. Both are read. Kimi K2 writes
//! `functions.NAME:0<|tool_call_argument_begin|>` and the arguments; the number is the call's place in
//! the conversation, and the model's own.

use gristmill_core::program::ToolFormat;

use super::{
    scan::{Json, Scan, UNNAMED},
    shape::Shape,
};

/// The marks of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) begin: &'static str,
    /// Between the name and the arguments.
    pub(crate) separator: &'static str,
    pub(crate) end: &'static str,
    /// Whether the name stands between a word and a number.
    pub(crate) numbered: bool,
}

/// As DeepSeek spells them, and Kimi.
pub(crate) const DEEPSEEK: Marks = Marks {
    begin: "<｜tool▁call▁begin｜>",
    separator: "<｜tool▁sep｜>",
    end: "<｜tool▁call▁end｜>",
    numbered: false,
};
pub(crate) const KIMI: Marks = Marks {
    begin: "<|tool_call_begin|>",
    separator: "<|tool_call_argument_begin|>",
    end: "<|tool_call_end|>",
    numbered: true,
};
/// What stands around the arguments of DeepSeek's older form.
pub(crate) const FENCES: [&str; 2] = ["```json", "```"];
/// What stands before a name with a number.
pub(crate) const FUNCTIONS: &str = "functions.";

/// The name in what stands before the separator.
fn name(head: &str, numbered: bool) -> &str {
    let head = head.trim();
    if !numbered {
        return head;
    }
    let head = head.strip_prefix(FUNCTIONS).unwrap_or(head);
    match head.rsplit_once(':') {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name.trim_end(),
        _ => head,
    }
}

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
    marks: Marks,
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
    pub(super) fn new(format: &ToolFormat, marks: Marks) -> Self {
        Self {
            marks,
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
        if let Some(head) = self.word.strip_suffix(self.marks.separator) {
            self.name = Some(name(head, self.marks.numbered).to_owned());
            self.word.clear();
            self.place = Place::Line;
        }
        Scan::More
    }

    fn line(&mut self, c: char) -> Scan {
        let line = self.word.trim();
        match c {
            '{' if line.is_empty() => return self.argument(c),
            _ if self.marks.numbered && !c.is_whitespace() => return Scan::Wrong,
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
        let Marks { begin, end, numbered, .. } = self.marks;
        let next = match self.place {
            Place::Begin if word == self.close => return Scan::Done,
            Place::Begin if word == begin => Place::Head,
            Place::End(_) if word == end => Place::Begin,
            Place::End(false) if word == "```" && !numbered => Place::End(true),
            Place::Begin if begin.starts_with(word) || self.close.starts_with(word) => {
                return Scan::More;
            }
            Place::End(_) if end.starts_with(word) => return Scan::More,
            Place::End(false) if "```".starts_with(word) && !numbered => return Scan::More,
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
