//! Calls of tools as grammars, one spelling for each shape that the parsers read. What a grammar lets
//! through the parser of the shape reads back, with arguments that satisfy the tool's schema.

use gristmill_core::{
    Error, Result,
    program::ToolFormat,
    request::{Constraint, Request, Tool, ToolChoice},
};
use gristmill_models::Tokenizer;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Map, Value, json};

use super::{
    grammar::{Draft, answer},
    schema::{Exact, exact, refusal},
};
use crate::text::{
    HARMONY, deepseek,
    shape::{self, DSML, GLM, MISTRAL, PYTHONIC, XML},
};

pub(super) mod harmony;
mod lark;
mod members;
mod python;
mod sets;
mod tags;
mod unclosed;

use lark::{Lark, spelled};
use members::{Members, Refused};

/// A tool that may be called.
struct Callable<'a> {
    /// Its place in the request.
    n: usize,
    name: &'a str,
    /// Its schema as it came, as text and read.
    text: &'a str,
    source: Value,
    /// What of it is enforced; none: any arguments.
    exact: Option<Exact>,
    strict: bool,
}

impl<'a> Callable<'a> {
    fn new(tool: &'a Tool, n: usize, forced: bool) -> Result<Self> {
        let strict = tool.strict == Some(true);
        let exact = if !(strict || forced) || tool.parameters.trim().is_empty() {
            None
        } else {
            match exact(&tool.parameters, &field(n), &format!("t{n}_")) {
                Ok(exact) => Some(exact),
                Err(error) if strict => return Err(error),
                Err(_) => None,
            }
        };
        let source = serde_json::from_str(&tool.parameters).unwrap_or_default();
        Ok(Self { n, name: &tool.name, text: &tool.parameters, source, exact, strict })
    }

    /// Refuses a name that the parser would not read back.
    fn named(&self, fits: impl Fn(&str) -> bool) -> Result<()> {
        if fits(self.name) {
            return Ok(());
        }
        let message = format!("the model's family cannot write a call of `{}`", self.name);
        Err(Error::invalid(message).with("field", format!("tools/{}/name", self.n)))
    }

    /// The rule of a call: held to the schema where that is asked or can be, or of some arguments.
    fn held(
        &self,
        lark: &mut Lark,
        mut call: impl FnMut(&mut Lark, &Members) -> std::result::Result<String, Refused>,
    ) -> Result<String> {
        let mut held = lark.clone();
        let refused = match Members::of(self).and_then(|members| call(&mut held, &members)) {
            Ok(rule) => {
                *lark = held;
                return Ok(rule);
            }
            Err(refused) => refused,
        };
        let (path, why) = if self.strict {
            refused
        } else {
            match call(lark, &Members::loose(self)) {
                Ok(rule) => return Ok(rule),
                Err(refused) => refused,
            }
        };
        Err(refusal(&field(self.n), &path, &why))
    }

    /// The arguments as one object of JSON.
    fn object(&self) -> (Value, Map<String, Value>) {
        let Some(exact) = &self.exact else { return (json!({ "type": "object" }), Map::new()) };
        let schema = if exact.schema.get("type") == Some(&json!("object")) {
            exact.schema.clone()
        } else {
            json!({ "type": "object", "allOf": [exact.schema] })
        };
        (schema, exact.definitions.clone())
    }
}

fn field(n: usize) -> String {
    format!("tools/{n}/parameters")
}

/// Marks as a grammar writes them.
struct Spelling<'a> {
    format: &'a ToolFormat,
    tokenizer: &'a Tokenizer,
}

