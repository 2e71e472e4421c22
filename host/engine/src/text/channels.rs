//! Answers that are messages on channels, OpenAI's harmony: what gpt-oss thinks, says and calls.
//!
//! A message is `<|start|>assistant<|channel|>NAME<|message|>…<|end|>`; the prompt has begun the
//! first one. The channel `analysis` is reasoning, `final` and `commentary` are text, and a message
//! with a recipient (`to=functions.NAME`, before the channel or after it) is a call. Headers and
//! marks are no text. What has no such header is text as it stands, and so is a header that is none.

use super::{
    marks::{cut, partial},
    spans::Piece,
};

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const CONSTRAIN: &str = "<|constrain|>";
const MESSAGE: &str = "<|message|>";
/// What ends a message: the next one's beginning does too.
const ENDS: [&str; 4] = ["<|end|>", "<|return|>", "<|call|>", START];
/// Bytes of a header.
const HEADER: usize = 1024;

/// Whether a special token's text is one of the marks.
pub(super) fn marks(text: &str) -> bool {
    ENDS.contains(&text) || [CHANNEL, CONSTRAIN, MESSAGE].contains(&text)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Thought,
    Text,
    Call(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before a message; the flag: the prompt may have begun its header.
    Between(bool),
    /// Before the first character of a thought that is not white space.
    Opened,
    Thought,
    Text,
    Call,
}

/// Tells the messages apart.
#[derive(Debug)]
pub(super) struct Channels {
    place: Place,
    held: String,
}

impl Channels {
    /// `opened`: the prompt ends inside a thought.
    pub(super) fn new(opened: bool) -> Self {
        let place = if opened { Place::Opened } else { Place::Between(true) };
        Self { place, held: String::new() }
    }

    pub(super) fn thinking(&self) -> bool {
        matches!(self.place, Place::Opened | Place::Thought)
    }

    pub(super) fn push(&mut self, text: &str) -> Vec<Piece> {
        self.held.push_str(text);
        let mut pieces = Vec::new();
        while !self.held.is_empty() && self.advance(&mut pieces) {}
        pieces
    }

    /// Nothing follows; `cut`: because the answer was cut.
    pub(super) fn finish(&mut self, cut: bool) -> Vec<Piece> {
        let held = std::mem::take(&mut self.held);
        let mut pieces = Vec::new();
        match self.place {
            // A header that is not whole says nothing when the answer was cut.
            Place::Between(first) if cut && could_begin(held.trim_start(), first) => {}
            Place::Between(first) if first || !held.trim().is_empty() => {
                pieces.push(Piece::Text(held));
            }
            Place::Between(_) => {}
            Place::Opened | Place::Thought => pieces.push(Piece::Reasoning(held)),
            Place::Text | Place::Call => pieces.push(Piece::Text(held)),
        }
        if self.place == Place::Call && !cut {
            pieces.push(Piece::Close(String::new()));
        }
        pieces
    }

    /// One decision; whether another one may follow at once.
    fn advance(&mut self, pieces: &mut Vec<Piece>) -> bool {
        match self.place {
            Place::Between(first) => self.header(first, pieces),
            Place::Opened => {
                self.held = self.held.trim_start().to_owned();
                if !self.held.is_empty() {
                    self.place = Place::Thought;
                }
                !self.held.is_empty()
            }
            Place::Thought | Place::Text | Place::Call => self.body(pieces),
        }
    }

    fn header(&mut self, first: bool, pieces: &mut Vec<Piece>) -> bool {
        let text = self.held.trim_start();
        let blank = self.held.len() - text.len();
        if !could_begin(text, first) {
            self.place = Place::Text;
            return true;
        }
        if let Some(at) = text.find(MESSAGE)
            && let Some(kind) = kind(cut(text, at).0)
        {
            let (header, rest) = cut(&self.held, blank + at + MESSAGE.len());
            self.place = match kind {
                Kind::Thought => Place::Opened,
                Kind::Text => Place::Text,
                Kind::Call(name) => {
                    pieces.push(Piece::Call(name, header.to_owned()));
                    Place::Call
                }
            };
            self.held = rest.to_owned();
            return true;
        }
        if !text.contains(MESSAGE) && text.len() <= HEADER && !text.contains('\n') {
            return false;
        }
        // It is no header. Its first mark goes out now, so that it is not found again.
        let mark = [START, CHANNEL].into_iter().find(|mark| text.starts_with(mark));
        let (mark, rest) = cut(&self.held, blank + mark.map_or(0, str::len));
        pieces.push(Piece::Text(mark.to_owned()));
        self.held = rest.to_owned();
        self.place = Place::Text;
        true
    }

    fn body(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let thought = self.place == Place::Thought;
        let mut say = |text: &str| {
            if !text.is_empty() {
                let text = text.to_owned();
                pieces.push(if thought { Piece::Reasoning(text) } else { Piece::Text(text) });
            }
        };
        let found = ENDS.iter().filter_map(|end| Some((self.held.find(end)?, *end))).min();
        if let Some((at, end)) = found {
            let (before, rest) = cut(&self.held, at);
            say(if thought { before.trim_end() } else { before });
            let end = if end == START { "" } else { end };
            if self.place == Place::Call {
                pieces.push(Piece::Close(end.to_owned()));
            }
            self.held = cut(rest, end.len()).1.to_owned();
            self.place = Place::Between(false);
            return true;
        }
        let hold = ENDS.iter().map(|end| partial(&self.held, end)).max().unwrap_or(0);
        let mut free = self.held.len() - hold;
        if thought {
            // White space before a mark that may come is not part of the thought.
            free = cut(&self.held, free).0.trim_end().len();
        }
        let (free, rest) = cut(&self.held, free);
        say(free);
        self.held = rest.to_owned();
        false
    }
}

/// Whether a header begins with this text, or could once more of it is there.
fn could_begin(text: &str, first: bool) -> bool {
    let begins = |mark: &str| text.starts_with(mark) || mark.starts_with(text);
    begins(START) || begins(CHANNEL) || (first && begins("to="))
}

/// What a header says, if it is one.
fn kind(header: &str) -> Option<Kind> {
    let header = header.strip_prefix(START).unwrap_or(header);
    let (role, rest) = header.split_once(CHANNEL).unwrap_or((header, ""));
    let rest = rest.replacen(CONSTRAIN, " ", 1);
    let mut recipient = None;
    for word in role.split_whitespace() {
        match word.strip_prefix("to=") {
            Some(name) => recipient = Some(name),
            None if word == "assistant" => {}
            None => return None,
        }
    }
    let mut words = rest.split_whitespace();
    let channel = words.next().unwrap_or("final");
    for word in words {
        match word.strip_prefix("to=") {
            Some(name) => recipient = Some(name),
            // The type of what follows.
            None if word.chars().all(|c| c.is_ascii_alphanumeric()) => {}
            None => return None,
        }
    }
    match (channel, recipient) {
        ("analysis" | "commentary" | "final", Some(name)) => {
            let name = name.strip_prefix("functions.").unwrap_or(name);
            (!name.is_empty() && !name.contains("<|")).then(|| Kind::Call(name.to_owned()))
        }
        ("analysis", None) => Some(Kind::Thought),
        ("commentary" | "final", None) => Some(Kind::Text),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
