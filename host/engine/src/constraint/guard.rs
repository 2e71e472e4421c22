//! A grammar over a running answer: which tokens may come next, and when nothing more may.
//!
//! While the model thinks it is free, but for ending: an answer that is bound must come. A grammar
//! begins after the thought, or for tools the model may call, after the opening mark it writes by
//! itself. A token that would write past such a mark is not let through; the model then says the
//! mark and what follows in two.

use std::sync::Arc;

use gristmill_core::{Error, Result};
use llguidance::Matcher;
use toktrie::SimpleVob;

use super::{compile::Compiled, trie::Words};

/// How a thought is marked, and whether it may be, or is, open at the beginning.
#[derive(Debug, Clone, Default)]
pub(crate) struct Thought {
    /// Opening and closing mark.
    pub(crate) open: String,
    pub(crate) close: String,
    /// The prompt has opened it.
    pub(crate) opened: bool,
    /// The model may open it.
    pub(crate) may_open: bool,
    /// The token that is the opening mark, where one is.
    pub(crate) token: Option<u32>,
}

/// Tokens that may come next.
pub(crate) enum Allowed {
    /// Every token.
    All,
    /// Every token but those that end the answer.
    AllButEnds,
    /// These.
    Only(SimpleVob),
}

enum Place {
    /// Nothing was written that says whether a thought begins; so many bytes of its mark were.
    Opening(usize),
    Thinking,
    /// Free text, in which the opening mark of a call is looked for.
    Watching,
    /// The grammar holds.
    Bound,
    /// Free, and nothing is looked for any more.
    Free,
    Over,
}

/// One answer's grammar.
pub(crate) struct Guard {
    words: Arc<Words>,
    compiled: Arc<Compiled>,
    matcher: Matcher,
    thought: Thought,
    place: Place,
    /// What was written, as far as a mark could begin in it.
    tail: Vec<u8>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    pub(super) fn new(words: Arc<Words>, compiled: Arc<Compiled>, thought: Thought) -> Self {
        let matcher = compiled.matcher();
        let mut guard =
            Self { words, compiled, matcher, thought, place: Place::Bound, tail: Vec::new() };
        guard.place = if guard.thought.opened {
            Place::Thinking
        } else if guard.thought.may_open {
            Place::Opening(0)
        } else {
            guard.answer()
        };
        guard
    }

    /// Where the answer itself begins.
    fn answer(&self) -> Place {
        if self.compiled.after.is_some() { Place::Watching } else { Place::Bound }
    }

    /// Whether the answer is complete and nothing may follow.
    pub(crate) fn over(&self) -> bool {
        matches!(self.place, Place::Over)
    }

    /// Whether the grammar holds for the next token.
    pub(crate) fn binds(&self) -> bool {
        matches!(self.place, Place::Bound)
    }

    /// Which tokens may come next.
    ///
    /// # Errors
    /// `invalid-request` when the grammar has become too large, or nothing can follow.
    pub(crate) fn allowed(&mut self) -> Result<Allowed> {
        Ok(match self.place {
            Place::Thinking => Allowed::AllButEnds,
            Place::Watching | Place::Free | Place::Over => Allowed::All,
            Place::Bound => Allowed::Only(self.mask()?),
            // The model may think first, or call, or just speak: only an answer is bound.
            Place::Opening(0) if self.compiled.after.is_some() => Allowed::All,
            Place::Opening(done) => {
                let mut mask = match done {
                    0 => self.mask()?,
                    _ => self.words.factory().tok_env().tok_trie().alloc_token_set(),
                };
                let open = self.thought.open.as_bytes();
                let left = open.get(done..).unwrap_or_default();
                for length in 1..=left.len() {
                    if let Some(token) = left.get(..length).and_then(|text| self.words.token(text))
                    {
                        mask.allow_token(token);
                    }
                }
                if let (0, Some(token)) = (done, self.thought.token) {
                    mask.allow_token(token);
                }
                Allowed::Only(mask)
            }
        })
    }

    fn mask(&mut self) -> Result<SimpleVob> {
        self.matcher.compute_mask().map_err(|error| broken(&error.to_string()))
    }

