//! The body of a message to a function: a JSON object. The channels say where it begins and ends.

use super::{
    scan::{Json, Scan},
    shape::Shape,
};

#[derive(Debug)]
pub(super) struct Harmony {
    name: String,
    json: Json,
    arguments: Option<String>,
    finished: bool,
}

impl Harmony {
    pub(super) fn new(name: String) -> Self {
        Self { name, json: Json::default(), arguments: None, finished: false }
    }
}

impl Shape for Harmony {
    fn push(&mut self, c: char) -> Scan {
        if self.finished || self.arguments.is_none() {
            if self.finished {
                self.arguments = None;
            }
            if c.is_whitespace() {
                return Scan::More;
            }
            if self.finished || c != '{' {
                return Scan::Wrong;
            }
        }
        if self.json.push(c).is_none() {
            return Scan::Wrong;
        }
        self.arguments.get_or_insert_default().push(c);
        if self.json.depth() > 0 {
            return Scan::More;
        }
        self.finished = true;
        Scan::Object
    }

    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn arguments(&mut self) -> &mut Option<String> {
        &mut self.arguments
    }
}
