//! What an answer must look like, as a grammar: the request's own constraint, the calls of tools in
//! the family's spelling, or both.

use gristmill_core::{
    Error, Result,
    program::Dialect,
    request::{Constraint, Request, ToolChoice},
};
use gristmill_models::Tokenizer;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Map, Value, json};

use super::{
    calls::{Calls, harmony::Harmony},
    gbnf, pattern,
    schema::{Exact, exact},
};
use crate::text::Reading;

/// Bytes of a grammar or regular expression.
const BYTES: usize = 128 * 1024;

/// A grammar, and what can be blamed when the engine refuses it.
pub(super) struct Draft {
    pub(super) grammar: TopLevelGrammar,
    /// The field it came from.
    pub(super) field: String,
    /// Its schemas, with their fields.
    pub(super) schemas: Vec<(String, Exact)>,
    /// Bytes after which it begins; none: with the answer.
    pub(super) after: Option<String>,
    /// Whether thoughts are a part of it.
    pub(super) thinks: bool,
}

/// What is known of the answer's thought.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Thoughts {
    /// The prompt has opened one.
    pub(crate) opened: bool,
    /// The model may open one.
    pub(crate) may_open: bool,
}

/// The grammar of a request; none when nothing binds its answer. `tools`: some are on offer.
///
/// # Errors
/// `invalid-request` or `unsupported`, with what cannot be enforced.
pub(super) fn draft(
    request: &Request,
    dialect: &Dialect,
    tools: bool,
    tokenizer: &Tokenizer,
    thoughts: Thoughts,
) -> Result<Option<Draft>> {
    let forced = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Named(_));
    let calls = match dialect.tools.as_ref().filter(|_| tools) {
        Some(format) => Some(Calls::new(request, format, tokenizer)?),
        None => None,
    };
    if forced && calls.is_none() {
        return Err(Error::invalid("`tool_choice` asks for a call, but there are no tools")
            .with("field", "tool_choice"));
    }
    let answer = request.constraint.as_ref().filter(|_| !forced);
    if calls.is_some()
        && let Some(constraint) = answer
        && !matches!(constraint, Constraint::JsonObject | Constraint::JsonSchema(_))
    {
        let message = "a regular expression or grammar and tools cannot bind one answer: set `tool_choice` to `none`";
        return Err(Error::unsupported(message).with("field", "constraint"));
    }
    if Reading::on_channels(dialect)
        && let Some(harmony) = Harmony::new(tokenizer, thoughts)
    {
        return harmony.draft(calls, answer, forced);
    }
    if Reading::on_channels(dialect) && calls.is_some() {
        let message = "tool calls on channels need a vocabulary with the channels' marks";
        return Err(Error::unsupported(message).with("field", "tools"));
    }
    match (calls, answer) {
        (Some(calls), _) if forced => calls.forced().map(Some),
        (None, Some(constraint)) => whole(constraint).map(Some),
        (Some(calls), Some(constraint)) => calls.or(constraint).map(Some),
        (Some(calls), None) if calls.strict() => calls.after_the_mark().map(Some),
        _ => Ok(None),
    }
}

/// How JSON is written: white space between its parts, but no more of it than indentation needs,
/// and one spelling for each character, so that no name can be said in two ways.
fn options() -> Value {
    json!({
        "whitespace_flexible": true,
        "whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,40}",
        "json_allowed_escapes": "nrbtf\\\"",
    })
}

/// A schema as the engine takes it: with its definitions and options at the root.
pub(super) fn document(schema: &Value, definitions: &Map<String, Value>) -> Value {
    let mut root = match schema {
        Value::Object(object) if !object.contains_key("$defs") => object.clone(),
        Value::Bool(true) => Map::new(),
        other => json!({ "allOf": [other] }).as_object().cloned().unwrap_or_default(),
    };
    if !definitions.is_empty() {
        root.insert("$defs".to_owned(), Value::Object(definitions.clone()));
    }
    root.insert("x-guidance".to_owned(), options());
    Value::Object(root)
}

pub(super) fn named(name: &str, schema: Value) -> GrammarWithLexer {
    GrammarWithLexer { name: Some(name.to_owned()), json_schema: Some(schema), lark_grammar: None }
}

/// The grammar of a constraint that binds the whole answer.
pub(super) fn whole(constraint: &Constraint) -> Result<Draft> {
    let (grammar, schemas) = answer(constraint)?;
    let grammar = TopLevelGrammar { grammars: vec![grammar], max_tokens: None };
    Ok(Draft { grammar, field: "constraint".to_owned(), schemas, after: None, thinks: false })
}

/// The grammar of a constraint, called `answer`, and its schemas with their fields.
pub(super) fn answer(constraint: &Constraint) -> Result<(GrammarWithLexer, Vec<(String, Exact)>)> {
    let lark = match constraint {
        Constraint::JsonObject | Constraint::JsonSchema(_) => {
            let text = match constraint {
                Constraint::JsonSchema(schema) => schema,
                _ => r#"{"type": "object"}"#,
            };
            let exact = exact(text, "constraint", "a")?;
            let document = document(&exact.schema, &exact.definitions);
            let schemas = vec![("constraint".to_owned(), exact)];
            return Ok((named("answer", document), schemas));
        }
        Constraint::Regex(source) => {
            bounded(source)?;
            let expression = pattern::translate(source, true).map_err(|message| {
                Error::invalid(format!("the regular expression: {message}"))
                    .with("field", "constraint")
            })?;
            format!("start: /(?s:{expression})/")
        }
        Constraint::Grammar(source) => {
            bounded(source)?;
            if source.contains("::=") {
                gbnf::lark(source).map_err(|message| {
                    Error::invalid(format!("the grammar: {message}")).with("field", "constraint")
                })?
            } else {
                source.clone()
            }
        }
        Constraint::Other(kind, _) => {
            let message = format!("constrained output of the kind `{kind}` is not known");
            return Err(Error::unsupported(message).with("field", "constraint"));
        }
    };
    let grammar = GrammarWithLexer {
        name: Some("answer".to_owned()),
        json_schema: None,
        lark_grammar: Some(lark),
    };
    Ok((grammar, Vec::new()))
}

fn bounded(source: &str) -> Result<()> {
    if source.len() <= BYTES {
        return Ok(());
    }
    let message = format!("`constraint`: expected at most {BYTES} bytes, found {}", source.len());
    Err(Error::invalid(message).with("field", "constraint"))
}
