//! A value between two tags: bare text, whose type the tool's schema gives.
//!
//! Text flows on as it is written. A value of another type is known only when it is whole; text that
//! is nothing of that type is a string after all.

use std::sync::Arc;

use super::{
    super::marks::partial,
    kinds::{Kinds, Offer},
    literal::{Step, escaped},
    scan::Scan,
};

/// Bytes of a value that is not text.
const VALUE: usize = 1 << 20;
/// What ends a tag's inside.
pub(crate) fn closing(tag: &str) -> String {
    format!("</{tag}>")
}

/// How null is spelled.
pub(crate) const NULLS: [&str; 2] = ["null", "None"];

/// The arguments of a call that writes each with its name, as they become one object.
#[derive(Debug)]
pub(super) struct Arguments {
    offers: Arc<[Offer]>,
    value: Tagged,
    /// As far as nobody has taken it; none before it begins.
    pub(super) text: Option<String>,
}

impl Arguments {
    /// `end` and `lines` as a value has them.
    pub(super) fn new(offers: Arc<[Offer]>, end: String, lines: bool) -> Self {
        Self { offers, value: Tagged::new(end, lines), text: None }
    }

    /// The value of this parameter begins.
    pub(super) fn begin(&mut self, function: Option<&str>, parameter: &str) {
        let offer = self.offers.iter().find(|offer| Some(offer.name.as_str()) == function);
        let kinds = offer.map_or_else(Kinds::default, |offer| offer.kinds(parameter));
        self.begin_as(kinds, parameter);
    }

    /// The same, where the model says itself what the value is.
    pub(super) fn begin_as(&mut self, kinds: Kinds, parameter: &str) {
        self.value.begin(kinds);
        let before = if self.text.is_none() { "{" } else { ", " };
        let key = format!("{before}\"{}\": ", escaped(parameter));
        self.text.get_or_insert_default().push_str(&key);
    }

    /// A character of the value or its closing tag; after the last of them `place` is `next`.
    pub(super) fn push<P>(&mut self, c: char, place: &mut P, next: P) -> Scan {
        match self.value.push(c, self.text.get_or_insert_default()) {
            Step::Wrong => return Scan::Wrong,
            Step::Whole => *place = next,
            Step::More | Step::Before => {}
        }
        Scan::More
    }

    /// No more follow.
    pub(super) fn end(&mut self) {
        let end = if self.text.is_none() { "{}" } else { "}" };
        self.text.get_or_insert_default().push_str(end);
    }
}

/// A value.
#[derive(Debug)]
struct Tagged {
    /// The closing tag.
    end: String,
    /// The same with the line end before it, where that is no part of a value.
    line_end: String,
    /// Whether the line ends next to the tags are no part of a value.
    lines: bool,
    kinds: Kinds,
    /// What was read of the value and is not decided.
    held: String,
    /// Whether nothing of the value was read.
    fresh: bool,
    /// Whether a string was begun.
    begun: bool,
}

impl Tagged {
    fn new(end: String, lines: bool) -> Self {
        let line_end = if lines { format!("\n{end}") } else { end.clone() };
        Self {
            end,
            line_end,
            lines,
            kinds: Kinds::default(),
            held: String::new(),
            fresh: true,
            begun: false,
        }
    }

    /// Another value begins.
    fn begin(&mut self, kinds: Kinds) {
        self.kinds = kinds;
        self.held.clear();
        (self.fresh, self.begun) = (true, false);
    }

    /// A character of the value or its closing tag; what is decided goes to `out`.
    fn push(&mut self, c: char, out: &mut String) -> Step {
        let first = std::mem::replace(&mut self.fresh, false);
        if first && self.lines && c == '\n' {
            return Step::More;
        }
        self.held.push(c);
        let mut held = std::mem::take(&mut self.held);
        if let Some(text) = held.strip_suffix(&self.end) {
            let text = if self.lines { text.strip_suffix('\n').unwrap_or(text) } else { text };
            self.complete(text, out);
            return Step::Whole;
        }
        if !self.kinds.text() {
            self.held = held;
            return if self.held.len() > VALUE { Step::Wrong } else { Step::More };
        }
        if self.kinds.nullable() && !self.begun && self.may_be_null(&held) {
            self.held = held;
            return Step::More;
        }
        let hold = partial(&held, &self.line_end).max(partial(&held, &self.end));
        self.held = held.split_off(held.len() - hold);
        self.flow(&held, out);
        Step::More
    }

    fn may_be_null(&self, held: &str) -> bool {
        NULLS.iter().any(|null| match held.strip_prefix(null) {
            Some(rest) => {
                let end = if self.lines { rest.strip_prefix('\n').unwrap_or(rest) } else { rest };
                self.end.starts_with(end)
            }
            None => null.starts_with(held),
        })
    }

    /// Text of a value.
    fn flow(&mut self, text: &str, out: &mut String) {
        if text.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.begun, true) {
            out.push('"');
        }
        out.push_str(&escaped(text));
    }

    /// The last of a value.
    fn complete(&mut self, text: &str, out: &mut String) {
        let converted = if !self.kinds.text() {
            self.kinds.convert(text)
        } else if self.kinds.nullable() && !self.begun && NULLS.contains(&text) {
            Some("null".to_owned())
        } else {
            None
        };
        if let Some(json) = converted {
            out.push_str(&json);
            return;
        }
        if !self.begun {
            out.push('"');
        }
        out.push_str(&escaped(text));
        out.push('"');
    }
}
