//! JSON read one character at a time: enough to know, at each character, whether it can still
//! become a call, what its name is, and which bytes are its arguments.

use gristmill_core::program::ToolFormat;

use super::shape::Shape;

/// Nesting of one call's arguments.
pub(super) const DEPTH: usize = 128;
/// Bytes of a number or word.
pub(super) const WORD: usize = 64 << 10;
/// Bytes of a call that come before its name is known.
pub(super) const UNNAMED: usize = 64 << 10;

/// What a character meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scan {
    /// Nothing is decided.
    More,
    /// Nothing is decided, and this character stands after the arguments that came with it.
    Next,
    /// A call's object is complete; in a list another may follow.
    Object,
    /// A call's object is complete, and so is the closing mark.
    Last,
    /// The closing mark is complete.
    Done,
    /// It is no call, and this character is not part of one.
    Wrong,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// `[`, before the first object of a list.
    List,
    /// `{`; the flag: `]` may stand here instead.
    Object(bool),
    /// `,` or `]`, between the objects of a list.
    Next,
    /// The closing mark.
    Close,
}

/// The state of reading what stands between two marks.
#[derive(Debug)]
pub(super) struct Scanner {
    expect: Option<Expect>,
    list: bool,
    close: Vec<char>,
    closed: usize,
    name_key: String,
    arguments_key: String,
    json: Json,
    /// The key of the outermost object whose value is being read, until the value is complete.
    key: Option<String>,
    name: Option<String>,
    /// Arguments read and not yet taken; none before they begin.
    arguments: Option<String>,
    /// Whether the arguments are complete.
    finished: bool,
    /// The key or name being read, quotes included.
    value: String,
    read: usize,
}

impl Scanner {
    pub(super) fn new(format: &ToolFormat) -> Self {
        let list = format.shape == "json-list";
        Self {
            expect: Some(if list { Expect::List } else { Expect::Object(false) }),
            list,
            close: format.close.trim().chars().collect(),
            closed: 0,
            name_key: format.name_key.clone(),
            arguments_key: format.arguments_key.clone(),
            json: Json::default(),
            key: None,
            name: None,
            arguments: None,
            finished: false,
            value: String::new(),
            read: 0,
        }
    }

    /// After the last object: the closing mark, if there is one.
    fn end(&mut self) -> Scan {
        if self.close.is_empty() {
            return Scan::Done;
        }
        self.expect = Some(Expect::Close);
        Scan::More
    }

    fn inside(&mut self, c: char) -> Scan {
        self.read += 1;
        if self.name.is_none() && self.read > UNNAMED {
            return Scan::Wrong;
        }
        let before = self.json.depth();
        let Some(token) = self.json.push(c) else { return Scan::Wrong };
        let depth = self.json.depth();
        if depth == 0 {
            if self.name.is_none() || (self.arguments.is_some() && !self.finished) {
                return Scan::Wrong;
            }
            if self.arguments.is_none() {
                // A call without parameters may leave them out.
                self.arguments = Some("{}".to_owned());
            }
            self.expect = Some(match (self.list, self.close.is_empty()) {
                (true, _) => Expect::Next,
                (false, true) => Expect::Object(false),
                (false, false) => Expect::Close,
            });
            return Scan::Object;
        }
        match token {
            Token::KeyEnd if depth == 1 => {
                self.value.push(c);
                self.key = serde_json::from_str(&self.value).ok();
                self.value.clear();
                let again = (self.is(&self.name_key) && self.name.is_some())
                    || (self.is(&self.arguments_key) && self.arguments.is_some());
                if again { Scan::Wrong } else { Scan::More }
            }
            Token::Colon if depth == 1 => Scan::More,
            Token::Comma if depth == 1 => {
                self.key = None;
                Scan::More
            }
            _ if depth == 1 && self.json.in_key() => {
                self.value.push(c);
                Scan::More
            }
            _ => self.value(c, token, before, depth),
        }
    }

    fn is(&self, key: &str) -> bool {
        self.key.as_deref() == Some(key)
    }

    /// A character of a value of the outermost object.
    fn value(&mut self, c: char, token: Token, before: usize, depth: usize) -> Scan {
        if self.is(&self.name_key) {
            if self.value.is_empty() && c != '"' {
                return if c.is_whitespace() { Scan::More } else { Scan::Wrong };
            }
            self.value.push(c);
            if token == Token::StringEnd {
                self.name = serde_json::from_str(&self.value).ok();
                self.value.clear();
                self.key = None;
            }
        } else if self.is(&self.arguments_key) {
            if self.arguments.is_none() && c != '{' {
                return if c.is_whitespace() { Scan::More } else { Scan::Wrong };
            }
            self.arguments.get_or_insert_default().push(c);
            if before == 2 && depth == 1 {
                self.finished = true;
                self.key = None;
            }
        }
        Scan::More
    }
}

