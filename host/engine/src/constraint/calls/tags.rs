//! Grammars of calls in tags (`xml`, `glm`): every value between two tags of its own.

use serde_json::{Value, json};

use super::{
    Callable, Spelling,
    lark::{Lark, spelled},
    members::{Members, Refused},
    sets::{self, Set},
    unclosed::Unclosed,
};
use crate::text::{Kinds, Offer, glm, shape::GLM, tagged::NULLS};
use gristmill_core::program::ToolFormat;

/// How the tags are written.
struct Tags<'a> {
    glm: bool,
    format: &'a ToolFormat,
    /// What ends a value.
    end: String,
}

/// The rule of one call.
pub(super) fn rules(
    format: &ToolFormat,
    tools: &[Callable<'_>],
    spelling: &Spelling<'_>,
) -> gristmill_core::Result<Lark> {
    let glm = format.shape == GLM;
    let end = if glm { glm::VALUE_END.to_owned() } else { format!("</{}>", format.arguments_key) };
    spelling.plain(&end)?;
    let tags = Tags { glm, format, end };
    let mut lark = Lark::default();
    let mut all = Vec::new();
    for tool in tools {
        tool.named(|name| tags.names(name))?;
        let call =
            tool.held(&mut lark, |lark, members| tags.call(lark, tool, members, spelling))?;
        all.push(call);
    }
    let call = all.join(" | ");
    lark.rule("one", &format!("(WS)? ({call}) {}", spelling.close()));
    Ok(lark)
}

impl Tags<'_> {
    /// Whether the parser reads this back as a name.
    fn names(&self, name: &str) -> bool {
        let fits = |c: char| c != '<' && c != '\n' && (self.glm || c != '>');
        !name.is_empty() && name.chars().all(fits) && (!self.glm || name.trim() == name)
    }

    fn call(
        &self,
        lark: &mut Lark,
        tool: &Callable<'_>,
        members: &Members,
        spelling: &Spelling<'_>,
    ) -> Result<String, Refused> {
        let offer = Offer::new(&self.format.shape, tool.name, tool.text);
        let mut body = String::new();
        for member in &members.declared {
            let path = format!("/properties/{}", member.name.replace('~', "~0").replace('/', "~1"));
            if !self.names(&member.name) {
                return Err((path, "the name cannot be written in a tag".to_owned()));
            }
            let kinds = offer.kinds(&member.name);
            let value = self
                .value(lark, &member.schema, members, kinds)
                .map_err(|(below, why)| (path + &below, why))?;
            let key = self.key(&spelled(&member.name), spelling);
            let one = format!("{key} {value} (WS)?");
            body += &if member.required { one } else { format!("({one})?") };
            body.push(' ');
        }
        if let Some(rest) = &members.rest
            && let Ok(value) = self.value(lark, rest, members, Kinds::default())
        {
            let own: Vec<String> = members.declared.iter().map(|m| spelled(&m.name)).collect();
            let other =
                if own.is_empty() { String::new() } else { format!(" & ~({})", own.join(" | ")) };
            let name = lark.name("KEY");
            lark.rule(&name, &format!(r"/[^<>\s][^<>\n]{{0,62}}[^<>\s]|[^<>\s]/{other}"));
            body += &format!("({} {value} (WS)?)*", self.key(&name, spelling));
        }
        let (begin, end) = if self.glm {
            (spelled(tool.name), String::new())
        } else {
            let function = &self.format.name_key;
            let end = format!("{} (WS)?", spelled(&format!("</{function}>")));
            (spelled(&format!("<{function}={}>", tool.name)), end)
        };
        Ok(lark.add("call", &format!("{begin} (WS)? {body} {end}")))
    }

    /// What stands before a value: `name` is a terminal.
    fn key(&self, name: &str, spelling: &Spelling<'_>) -> String {
        if self.glm {
            let [open, close, value] =
                [glm::KEY, glm::KEY_END, glm::VALUE].map(|tag| spelling.mark(tag));
            return format!("{open} {name} {close} (WS)? {value}");
        }
        let open = spelled(&format!("<{}=", self.format.arguments_key));
        format!("{open} {name} {}", spelled(">"))
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
            let (schema, definitions) = Unclosed::new(&self.end)
                .rewrite(&typed, definitions)
                .map_err(|why| (String::new(), format!("{why}: cannot be enforced")))?;
            let json = lark.json(&schema, &definitions);
            return Ok(format!("(WS)? {json} (WS)? {end}"));
        }
        let mut set = sets::strings(schema, definitions).map_err(|keyword| {
            let why = "cannot be enforced for text without quotes".to_owned();
            let there = schema.get(keyword).is_some();
            (if there { format!("/{keyword}") } else { String::new() }, why)
        })?;
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
        let closed = format!("~/(?s:.*){}(?s:.*)/", super::super::schema::literal(&self.end));
        let name = lark.name("TEXT");
        let bare = format!("({text} & {closed})");
        if self.glm {
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
