//! A value in Python's spelling, made into JSON one character at a time: strings in either quote,
//! numbers, `True`, `False` and `None`, lists and dictionaries. JSON's own words are taken too:
//! models mix them.

use super::scan::{self, DEPTH, WORD};

/// What a character meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing is decided.
    More,
    /// The value is complete with this character.
    Whole,
    /// It was complete before this character.
    Before,
    /// This character cannot stand here.
    Wrong,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// A value must begin.
    #[default]
    Value,
    /// A value or `]`.
    ValueOrEnd,
    /// A key or `}`.
    Key,
    Colon,
    /// `,` or the end of what is open.
    After,
    /// In a string with this quote.
    Text(char),
    Escape(char),
    /// In the hexadecimal digits of an escape: so many to come, and their value so far.
    Code(char, u8, u32),
    /// The same, octal, where fewer may come.
    Octal(char, u8, u32),
    /// In a number or word.
    Word,
    Whole,
}

#[derive(Debug)]
struct Open {
    dictionary: bool,
    /// Whether it has anything in it.
    any: bool,
}

#[derive(Debug, Default)]
pub(super) struct Literal {
    open: Vec<Open>,
    state: State,
    /// Whether the string or word is a key.
    key: bool,
    word: String,
    /// The first half of a pair of surrogates.
    high: Option<u32>,
    out: String,
}

/// A whole text as JSON, if it is a value.
pub(super) fn convert(text: &str) -> Option<String> {
    let mut literal = Literal::default();
    for c in text.chars() {
        if matches!(literal.push(c), Step::Wrong | Step::Before) {
            return None;
        }
    }
    // Anything after a number or word shows that it is complete.
    let whole = literal.state == State::Whole || literal.push(' ') == Step::Before;
    whole.then_some(literal.out)
}

/// Text as the inside of a JSON string.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| escape(c, &mut out));
    out
}

fn escape(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
        c => out.push(c),
    }
}

