//! Constraints without a model: whether one accepts a text, and its masks step by step. For tests,
//! probes and measures; answers go through the guard.

use std::{sync::Arc, thread};

use gristmill_core::{
    Error, Result,
    program::Dialect,
    request::{Constraint, Reasoning, Request},
};
use gristmill_models::Tokenizer;
use llguidance::Matcher;

use super::{
    compile::{Compiled, STACK, from_draft},
    grammar::{Draft, Thoughts, draft, whole},
    trie::Words,
};

/// Compiles constraints over a tokenizer's vocabulary.
#[derive(Debug)]
pub struct Checker {
    tokenizer: Arc<Tokenizer>,
    words: Arc<Words>,
}

/// A compiled constraint.
pub struct Rule {
    tokenizer: Arc<Tokenizer>,
    compiled: Compiled,
}

/// One text on its way through a rule.
pub struct Walk {
    matcher: Matcher,
}

impl Checker {
    /// A checker over a vocabulary.
    ///
    /// # Errors
    /// `internal` when the vocabulary cannot be held.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<Self> {
        let words = Arc::new(Words::new(&tokenizer, tokenizer.ends())?);
        Ok(Self { tokenizer, words })
    }

    /// Compiles a constraint.
    ///
    /// # Errors
    /// `invalid-request` with `field` and `path` for what cannot be enforced; `unsupported`.
    pub fn compile(&self, constraint: &Constraint) -> Result<Rule> {
        self.compiled(whole(constraint)?)
    }

    /// Compiles what binds the answer to a request of a family that speaks like this, from the
    /// answer's beginning; none when nothing does.
    ///
    /// # Errors
    /// As [`Checker::compile`].
    pub fn request(&self, request: &Request, dialect: &Dialect) -> Result<Option<Rule>> {
        let tools = !request.tools.is_empty();
        let may_open = dialect.reasoning.is_some() && request.reasoning != Reasoning::Off;
        let thoughts = Thoughts { opened: false, may_open };
        let draft = draft(request, dialect, tools, &self.tokenizer, thoughts)?;
        draft.map(|draft| self.compiled(draft)).transpose()
    }

    fn compiled(&self, draft: Draft) -> Result<Rule> {
        let words = Arc::clone(&self.words);
        let thread = thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || from_draft(&words, draft))
            .map_err(|error| Error::internal(format!("cannot start a thread: {error}")))?;
        let compiled =
            thread.join().map_err(|_| Error::internal("compiling a grammar met a defect"))??;
        Ok(Rule { tokenizer: Arc::clone(&self.tokenizer), compiled })
    }
}

impl Rule {
    /// Whether a text is a complete answer.
    ///
    /// # Errors
    /// `invalid-request` when the vocabulary cannot spell the text.
    pub fn accepts(&self, text: &str) -> Result<bool> {
        self.takes(text, false)
    }

    /// The same of a text in which marks are the tokens that they spell.
    ///
    /// # Errors
    /// As [`Rule::accepts`].
    pub fn accepts_marked(&self, text: &str) -> Result<bool> {
        self.takes(text, true)
    }

    fn takes(&self, text: &str, marks: bool) -> Result<bool> {
        let tokens = self.tokenizer.encode(text, marks)?;
        let mut walk = self.walk();
        Ok(tokens.iter().all(|token| walk.accept(*token)) && walk.complete())
    }

    /// A walk from the beginning.
    #[must_use]
    pub fn walk(&self) -> Walk {
        Walk { matcher: self.compiled.matcher() }
    }
}

impl Walk {
    /// The tokens that may come next, ends included where the text is complete.
    ///
    /// # Errors
    /// `invalid-request` when a step's bounds are reached.
    pub fn allowed(&mut self) -> Result<Vec<u32>> {
        match self.matcher.compute_mask_or_eos() {
            Ok(mask) => Ok(mask.iter().collect()),
            Err(error) => Err(Error::invalid(format!("the grammar: {error}"))),
        }
    }

    /// Goes on by a token; whether it may come.
    pub fn accept(&mut self, token: u32) -> bool {
        self.matcher.try_consume_tokens(&[token]).is_ok_and(|count| count == 1)
    }

    /// Whether the text may end here.
    pub fn complete(&mut self) -> bool {
        // One that has stopped has ended well or not at all.
        if self.matcher.is_stopped() {
            return self.matcher.stop_reason().is_ok();
        }
        self.matcher.is_accepting().unwrap_or(false)
    }

    /// Whether nothing may follow.
    #[must_use]
    pub fn over(&self) -> bool {
        self.matcher.is_stopped()
    }
}
