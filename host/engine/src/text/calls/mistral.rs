//! Calls as Mistral's later models write them, each behind a mark: `NAME[ARGS]{…}`, with an id of the
//! model's own before the arguments in some.

use gristmill_core::program::ToolFormat;

use super::{
    scan::{Json, Scan, UNNAMED},
    shape::Shape,
};

#[derive(Debug)]
pub(super) struct Mistral {
    /// What stands before an id; empty: there are none.
    id: String,
    /// What stands before the arguments.
    separator: String,
    /// The name, and what follows it up to the arguments.
    head: String,
    name: Option<String>,
    json: Json,
    arguments: Option<String>,
}

impl Mistral {
    pub(super) fn new(format: &ToolFormat) -> Self {
        Self {
            id: format.name_key.clone(),
            separator: format.arguments_key.clone(),
            head: String::new(),
            name: None,
            json: Json::default(),
            arguments: None,
        }
    }
}

impl Shape for Mistral {
    fn push(&mut self, c: char) -> Scan {
        if self.name.is_none() {
            self.head.push(c);
            if let Some(head) = self.head.strip_suffix(&self.separator) {
                // The id is the host's to give.
                let end = if self.id.is_empty() { None } else { head.find(&self.id) };
                let name = head.get(..end.unwrap_or(head.len())).unwrap_or_default().trim();
                if name.is_empty() {
                    return Scan::Wrong;
                }
                self.name = Some(name.to_owned());
            }
            return if self.head.len() > UNNAMED { Scan::Wrong } else { Scan::More };
        }
        if self.arguments.is_none() && c != '{' {
            return if c.is_whitespace() { Scan::More } else { Scan::Wrong };
        }
        if self.json.push(c).is_none() {
            return Scan::Wrong;
        }
        self.arguments.get_or_insert_default().push(c);
        if self.json.depth() > 0 { Scan::More } else { Scan::Last }
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn arguments(&mut self) -> &mut Option<String> {
        &mut self.arguments
    }
}