impl Shape for Scanner {
    fn push(&mut self, c: char) -> Scan {
        let Some(expect) = self.expect else { return self.inside(c) };
        // What the object before said has been taken.
        (self.name, self.arguments) = (None, None);
        if c.is_whitespace() && self.closed == 0 {
            return Scan::More;
        }
        match (expect, c) {
            (Expect::List, '[') => self.expect = Some(Expect::Object(true)),
            (Expect::Object(_), '{') => {
                self.json = Json::default();
                self.key = None;
                self.name = None;
                self.arguments = None;
                self.finished = false;
                self.read = 0;
                self.expect = None;
                return self.inside(c);
            }
            (Expect::Object(true) | Expect::Next, ']') => return self.end(),
            (Expect::Next, ',') => self.expect = Some(Expect::Object(false)),
            (Expect::Close, c) if self.close.get(self.closed) == Some(&c) => {
                self.closed += 1;
                if self.closed == self.close.len() {
                    return Scan::Done;
                }
            }
            _ => return Scan::Wrong,
        }
        Scan::More
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn arguments(&mut self) -> &mut Option<String> {
        &mut self.arguments
    }
}

/// What a character was in the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// Part of a string, number or word, or white space, or a bracket.
    Inside,
    /// The quote that ends a key.
    KeyEnd,
    /// The quote that ends a string value.
    StringEnd,
    Colon,
    Comma,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// A value must begin.
    #[default]
    Value,
    /// A value or `]`.
    ValueOrEnd,
    /// A key must begin.
    Key,
    /// A key or `}`.
    KeyOrEnd,
    /// `:`.
    Colon,
    /// `,` or the end of what is open.
    After,
    /// In a string; the flag: it is a key.
    String(bool),
    /// After a backslash.
    Escape(bool),
    /// After `\u`, with so many digits to come.
    Unicode(bool, u8),
    /// In a number or a word: checked when it ends.
    Word,
    /// Complete.
    Done,
}

/// Whether a number or word is JSON's.
fn word(text: &str) -> bool {
    matches!(text, "true" | "false" | "null") || number(text)
}

/// Whether a number is spelled as JSON spells them; it may be larger than any float.
pub(super) fn number(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (text, power) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && digits(fraction)
        && digits(power.strip_prefix(['+', '-']).unwrap_or(power))
}

/// A JSON checker: a stack of what is open, and a state.
#[derive(Debug, Default)]
pub(super) struct Json {
    open: Vec<char>,
    state: State,
    word: String,
}

impl Json {
    /// Whether a text is one value and no more.
    pub(super) fn whole(text: &str) -> bool {
        let mut json = Self::default();
        let read = text.chars().all(|c| json.push(c).is_some());
        read && match json.state {
            State::Done => true,
            State::After => json.open.is_empty(),
            State::Word => json.open.is_empty() && word(&json.word),
            _ => false,
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    fn in_key(&self) -> bool {
        matches!(self.state, State::String(true) | State::Escape(true) | State::Unicode(true, _))
    }

    /// None: this character cannot stand here.
    pub(super) fn push(&mut self, c: char) -> Option<Token> {
        match self.state {
            State::String(key) => match c {
                '"' => {
                    self.state = if key { State::Colon } else { State::After };
                    return Some(if key { Token::KeyEnd } else { Token::StringEnd });
                }
                '\\' => self.state = State::Escape(key),
                c if (c as u32) < 0x20 => return None,
                _ => {}
            },
            State::Escape(key) => {
                self.state = match c {
                    '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => State::String(key),
                    'u' => State::Unicode(key, 4),
                    _ => return None,
                }
            }
            State::Unicode(key, left) => {
                c.to_digit(16)?;
                self.state =
                    if left > 1 { State::Unicode(key, left - 1) } else { State::String(key) };
            }
            State::Word => {
                if c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.') {
                    self.word.push(c);
                    return (self.word.len() <= WORD).then_some(Token::Inside);
                }
                let word = std::mem::take(&mut self.word);
                if !self::word(&word) {
                    return None;
                }
                self.state = State::After;
                return self.push(c);
            }
            State::Done => return None,
            _ if matches!(c, ' ' | '\t' | '\n' | '\r') => {}
            State::Value | State::ValueOrEnd => match c {
                ']' if self.state == State::ValueOrEnd => self.close('[')?,
                '{' => self.begin(c, State::KeyOrEnd)?,
                '[' => self.begin(c, State::ValueOrEnd)?,
                '"' => self.state = State::String(false),
                c if c.is_ascii_alphanumeric() || c == '-' => {
                    self.state = State::Word;
                    self.word.push(c);
                }
                _ => return None,
            },
            State::Key | State::KeyOrEnd => match c {
                '"' => self.state = State::String(true),
                '}' if self.state == State::KeyOrEnd => self.close('{')?,
                _ => return None,
            },
            State::Colon => {
                if c != ':' {
                    return None;
                }
                self.state = State::Value;
                return Some(Token::Colon);
            }
            State::After => match (c, self.open.last()) {
                (',', Some('{')) => {
                    self.state = State::Key;
                    return Some(Token::Comma);
                }
                (',', Some('[')) => {
                    self.state = State::Value;
                    return Some(Token::Comma);
                }
                ('}', _) => self.close('{')?,
                (']', _) => self.close('[')?,
                _ => return None,
            },
        }
        Some(Token::Inside)
    }

    fn begin(&mut self, c: char, state: State) -> Option<()> {
        if self.open.len() >= DEPTH {
            return None;
        }
        self.open.push(c);
        self.state = state;
        Some(())
    }

    fn close(&mut self, opening: char) -> Option<()> {
        if self.open.pop()? != opening {
            return None;
        }
        self.state = if self.open.is_empty() { State::Done } else { State::After };
        Some(())
    }
}
