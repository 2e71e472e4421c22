//! A grammar being written, and the grammars of JSON that it refers to.

use llguidance::api::GrammarWithLexer;
use serde_json::{Map, Value};

use super::super::{grammar::document, schema::literal};

/// Any text.
pub(super) const ANY: &str = r"/(?s:.*)/";

/// Rules, one a line.
#[derive(Debug, Default, Clone)]
pub(super) struct Lark {
    pub(super) lines: String,
    pub(super) grammars: Vec<GrammarWithLexer>,
    count: usize,
}

impl Lark {
    /// A rule under this name.
    pub(super) fn rule(&mut self, name: &str, body: &str) {
        self.lines.push_str(&format!("{name}: {body}\n"));
    }

    /// A name nothing else has: of a rule, or in capitals of a terminal.
    pub(super) fn name(&mut self, beginning: &str) -> String {
        self.count += 1;
        format!("{beginning}{}", self.count)
    }

    /// A rule under a new name.
    pub(super) fn add(&mut self, beginning: &str, body: &str) -> String {
        let name = self.name(beginning);
        self.rule(&name, body);
        name
    }

    /// JSON that satisfies a schema, as a reference to its grammar.
    pub(super) fn json(&mut self, schema: &Value, definitions: &Map<String, Value>) -> String {
        let name = self.name("json");
        self.grammars.push(GrammarWithLexer {
            name: Some(name.clone()),
            json_schema: Some(document(schema, definitions)),
            lark_grammar: None,
        });
        format!("@{name}")
    }

    /// Items in their order with something between each two, of which some may be left out, and
    /// after them any number of `more`.
    pub(super) fn sequence(
        &mut self,
        items: &[(String, bool)],
        more: Option<&str>,
        between: &str,
    ) -> String {
        // What may follow when something came before, and when nothing did.
        let tail = match more {
            Some(more) => format!("({between} {more})*"),
            None => "\"\"".to_owned(),
        };
        let mut after = self.add("after", &tail);
        let mut first = match more {
            Some(more) => self.add("first", &format!("({more} {after})?")),
            None => self.add("first", "\"\""),
        };
        for (item, required) in items.iter().rev() {
            let (rest, none) = (after, first);
            if *required {
                after = self.add("after", &format!("{between} {item} {rest}"));
                first = self.add("first", &format!("{item} {rest}"));
            } else {
                after = self.add("after", &format!("({between} {item})? {rest}"));
                first = self.add("first", &format!("{item} {rest} | {none}"));
            }
        }
        first
    }
}

/// A text as a terminal; nothing for the empty one.
pub(super) fn spelled(text: &str) -> String {
    if text.is_empty() { "\"\"".to_owned() } else { format!("/{}/", literal(text)) }
}