impl Spelling<'_> {
    /// A mark: tokens that no text can be by their numbers, the rest as text.
    fn mark(&self, text: &str) -> String {
        let mut out = Vec::new();
        let mut rest = text;
        for (token, name) in self.special(text) {
            if let Some((before, after)) = rest.split_once(&name) {
                out.extend((!before.is_empty()).then(|| spelled(before)));
                out.push(format!("<[{token}]>"));
                rest = after;
            }
        }
        out.extend((!rest.is_empty()).then(|| spelled(rest)));
        out.join(" ")
    }

    /// The tokens in a mark that no text can be, and what they are called.
    fn special(&self, text: &str) -> Vec<(u32, String)> {
        let tokens = self.tokenizer.encode(text, true).unwrap_or_default();
        let special = tokens.into_iter().filter(|token| self.tokenizer.is_special(*token));
        special
            .filter_map(|token| Some((token, self.tokenizer.token_text(token)?.to_owned())))
            .collect()
    }

    /// Refuses a mark that must be text and is none.
    fn plain(&self, text: &str) -> Result<()> {
        if self.special(text).is_empty() {
            return Ok(());
        }
        let message = format!("calls with `{text}` as a control token cannot be bound");
        Err(Error::unsupported(message).with("field", "tools"))
    }

    /// The closing mark, and white space before it.
    fn close(&self) -> String {
        let close = self.mark(self.format.close.trim());
        if close.is_empty() { close } else { format!("(WS)? {close}") }
    }
}

/// Calls in a family's spelling.
pub(super) struct Calls {
    /// The rule `one`: what stands behind an opening mark, the closing one with it.
    lark: Lark,
    open: String,
    /// The mark as text, for whoever looks for it.
    mark: String,
    /// Whether each call has a mark of its own, and another one may follow.
    repeats: bool,
    parallel: bool,
    /// Whether any tool insists on its schema.
    strict: bool,
    schemas: Vec<(String, Exact)>,
}

impl Calls {
    pub(super) fn new(
        request: &Request,
        format: &ToolFormat,
        tokenizer: &Tokenizer,
    ) -> Result<Self> {
        let forced = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Named(_));
        let parallel = request.parallel_tool_calls.unwrap_or(true);
        let mut tools = Vec::new();
        for (n, tool) in request.tools.iter().enumerate() {
            if !matches!(&request.tool_choice, ToolChoice::Named(name) if *name != tool.name) {
                tools.push(Callable::new(tool, n, forced)?);
            }
        }
        if tools.is_empty() {
            return Err(Error::invalid("`tool_choice` names a tool that is not on offer")
                .with("field", "tool_choice"));
        }
        let spelling = Spelling { format, tokenizer };
        let lark = match format.shape.as_str() {
            XML | GLM | DSML => tags::rules(&tools, parallel, &spelling)?,
            PYTHONIC => python::rules(&tools, parallel, &spelling)?,
            HARMONY => harmony::rules(&tools)?,
            MISTRAL => separated(&tools, &spelling)?,
            shape => match shape::marks(shape) {
                Some(marks) => marked(&tools, parallel, &spelling, marks)?,
                None => object(&tools, parallel, &spelling),
            },
        };
        let schemas = tools.into_iter().filter_map(|tool| Some((field(tool.n), tool.exact?)));
        Ok(Self {
            lark,
            open: spelling.mark(&format.open),
            mark: format.open.clone(),
            repeats: parallel
                && matches!(format.shape.as_str(), "json" | XML | GLM | MISTRAL)
                && !format.open.is_empty(),
            parallel,
            strict: request.tools.iter().any(|tool| tool.strict == Some(true)),
            schemas: schemas.collect(),
        })
    }

    /// Whether any tool insists on its schema.
    pub(super) fn strict(&self) -> bool {
        self.strict
    }

    fn draft(self, start: &str, more: Vec<GrammarWithLexer>, after: Option<String>) -> Draft {
        let lark = format!("start: {start}\n{}WS: /[ \\t\\n\\r]{{1,8}}/\n", self.lark.lines);
        let mut grammars = vec![GrammarWithLexer::from_lark(lark)];
        grammars.extend(self.lark.grammars);
        grammars.extend(more);
        Draft {
            grammar: TopLevelGrammar { grammars, max_tokens: None },
            field: "tools".to_owned(),
            schemas: self.schemas,
            after,
            thinks: false,
        }
    }

    /// One call, or where the spelling has a mark for each, as many as are allowed.
    fn calls(&self) -> String {
        let call = format!("{} one", self.open);
        if self.repeats { format!("{call} ((WS)? {call})*") } else { call }
    }

    /// Nothing but calls.
    pub(super) fn forced(self) -> Result<Draft> {
        let start = self.calls();
        Ok(self.draft(&start, Vec::new(), None))
    }

    /// An answer bound by a constraint, or calls instead of it.
    pub(super) fn or(mut self, constraint: &Constraint) -> Result<Draft> {
        let (answer, schemas) = answer(constraint)?;
        self.schemas.extend(schemas);
        let start = format!("@answer | {}", self.calls());
        Ok(self.draft(&start, vec![answer], None))
    }

    /// What follows the opening mark, once the model has written it by itself.
    pub(super) fn after_the_mark(self) -> Result<Draft> {
        let after = self.mark.clone();
        Ok(self.draft("one", Vec::new(), Some(after)))
    }
}

