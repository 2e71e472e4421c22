//! What an answer must look like, as a grammar: the request's own constraint, the calls of tools in
//! the family's spelling, or both.

use gristmill_core::{
    Error, Result,
    program::ToolFormat,
    request::{Constraint, Request, Tool, ToolChoice},
};
use gristmill_models::Tokenizer;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Map, Value, json};

use super::{
    gbnf, pattern,
    schema::{Exact, exact},
};

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
}

/// The grammar of a request; none when nothing binds its answer.
///
/// # Errors
/// `invalid-request` or `unsupported`, with what cannot be enforced.
pub(super) fn draft(
    request: &Request,
    tools: Option<&ToolFormat>,
    tokenizer: &Tokenizer,
) -> Result<Option<Draft>> {
    let calls = match tools {
        Some(format) => Some(Calls::new(request, format, tokenizer)?),
        None => None,
    };
    match (&request.tool_choice, calls, &request.constraint) {
        (ToolChoice::Required | ToolChoice::Named(_), Some(calls), _) => calls.forced().map(Some),
        (ToolChoice::Required | ToolChoice::Named(_), None, _) => {
            Err(Error::invalid("`tool_choice` asks for a call, but there are no tools")
                .with("field", "tool_choice"))
        }
        (_, None, Some(constraint)) => whole(constraint).map(Some),
        (_, Some(calls), Some(constraint)) => calls.or(constraint).map(Some),
        (_, Some(calls), None) if calls.strict => calls.after_the_mark().map(Some),
        (_, _, None) => Ok(None),
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

fn named(name: &str, schema: Value) -> GrammarWithLexer {
    GrammarWithLexer { name: Some(name.to_owned()), json_schema: Some(schema), lark_grammar: None }
}

/// The grammar of a constraint that binds the whole answer.
pub(super) fn whole(constraint: &Constraint) -> Result<Draft> {
    let (grammar, schemas) = match constraint {
        Constraint::JsonObject | Constraint::JsonSchema(_) => {
            let exact = answer(constraint)?;
            let document = document(&exact.schema, &exact.definitions);
            let grammar = TopLevelGrammar::from_grammar(named("answer", document));
            (grammar, vec![("constraint".to_owned(), exact)])
        }
        Constraint::Regex(source) => {
            bounded(source)?;
            let expression = pattern::translate(source, true).map_err(|message| {
                Error::invalid(format!("the regular expression: {message}"))
                    .with("field", "constraint")
            })?;
            let lark = format!("start: /(?s:{expression})/");
            (TopLevelGrammar::from_lark(lark), Vec::new())
        }
        Constraint::Grammar(source) => {
            bounded(source)?;
            let lark = if source.contains("::=") {
                gbnf::lark(source).map_err(|message| {
                    Error::invalid(format!("the grammar: {message}")).with("field", "constraint")
                })?
            } else {
                source.clone()
            };
            (TopLevelGrammar::from_lark(lark), Vec::new())
        }
        Constraint::Other(kind, _) => {
            let message = format!("constrained output of the kind `{kind}` is not known");
            return Err(Error::unsupported(message).with("field", "constraint"));
        }
    };
    Ok(Draft { grammar, field: "constraint".to_owned(), schemas, after: None })
}

fn answer(constraint: &Constraint) -> Result<Exact> {
    match constraint {
        Constraint::JsonSchema(schema) => exact(schema, "constraint", "a"),
        _ => exact(r#"{"type": "object"}"#, "constraint", "a"),
    }
}

fn bounded(source: &str) -> Result<()> {
    if source.len() <= BYTES {
        return Ok(());
    }
    let message = format!("`constraint`: expected at most {BYTES} bytes, found {}", source.len());
    Err(Error::invalid(message).with("field", "constraint"))
}

/// Calls in a family's spelling.
struct Calls {
    open: String,
    close: String,
    /// The mark as text, for whoever looks for it.
    mark: String,
    list: bool,
    parallel: bool,
    /// Whether any tool insists on its schema.
    strict: bool,
    call: Value,
    definitions: Map<String, Value>,
    schemas: Vec<(String, Exact)>,
}

impl Calls {
    fn new(request: &Request, format: &ToolFormat, tokenizer: &Tokenizer) -> Result<Self> {
        if !crate::text::Calls::binds(&format.shape) {
            let message = format!(
                "tool calls of shape `{}` are read but cannot be bound: `tool_choice` must be \
                 `auto` or `none`, no tool `strict`, and no constraint set beside tools",
                format.shape
            );
            return Err(Error::unsupported(message).with("field", "tools"));
        }
        let forced = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Named(_));
        let (mut alternatives, mut definitions) = (Vec::new(), Map::new());
        let mut schemas = Vec::new();
        for (n, tool) in request.tools.iter().enumerate() {
            if matches!(&request.tool_choice, ToolChoice::Named(name) if *name != tool.name) {
                continue;
            }
            let mut arguments = json!({ "type": "object" });
            if let Some(exact) = parameters(tool, n, forced)? {
                definitions.extend(exact.definitions.clone());
                arguments = json!({ "type": "object", "allOf": [exact.schema] });
                if exact.schema.get("type") == Some(&json!("object")) {
                    arguments = exact.schema.clone();
                }
                schemas.push((format!("tools/{n}/parameters"), exact));
            }
            let mut properties = Map::new();
            properties.insert(format.name_key.clone(), json!({ "const": tool.name }));
            properties.insert(format.arguments_key.clone(), arguments);
            alternatives.push(json!({
                "type": "object",
                "properties": properties,
                "required": [format.name_key, format.arguments_key],
                "additionalProperties": false,
            }));
        }
        if alternatives.is_empty() {
            return Err(Error::invalid("`tool_choice` names a tool that is not on offer")
                .with("field", "tool_choice"));
        }
        let call = match alternatives.len() {
            1 => alternatives.remove(0),
            _ => json!({ "anyOf": alternatives }),
        };
        Ok(Self {
            open: mark(&format.open, tokenizer),
            close: mark(format.close.trim(), tokenizer),
            mark: format.open.clone(),
            list: format.shape == "json-list",
            parallel: request.parallel_tool_calls.unwrap_or(true),
            strict: request.tools.iter().any(|tool| tool.strict == Some(true)),
            call,
            definitions,
            schemas,
        })
    }

    /// A grammar over the calls' JSON (`@call`), and whatever else it refers to.
    fn draft(self, start: &str, more: Vec<GrammarWithLexer>, after: Option<String>) -> Draft {
        let mut call = self.call;
        if self.list {
            call = json!({ "type": "array", "minItems": 1, "items": call });
            if !self.parallel
                && let Some(call) = call.as_object_mut()
            {
                call.insert("maxItems".to_owned(), json!(1));
            }
        }
        let lark = format!("{start}\nWS: /[ \\t\\n\\r]{{1,8}}/\n");
        let mut grammars = vec![GrammarWithLexer::from_lark(lark)];
        grammars.push(named("call", document(&call, &self.definitions)));
        grammars.extend(more);
        Draft {
            grammar: TopLevelGrammar { grammars, max_tokens: None },
            field: "tools".to_owned(),
            schemas: self.schemas,
            after,
        }
    }

    /// One call, or where the spelling has a mark for each, as many as are allowed.
    fn calls(&self) -> String {
        let close = if self.close.is_empty() { "" } else { "(WS)? " };
        let one = format!("{} (WS)? @call {close}{}", self.open, self.close);
        if self.parallel && !self.list && !self.mark.is_empty() {
            format!("calls: one ((WS)? one)*\none: {one}")
        } else {
            format!("calls: {one}")
        }
    }

    fn forced(self) -> Result<Draft> {
        let start = format!("start: calls\n{}", self.calls());
        Ok(self.draft(&start, Vec::new(), None))
    }

    /// An answer bound by a constraint, or calls instead of it.
    fn or(mut self, constraint: &Constraint) -> Result<Draft> {
        if !matches!(constraint, Constraint::JsonObject | Constraint::JsonSchema(_)) {
            let message = "a regular expression or grammar and tools cannot bind one answer: set `tool_choice` to `none`";
            return Err(Error::unsupported(message).with("field", "constraint"));
        }
        let exact = answer(constraint)?;
        let answer = named("answer", document(&exact.schema, &exact.definitions));
        self.schemas.push(("constraint".to_owned(), exact));
        let start = format!("start: @answer | calls\n{}", self.calls());
        Ok(self.draft(&start, vec![answer], None))
    }

    /// What follows the opening mark, once the model has written it by itself.
    fn after_the_mark(self) -> Result<Draft> {
        let close = if self.close.is_empty() { "" } else { "(WS)? " };
        let start = format!("start: (WS)? @call {close}{}", self.close);
        let after = self.mark.clone();
        Ok(self.draft(&start, Vec::new(), Some(after)))
    }
}

/// A tool's schema: enforced when the tool is strict; when a call is forced, as far as it can be.
fn parameters(tool: &Tool, n: usize, forced: bool) -> Result<Option<Exact>> {
    let strict = tool.strict == Some(true);
    if !(strict || forced) || tool.parameters.trim().is_empty() {
        return Ok(None);
    }
    match exact(&tool.parameters, &format!("tools/{n}/parameters"), &format!("t{n}_")) {
        Ok(exact) => Ok(Some(exact)),
        Err(error) if strict => Err(error),
        Err(_) => Ok(None),
    }
}

/// A mark as the grammar spells it: tokens that no text can be by their numbers, the rest as text.
fn mark(text: &str, tokenizer: &Tokenizer) -> String {
    let mut out = Vec::new();
    let mut rest = text;
    let tokens = tokenizer.encode(text, true).unwrap_or_default();
    for token in tokens {
        let Some(name) = tokenizer.token_text(token).filter(|_| tokenizer.is_special(token)) else {
            continue;
        };
        if let Some((before, after)) = rest.split_once(name) {
            out.extend(spelled(before));
            out.push(format!("<[{token}]>"));
            rest = after;
        }
    }
    out.extend(spelled(rest));
    out.join(" ")
}

fn spelled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| format!("/{}/", super::schema::literal(text)))
}
