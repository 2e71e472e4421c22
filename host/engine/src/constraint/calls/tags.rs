//! Grammars of calls in tags (`xml`, `glm`, `dsml`): every value between two tags of its own.

use serde_json::{Map, Value, json};

use super::{
    Callable, Spelling,
    lark::{Lark, spelled},
    members::{Members, Refused},
    sets::{self, Set},
    unclosed::Unclosed,
};
use crate::text::{
    Kinds, Offer, dsml, glm,
    shape::{DSML, GLM},
    tagged::{NULLS, closing},
};
use gristmill_core::program::ToolFormat;

/// How the tags are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Xml,
    Glm,
    Dsml,
}

/// The tags.
struct Tags<'a> {
    way: Way,
    spelling: &'a Spelling<'a>,
    /// What ends a value.
    end: String,
    /// What no value spells.
    barred: String,
}

/// Characters of an end of `dsml` that no value spells: up to the mark in all its tags, which is nobody's
/// text. All of the end would make larger grammars.
const BARRED: usize = 8;

/// The rule of what stands behind an opening mark.
pub(super) fn rules(
    tools: &[Callable<'_>],
    parallel: bool,
    spelling: &Spelling<'_>,
) -> gristmill_core::Result<Lark> {
    let format = spelling.format;
    let (way, end) = match format.shape.as_str() {
        GLM => (Way::Glm, glm::VALUE_END.to_owned()),
        DSML => (Way::Dsml, closing(&format.arguments_key)),
        _ => (Way::Xml, closing(&format.arguments_key)),
    };
    spelling.plain(&end)?;
    let barred = match way {
        Way::Dsml => end.chars().take(BARRED).collect(),
        _ => end.clone(),
    };
    let tags = Tags { way, spelling, end, barred };
    let mut lark = Lark::default();
    let mut all = Vec::new();
    for tool in tools {
        tool.named(|name| tags.names(name))?;
        let call = tool.held(&mut lark, |lark, members| tags.call(lark, tool, members))?;
        all.push(call);
    }
    let call = all.join(" | ");
    // One list may hold several calls of this spelling.
    let more = if way == Way::Dsml && parallel { format!("({call})*") } else { String::new() };
    lark.rule("one", &format!("(WS)? ({call}) {more} {}", spelling.close()));
    Ok(lark)
}

impl Tags<'_> {
    fn format(&self) -> &ToolFormat {
        self.spelling.format
    }

    /// Whether the parser reads this back as a name.
    fn names(&self, name: &str) -> bool {
        let fits = |c: char| {
            c != '<'
                && c != '\n'
                && (self.way == Way::Glm || c != '>')
                && (self.way != Way::Dsml || c != '"')
        };
        !name.is_empty() && name.chars().all(fits) && (self.way != Way::Glm || name.trim() == name)
    }

    fn call(
        &self,
        lark: &mut Lark,
        tool: &Callable<'_>,
        members: &Members,
    ) -> Result<String, Refused> {
        let offer = Offer::new(&self.format().shape, tool.name, tool.text);
        let mut body = String::new();
        for member in &members.declared {
            let path = format!("/properties/{}", member.name.replace('~', "~0").replace('/', "~1"));
            if !self.names(&member.name) {
                return Err((path, "the name cannot be written in a tag".to_owned()));
            }
            let kinds = offer.kinds(&member.name);
            let value = self
                .member(lark, &spelled(&member.name), &member.schema, members, kinds)
                .map_err(|(below, why)| (path + &below, why))?;
            body += &if member.required { value } else { format!("({value})?") };
            body.push(' ');
        }
        if let Some(rest) = &members.rest {
            let own: Vec<String> = members.declared.iter().map(|m| spelled(&m.name)).collect();
            let other =
                if own.is_empty() { String::new() } else { format!(" & ~({})", own.join(" | ")) };
            // The rule is of no use to anybody where no value can follow.
            let mut held = lark.clone();
            let name = held.name("KEY");
            held.rule(&name, &format!(r#"/[^<>"\s][^<>"\n]{{0,62}}[^<>"\s]|[^<>"\s]/{other}"#));
            if let Ok(value) = self.member(&mut held, &name, rest, members, Kinds::default()) {
                *lark = held;
                body += &format!("({value})*");
            }
        }
        let (begin, end) = match self.way {
            Way::Glm => (spelled(tool.name), String::new()),
            Way::Dsml => {
                let begin = format!("{}{}\">", dsml::opening(&self.format().name_key), tool.name);
                let end = spelled(&closing(&self.format().name_key));
                (spelled(&begin), format!("{end} (WS)?"))
            }
            Way::Xml => {
                let function = &self.format().name_key;
                let end = format!("{} (WS)?", spelled(&closing(function)));
                (spelled(&format!("<{function}={}>", tool.name)), end)
            }
        };
        Ok(lark.add("call", &format!("{begin} (WS)? {body} {end}")))
    }

    /// A parameter with its value: `name` is a terminal, `kinds` is how the parser will take it.
    fn member(
        &self,
        lark: &mut Lark,
        name: &str,
        schema: &Value,
        members: &Members,
        kinds: Kinds,
    ) -> Result<String, Refused> {
        let key = match self.way {
            Way::Glm => {
                let [open, close, value] =
                    [glm::KEY, glm::KEY_END, glm::VALUE].map(|tag| self.spelling.mark(tag));
                format!("{open} {name} {close} (WS)? {value}")
            }
            Way::Xml => {
                let open = spelled(&format!("<{}=", self.format().arguments_key));
                format!("{open} {name} {}", spelled(">"))
            }
            Way::Dsml => return self.either(lark, name, schema, members, kinds),
        };
        let value = self.value(lark, schema, members, kinds)?;
        Ok(format!("{key} {value} (WS)?"))
    }

    /// A parameter whose tag says whether it is text or JSON.
    fn either(
        &self,
        lark: &mut Lark,
        name: &str,
        schema: &Value,
        members: &Members,
        kinds: Kinds,
    ) -> Result<String, Refused> {
        let definitions = &members.definitions;
        let end = spelled(&self.end);
        let open = spelled(&dsml::opening(&self.format().arguments_key));
        let tag =
            |attribute: &str| format!("{open} {name} {}", spelled(&format!("\"{attribute}>")));
        let mut ways = Vec::new();
        if let Some(text) = text(schema, definitions)?.expression() {
            let bare = lark.name("TEXT");
            lark.rule(&bare, &format!("({text} & {}) {end}", self.open()));
            ways.push(format!("{} {bare}", tag(dsml::STRING)));
        }
        let mut types = match kinds.names() {
            none if none.is_empty() => Kinds::JSON.names(),
            names => names,
        };
        types.retain(|name| *name != "string" && sets::may(schema, definitions, name));
        if !types.is_empty() {
            let typed = match schema {
                Value::Object(object) if !sets::typed(schema, definitions, &types) => {
                    let mut object = object.clone();
                    object.insert("type".to_owned(), json!(types));
                    Value::Object(object)
                }
                Value::Object(_) => schema.clone(),
                _ => json!({ "type": types }),
            };
            let json = self.json(lark, &typed, members)?;
            ways.push(format!("{} (WS)? {json} (WS)? {end}", tag(dsml::JSON)));
        }
        if ways.is_empty() {
            return Err((String::new(), "no value satisfies it".to_owned()));
        }
        Ok(format!("({}) (WS)?", ways.join(" | ")))
    }

    /// Texts without the closing tag.
    fn open(&self) -> String {
        format!("~/(?s:.*){}(?s:.*)/", super::super::schema::literal(&self.barred))
    }

    /// A value as JSON.
    fn json(&self, lark: &mut Lark, schema: &Value, members: &Members) -> Result<String, Refused> {
        let (schema, definitions) = Unclosed::new(&self.barred)
            .rewrite(schema, &members.definitions)
            .map_err(|why| (String::new(), format!("{why}: cannot be enforced")))?;
        Ok(lark.json(&schema, &definitions))
    }

    /// A value and its closing tag. `kinds` is how the parser will take it.
    fn value(
        &self,
        lark: &mut Lark,
        schema: &Value,
        members: &Members,
        kinds: Kinds,
    ) -> Result<String, Refused> {
        let definitions = &members.definitions;
        let end = spelled(&self.end);
        if !kinds.text() {
            if kinds.names() == ["boolean"] && *schema == json!({ "type": "boolean" }) {
                return Ok(format!("(WS)? (/[tT]rue/ | /[fF]alse/) (WS)? {end}"));
            }
            let typed = if sets::typed(schema, definitions, &kinds.names()) {
                schema.clone()
            } else {
                json!({ "allOf": [schema, { "type": kinds.names() }] })
            };
            let json = self.json(lark, &typed, members)?;
            return Ok(format!("(WS)? {json} (WS)? {end}"));
        }
        let mut set = text(schema, definitions)?;
        if kinds.nullable() {
            // However it is meant, the parser takes it as null.
            set = set.without(&NULLS);
            if sets::null(schema, definitions) {
                set = set.or(Set::words(NULLS));
            }
        }
        let Some(text) = set.expression() else {
            return Err((String::new(), "no text without quotes satisfies it".to_owned()));
        };
        let closed = self.open();
        let name = lark.name("TEXT");
        let bare = format!("({text} & {closed})");
        if self.way == Way::Glm {
            lark.rule(&name, &format!("{bare} {end}"));
        } else {
            // One line end next to each tag is no part of the value.
            let whole = r"~/\n(?s:.*)|(?s:.*)\n/";
            lark.rule(
                &name,
                &format!("(/\\n/ {bare} /\\n/ {end}) | (({text} & {closed} & {whole}) {end})"),
            );
        }
        Ok(name)
    }
}

/// The texts that satisfy a rewritten schema.
fn text(schema: &Value, definitions: &Map<String, Value>) -> Result<Set, Refused> {
    sets::strings(schema, definitions).map_err(|keyword| {
        let why = "cannot be enforced for text without quotes".to_owned();
        let there = schema.get(keyword).is_some();
        (if there { format!("/{keyword}") } else { String::new() }, why)
    })
}