/// The rule of `json` and `json-list`: an object with the name and the arguments.
fn object(tools: &[Callable<'_>], parallel: bool, spelling: &Spelling<'_>) -> Lark {
    let format = spelling.format;
    let (mut alternatives, mut definitions) = (Vec::new(), Map::new());
    for tool in tools {
        let (arguments, own) = tool.object();
        definitions.extend(own);
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
    let mut call = match alternatives.len() {
        1 => alternatives.remove(0),
        _ => json!({ "anyOf": alternatives }),
    };
    if format.shape == "json-list" {
        call = json!({ "type": "array", "minItems": 1, "items": call });
        if !parallel && let Some(call) = call.as_object_mut() {
            call.insert("maxItems".to_owned(), json!(1));
        }
    }
    let mut lark = Lark::default();
    let call = lark.json(&call, &definitions);
    lark.rule("one", &format!("(WS)? {call} {}", spelling.close()));
    lark
}

/// The rule of `deepseek` and `kimi`: calls between marks of their own.
fn marked(
    tools: &[Callable<'_>],
    parallel: bool,
    spelling: &Spelling<'_>,
    marks: deepseek::Marks,
) -> Result<Lark> {
    let [begin, separator, end] =
        [marks.begin, marks.separator, marks.end].map(|mark| spelling.mark(mark));
    // What stands before the separator of DeepSeek's older form.
    let kind = &spelling.format.name_key;
    let [open, close] = deepseek::FENCES;
    let mut lark = Lark::default();
    let mut all = Vec::new();
    for tool in tools {
        tool.named(|name| {
            !name.is_empty() && name.trim() == name && !name.contains(['\n', '<', '{'])
        })?;
        let (schema, definitions) = tool.object();
        let arguments = lark.json(&schema, &definitions);
        let name = spelled(tool.name);
        all.push(if marks.numbered {
            let name = spelled(&format!("{}{}:", deepseek::FUNCTIONS, tool.name));
            format!("{name} /[0-9]{{1,4}}/ {separator} {arguments}")
        } else if kind.is_empty() {
            format!("{name} {separator} {arguments}")
        } else {
            let (open, close) = (spelled(&format!("\n{open}\n")), spelled(&format!("\n{close}")));
            format!("{} {separator} {name} {open} {arguments} {close}", spelled(kind))
        });
    }
    lark.rule("single", &format!("{begin} ({}) {end}", all.join(" | ")));
    let more = if parallel { "((WS)? single)*" } else { "" };
    lark.rule("one", &format!("(WS)? single {more} {}", spelling.close()));
    Ok(lark)
}

/// The rule of `mistral`: a name, an id in some families, and the arguments.
fn separated(tools: &[Callable<'_>], spelling: &Spelling<'_>) -> Result<Lark> {
    let (id, separator) = (&spelling.format.name_key, &spelling.format.arguments_key);
    let id = match id.is_empty() {
        true => String::new(),
        false => format!("({} /[0-9A-Za-z]{{9}}/)?", spelling.mark(id)),
    };
    let separator = spelling.mark(separator);
    let mut lark = Lark::default();
    let mut all = Vec::new();
    for tool in tools {
        tool.named(|name| !name.is_empty() && name.trim() == name && !name.contains('['))?;
        let (schema, definitions) = tool.object();
        let arguments = lark.json(&schema, &definitions);
        all.push(format!("{} {id} {separator} {arguments}", spelled(tool.name)));
    }
    lark.rule("one", &all.join(" | "));
    Ok(lark)
}
