//! Reasoning between marks.
//!
//! An opening mark counts only at the beginning of the answer (after white space): later it is
//! text, as any text that happens to contain it. White space next to the marks belongs to neither
//! side.

use gristmill_core::program::Span;

use super::marks::{cut, partial};

/// A stretch of what the model wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Inside the marks.
    Reasoning(String),
    /// Outside.
    Text(String),
    /// The beginning of a message to a function: its name, and the header as it was written. Its
    /// body follows as text.
    Call(String, String),
    /// The end of such a message, as it was written.
    Close(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first character that is not white space.
    Start,
    /// After the opening mark, before the first character of the reasoning.
    Opened,
    Inside,
    /// After the closing mark, before the first character of the answer.
    Closed,
    Outside,
}

/// Tells reasoning from text.
#[derive(Debug)]
pub(super) struct Spans {
    span: Span,
    place: Place,
    held: String,
}

impl Spans {
    pub(super) fn new(span: Span) -> Self {
        let place = match (span.open_at_start, span.close.is_empty()) {
            (_, true) => Place::Outside,
            (true, false) => Place::Opened,
            (false, false) => Place::Start,
        };
        Self { span, place, held: String::new() }
    }

    pub(super) fn inside(&self) -> bool {
        matches!(self.place, Place::Opened | Place::Inside)
    }

    pub(super) fn push(&mut self, text: &str) -> Vec<Piece> {
        self.held.push_str(text);
        let mut pieces = Vec::new();
        while self.advance(&mut pieces) {}
        pieces
    }

    pub(super) fn finish(&mut self) -> Vec<Piece> {
        let held = std::mem::take(&mut self.held);
        match self.place {
            _ if held.is_empty() => Vec::new(),
            Place::Opened | Place::Inside => vec![Piece::Reasoning(held)],
            Place::Closed if held.trim().is_empty() => Vec::new(),
            _ => vec![Piece::Text(held)],
        }
    }

    /// One decision; whether another one may follow at once.
    fn advance(&mut self, pieces: &mut Vec<Piece>) -> bool {
        match self.place {
            Place::Start => self.start(),
            Place::Opened | Place::Closed => {
                let inside = self.place == Place::Opened;
                self.held = self.held.trim_start().to_owned();
                if self.held.is_empty() {
                    return false;
                }
                self.place = if inside { Place::Inside } else { Place::Outside };
                true
            }
            Place::Inside => {
                if let Some(at) = self.held.find(&self.span.close) {
                    let (before, rest) = cut(&self.held, at);
                    let rest = cut(rest, self.span.close.len()).1.to_owned();
                    let before = before.trim_end();
                    if !before.is_empty() {
                        pieces.push(Piece::Reasoning(before.to_owned()));
                    }
                    self.held = rest;
                    self.place = Place::Closed;
                    return true;
                }
                // White space at the end is held too: the mark may follow it.
                let mark = self.held.len() - partial(&self.held, &self.span.close);
                let free = cut(&self.held, mark).0.trim_end().len();
                let (free, rest) = cut(&self.held, free);
                if !free.is_empty() {
                    pieces.push(Piece::Reasoning(free.to_owned()));
                }
                self.held = rest.to_owned();
                false
            }
            Place::Outside => {
                if !self.held.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut self.held)));
                }
                false
            }
        }
    }

    fn start(&mut self) -> bool {
        let text = self.held.trim_start();
        let open = self.span.open.trim();
        if text.is_empty() || (open.len() > text.len() && open.starts_with(text)) {
            return false;
        }
        match text.strip_prefix(open) {
            Some(rest) if !open.is_empty() => {
                self.held = rest.to_owned();
                self.place = Place::Opened;
            }
            _ => self.place = Place::Outside,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(open_at_start: bool, cuts: usize, text: &str) -> (String, String) {
        let span = Span { open: "<think>".into(), close: "</think>".into(), open_at_start };
        let mut spans = Spans::new(span);
        let characters: Vec<char> = text.chars().collect();
        let mut pieces: Vec<Piece> = characters
            .chunks(cuts)
            .flat_map(|chunk| spans.push(&chunk.iter().collect::<String>()))
            .collect();
        pieces.extend(spans.finish());
        let (mut reasoning, mut answer) = (String::new(), String::new());
        for piece in pieces {
            match piece {
                Piece::Reasoning(text) => reasoning.push_str(&text),
                Piece::Text(text) => answer.push_str(&text),
                other => panic!("unexpected {other:?}"),
            }
        }
        (reasoning, answer)
    }

    #[test]
    fn reasoning_is_told_from_text_however_it_is_cut() {
        let cases = [
            (false, "<think>\nwhy? because\n</think>\n\nyes", "why? because", "yes"),
            (false, "  <think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
            (false, "no marks <think>", "", "no marks <think>"),
            (false, "<thin air", "", "<thin air"),
            (false, "<think>never closed </thi", "never closed </thi", ""),
            (true, "already open\n\n</think>\n\nyes ", "already open", "yes "),
            (true, "</think>nothing", "", "nothing"),
            (false, "<think></think>", "", ""),
            (false, " plain", "", " plain"),
        ];
        for (open, text, reasoning, answer) in cases {
            for cuts in 1..9 {
                let expected = (reasoning.to_owned(), answer.to_owned());
                assert_eq!(read(open, cuts, text), expected, "{text:?} cut by {cuts}");
            }
        }
    }
}
