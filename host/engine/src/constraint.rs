//! Answers that must look like something: JSON that satisfies a schema, a regular expression, a
//! grammar, calls of tools. The grammars are computed by the `llguidance` crate; here a request is
//! made into one, and a mask of tokens out of it for every step of the answer.
//!
//! What is enforced is enforced exactly: every complete answer satisfies it. What cannot be is
//! refused by name before anything is computed, never weakened. `docs/structured-output.md` lists
//! both.
//!
//! Bounds: schemas and grammars by size and depth, compilation by time, each step by the work the
//! grammar may do; beyond them a request or an answer fails, and only that one.

mod calls;
mod check;
mod compile;
mod formats;
mod gbnf;
mod grammar;
mod guard;
mod pattern;
mod schema;
mod trie;

use std::sync::Arc;

use gristmill_core::{
    Result,
    request::{Reasoning, Request},
};

pub use check::{Checker, Rule, Walk};

use crate::{core::Core, text::Reading};
pub(crate) use compile::Grammars;
use grammar::Thoughts;
use guard::Thought;
pub(crate) use guard::{Allowed, Guard};

/// The guard over a request's answer; none when nothing binds it. `closed`: the prompt ends with a
/// thought that is over already.
///
/// # Errors
/// `invalid-request` with `field` and `path`, `unsupported`.
pub(crate) async fn guard(
    core: &Arc<Core>,
    request: &Request,
    reading: &Reading,
    closed: bool,
) -> Result<Option<Guard>> {
    let tools = reading.tools.is_some();
    let forced = !matches!(
        request.tool_choice,
        gristmill_core::request::ToolChoice::Auto | gristmill_core::request::ToolChoice::None
    );
    let strict = tools && request.tools.iter().any(|tool| tool.strict == Some(true));
    if request.constraint.is_none() && !forced && !strict {
        return Ok(None);
    }
    let mut thought = match &reading.reasoning {
        None => Thought::default(),
        Some(span) => {
            let open = span.open.trim();
            let able = !span.close.is_empty();
            Thought {
                open: open.to_owned(),
                close: span.close.clone(),
                opened: span.open_at_start && able,
                may_open: able
                    && !closed
                    && !open.is_empty()
                    && request.reasoning != Reasoning::Off,
                token: core.tokenizer.id_of(open),
            }
        }
    };
    let thoughts = Thoughts { opened: thought.opened, may_open: thought.may_open };
    let Some((words, compiled)) = compile::compile(core, request, tools, thoughts).await? else {
        return Ok(None);
    };
    if compiled.thinks {
        thought = Thought::default();
    }
    Ok(Some(Guard::new(words, compiled, thought)))
}