impl Literal {
    /// What became of it since the last time.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    pub(super) fn push(&mut self, c: char) -> Step {
        match self.state {
            State::Text(quote) if c == quote => {
                self.flush();
                self.out.push('"');
                return self.complete();
            }
            State::Text(quote) if c == '\\' => self.state = State::Escape(quote),
            State::Text(_) => self.character(c),
            State::Escape(quote) => self.escape(c, quote),
            State::Code(quote, left, code) => {
                let Some(digit) = c.to_digit(16) else { return Step::Wrong };
                let code = code.saturating_mul(16).saturating_add(digit);
                self.state = State::Code(quote, left - 1, code);
                if left == 1 {
                    self.state = State::Text(quote);
                    return self.unit(code);
                }
            }
            State::Octal(quote, left, code) => match c.to_digit(8) {
                Some(digit) if left > 0 => {
                    self.state = State::Octal(quote, left - 1, code * 8 + digit);
                }
                _ => {
                    self.state = State::Text(quote);
                    return match self.unit(code) {
                        Step::More => self.push(c),
                        step => step,
                    };
                }
            },
            State::Word if c.is_alphanumeric() || matches!(c, '+' | '-' | '.' | '_') => {
                self.word.push(c);
                return if self.word.len() > WORD { Step::Wrong } else { Step::More };
            }
            State::Word => {
                let Some(word) = word(&self.word) else { return Step::Wrong };
                self.word.clear();
                let quote = if self.key { "\"" } else { "" };
                self.out.push_str(&format!("{quote}{word}{quote}"));
                return match self.complete() {
                    Step::Whole => Step::Before,
                    _ => self.push(c),
                };
            }
            State::Whole => return Step::Before,
            _ if c.is_whitespace() => {}
            State::Value | State::ValueOrEnd => return self.begin(c),
            State::Key if c == '}' => return self.close(c),
            State::Key => {
                self.separate();
                self.key = true;
                return self.scalar(c);
            }
            State::Colon if c == ':' => {
                self.out.push_str(": ");
                self.state = State::Value;
            }
            State::Colon => return Step::Wrong,
            State::After if c == ',' => {
                let dictionary = self.open.last().is_some_and(|open| open.dictionary);
                self.state = if dictionary { State::Key } else { State::ValueOrEnd };
            }
            State::After => return self.close(c),
        }
        Step::More
    }

    fn begin(&mut self, c: char) -> Step {
        if c == ']' && self.state == State::ValueOrEnd {
            return self.close(c);
        }
        if self.state == State::ValueOrEnd {
            self.separate();
        }
        if !matches!(c, '[' | '{') {
            self.key = false;
            return self.scalar(c);
        }
        if self.open.len() >= DEPTH {
            return Step::Wrong;
        }
        let dictionary = c == '{';
        self.open.push(Open { dictionary, any: false });
        self.out.push(c);
        self.state = if dictionary { State::Key } else { State::ValueOrEnd };
        Step::More
    }

    /// The comma before a member, now that there is one.
    fn separate(&mut self) {
        if let Some(open) = self.open.last_mut()
            && std::mem::replace(&mut open.any, true)
        {
            self.out.push_str(", ");
        }
    }

    /// The beginning of a string, number or word.
    fn scalar(&mut self, c: char) -> Step {
        match c {
            '"' | '\'' => {
                self.out.push('"');
                self.state = State::Text(c);
            }
            c if c.is_alphanumeric() || matches!(c, '+' | '-' | '.') => {
                self.word.push(c);
                self.state = State::Word;
            }
            _ => return Step::Wrong,
        }
        Step::More
    }

    fn close(&mut self, c: char) -> Step {
        let Some(open) = self.open.pop() else { return Step::Wrong };
        if c != if open.dictionary { '}' } else { ']' } {
            return Step::Wrong;
        }
        self.out.push(c);
        self.key = false;
        self.complete()
    }

    /// A key or value is complete.
    fn complete(&mut self) -> Step {
        self.state = match (self.open.is_empty(), self.key) {
            (true, _) => State::Whole,
            (false, true) => State::Colon,
            (false, false) => State::After,
        };
        if self.open.is_empty() { Step::Whole } else { Step::More }
    }

    fn escape(&mut self, c: char, quote: char) {
        self.state = State::Text(quote);
        match c {
            'n' => self.character('\n'),
            'r' => self.character('\r'),
            't' => self.character('\t'),
            'a' => self.character('\u{7}'),
            'b' => self.character('\u{8}'),
            'v' => self.character('\u{b}'),
            'f' => self.character('\u{c}'),
            '\\' | '\'' | '"' => self.character(c),
            // The line goes on.
            '\n' => {}
            'x' => self.state = State::Code(quote, 2, 0),
            'u' => self.state = State::Code(quote, 4, 0),
            'U' => self.state = State::Code(quote, 8, 0),
            '0'..='7' => self.state = State::Octal(quote, 2, c.to_digit(8).unwrap_or(0)),
            // To Python it is no escape.
            c => {
                self.character('\\');
                self.character(c);
            }
        }
    }

    /// A character by its number, or half of one.
    fn unit(&mut self, code: u32) -> Step {
        match (code, self.high) {
            (0xd800..0xdc00, _) => {
                self.flush();
                self.high = Some(code);
            }
            (0xdc00..0xe000, Some(high)) => {
                self.high = None;
                let both = 0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00);
                self.character(char::from_u32(both).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            (0xdc00..0xe000, None) => self.character(char::REPLACEMENT_CHARACTER),
            _ => match char::from_u32(code) {
                Some(c) => self.character(c),
                None => return Step::Wrong,
            },
        }
        Step::More
    }

    fn character(&mut self, c: char) {
        self.flush();
        escape(c, &mut self.out);
    }

    /// Half a character whose other half did not come.
    fn flush(&mut self) {
        if self.high.take().is_some() {
            self.out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// A number or word as JSON. A number that JSON writes the same way stays as it is.
fn word(text: &str) -> Option<String> {
    match text {
        "True" | "true" => return Some("true".to_owned()),
        "False" | "false" => return Some("false".to_owned()),
        "None" | "null" => return Some("null".to_owned()),
        _ => {}
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.starts_with('_') || digits.ends_with('_') || digits.contains("__") {
        return None;
    }
    let mut digits = digits.replace('_', "");
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(number) = digits.to_ascii_lowercase().strip_prefix(prefix) {
            let plain = number.starts_with(|c: char| c.is_digit(radix));
            let number = u64::from_str_radix(number, radix).ok().filter(|_| plain)?;
            return Some(format!("{sign}{number}"));
        }
    }
    if digits.starts_with('.') {
        digits.insert(0, '0');
    }
    if digits.ends_with('.') {
        digits.push('0');
    }
    let number = format!("{sign}{digits}");
    let valid = digits.starts_with(|c: char| c.is_ascii_digit()) && scan::number(&number);
    valid.then_some(number)
}