    /// Whether a token that is among the allowed may really come: it does not write past a mark.
    pub(crate) fn admits(&mut self, token: u32, bytes: &[u8]) -> bool {
        match self.place {
            Place::Thinking => {
                self.after(self.thought.close.as_bytes(), bytes).is_none_or(|rest| blank(&rest))
            }
            Place::Watching => match self.compiled.after.as_deref() {
                Some("") if begins(bytes) => {
                    self.matcher.validate_tokens(&[token]).is_ok_and(|count| count == 1)
                }
                Some("") | None => true,
                Some(mark) => self.after(mark.as_bytes(), bytes).is_none_or(|rest| blank(&rest)),
            },
            _ => true,
        }
    }

    /// What comes behind a mark that these bytes complete.
    fn after(&self, mark: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
        let text = [&self.tail, bytes].concat();
        let at = find(&text, mark)?;
        text.get(at + mark.len()..).map(<[u8]>::to_vec)
    }

    /// Takes note of the token that came.
    ///
    /// # Errors
    /// As [`Guard::allowed`].
    pub(crate) fn accept(&mut self, token: u32, bytes: &[u8]) -> Result<()> {
        match self.place {
            Place::Opening(done) => return self.opening(done, token, bytes),
            Place::Thinking => {
                if self.after(self.thought.close.as_bytes(), bytes).is_some() {
                    self.tail.clear();
                    self.place = self.answer();
                } else {
                    self.remember(bytes, self.thought.close.len());
                }
            }
            Place::Watching => self.watch(token, bytes)?,
            Place::Bound => self.bound(token)?,
            Place::Free | Place::Over => {}
        }
        Ok(())
    }

    fn remember(&mut self, bytes: &[u8], mark: usize) {
        self.tail.extend_from_slice(bytes);
        let spare = self.tail.len().saturating_sub(mark);
        self.tail.drain(..spare);
    }

    fn opening(&mut self, done: usize, token: u32, bytes: &[u8]) -> Result<()> {
        let lazy = self.compiled.after.is_some();
        let taken = !lazy && done == 0 && self.takes(token);
        let open = self.thought.open.as_bytes();
        let left = open.get(done..).unwrap_or_default();
        let whole = done == 0 && Some(token) == self.thought.token;
        if whole || bytes == left {
            self.place = Place::Thinking;
        } else if !bytes.is_empty() && left.starts_with(bytes) && !taken {
            self.place = Place::Opening(done + bytes.len());
        } else if lazy && done == 0 && blank(bytes) {
            // Still nothing that says what it will be.
        } else {
            self.tail.clear();
            self.tail.extend_from_slice(open.get(..done).unwrap_or_default());
            self.place = self.answer();
            return self.accept(token, bytes);
        }
        Ok(())
    }

    fn takes(&mut self, token: u32) -> bool {
        self.matcher.validate_tokens(&[token]).is_ok_and(|count| count == 1)
    }

    fn watch(&mut self, token: u32, bytes: &[u8]) -> Result<()> {
        let Some(mark) = self.compiled.after.clone() else { return Ok(()) };
        if mark.is_empty() {
            // Without a mark only a whole answer can be a call.
            if begins(bytes) {
                self.place = Place::Bound;
                return self.bound(token);
            }
            if !blank(bytes) {
                self.place = Place::Free;
            }
        } else if self.after(mark.as_bytes(), bytes).is_some() {
            self.tail.clear();
            self.place = Place::Bound;
        } else {
            self.remember(bytes, mark.len());
        }
        Ok(())
    }

    fn bound(&mut self, token: u32) -> Result<()> {
        self.matcher.consume_token(token).map_err(|error| broken(&error.to_string()))?;
        if !self.matcher.is_stopped() {
            return Ok(());
        }
        self.place = match self.compiled.after.as_deref() {
            // A call is complete; another one may follow, or text.
            Some(mark) if !mark.is_empty() => {
                self.matcher = self.compiled.matcher();
                Place::Watching
            }
            _ => Place::Over,
        };
        Ok(())
    }
}

fn broken(message: &str) -> Error {
    let what = if message.contains("TooComplex") || message.contains("limit") {
        "has become too large for this answer"
    } else {
        "does not allow the answer to go on"
    };
    tracing::debug!(message, "a grammar failed");
    Error::invalid(format!("the grammar {what}")).with("field", "constraint")
}

fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
    (!mark.is_empty()).then(|| text.windows(mark.len()).position(|window| window == mark))?
}

fn blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

/// Whether a call without a mark begins here.
fn begins(bytes: &[u8]) -> bool {
    matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'['))
}
