//! Chat templates: a conversation becomes the text a model was trained on.
//!
//! Owns the road from messages and tools to the objects that templates expect, and the environment
//! real templates were written for: Jinja2 as the Python package `transformers` sets it up. A
//! template is foreign code: it cannot reach anything but its arguments, and [`FUEL`] bounds what
//! it may compute. When it refuses a conversation with `raise_exception`, its own words become the
//! error.

mod environment;
mod json;
mod mutable;
mod objects;
mod rewrite;

use std::time::SystemTime;

use gristmill_core::request::{Message, Role, Tool};
use minijinja::{Environment, Value};

use self::objects::Shape;
use crate::{ModelError, Result};

/// How many steps of the template's own program one rendering may take.
pub const FUEL: u64 = 10_000_000;
const NAME: &str = "chat";

/// A compiled chat template, with what it was found to expect.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    bos: String,
    eos: String,
    shape: Shape,
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the texts of the tokens it may ask for, empty where
    /// there is none.
    ///
    /// # Errors
    /// When it is not a template this build can compile; the message has its line.
    pub fn compile(source: &str, bos: &str, eos: &str) -> Result<Self> {
        let mut environment = environment::environment();
        environment
            .add_template_owned(NAME, rewrite::rewrite(source))
            .map_err(|error| ModelError::Template(error.to_string()))?;
        let mut template = Self {
            environment,
            source: source.to_owned(),
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            shape: Shape::of(source),
        };
        template.probe();
        Ok(template)
    }

    /// Renders a conversation.
    ///
    /// `extras` are further variables (`enable_thinking`, `documents`, `date_string`, …): JSON
    /// where they parse as JSON, text otherwise.
    ///
    /// # Errors
    /// [`ModelError::TemplateRefused`] with the template's own words; [`ModelError::Template`] when
    /// it fails or takes too long.
    pub fn render(
        &self,
        messages: &[Message],
        tools: &[Tool],
        add_generation_prompt: bool,
        extras: &[(String, String)],
    ) -> Result<String> {
        self.render_at(SystemTime::now(), messages, tools, add_generation_prompt, extras)
    }

    /// Renders a conversation as at another time, for what the template says of the date.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn render_at(
        &self,
        now: SystemTime,
        messages: &[Message],
        tools: &[Tool],
        add_generation_prompt: bool,
        extras: &[(String, String)],
    ) -> Result<String> {
        let messages = objects::messages(messages, &self.shape);
        self.render_objects(now, messages, objects::tools(tools), add_generation_prompt, extras)
    }

    /// The template's text.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the template speaks of a variable, for instance `tools` or `enable_thinking`.
    #[must_use]
    pub fn mentions(&self, variable: &str) -> bool {
        self.environment
            .get_template(NAME)
            .is_ok_and(|template| template.undeclared_variables(false).contains(variable))
    }

    fn render_objects(
        &self,
        now: SystemTime,
        messages: Value,
        tools: Value,
        add_generation_prompt: bool,
        extras: &[(String, String)],
    ) -> Result<String> {
        let mut variables = vec![
            ("messages".to_owned(), messages),
            ("tools".to_owned(), tools),
            ("documents".to_owned(), Value::from(())),
            ("add_generation_prompt".to_owned(), Value::from(add_generation_prompt)),
            ("bos_token".to_owned(), Value::from(self.bos.as_str())),
            ("eos_token".to_owned(), Value::from(self.eos.as_str())),
            (environment::NOW.to_owned(), environment::now(now)),
        ];
        variables
            .extend(extras.iter().map(|(name, text)| (name.clone(), json::parse_or_text(text))));
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|error| ModelError::Template(error.to_string()))?;
        template.render(json::map(variables)).map_err(environment::failure)
    }

    /// Finds out by trying how the template wants content and arguments; a template that fails on
    /// every form keeps the usual one.
    fn probe(&mut self) {
        const WORD: &str = "probe-7f3a";
        let user = Message::text(Role::User, WORD);
        let render = |template: &Self, messages: &[Message]| {
            let messages = objects::messages(messages, &template.shape);
            let none = Value::from(());
            template.render_objects(SystemTime::UNIX_EPOCH, messages, none, false, &[]).ok()
        };
        if !render(self, std::slice::from_ref(&user)).is_some_and(|text| text.contains(WORD)) {
            self.shape.content_as_list = true;
            if !render(self, std::slice::from_ref(&user)).is_some_and(|text| text.contains(WORD)) {
                self.shape.content_as_list = false;
            }
        }
        let mut call = Message::text(Role::Assistant, "");
        call.tool_calls.push(gristmill_core::request::ToolCall {
            id: "call00001".to_owned(),
            name: "probe".to_owned(),
            arguments: format!("{{\"{WORD}\": \"{WORD}\"}}"),
        });
        let conversation = [user, call];
        // As an object it must come out, and not as Python spells a dict.
        let as_object = render(self, &conversation)
            .is_some_and(|text| text.matches(WORD).count() > 2 && !text.contains("{'probe"));
        if !as_object {
            self.shape.arguments_as_text = true;
            let as_text =
                render(self, &conversation).is_some_and(|text| text.matches(WORD).count() > 2);
            self.shape.arguments_as_text = as_text;
        }
    }
}

/// The conversation for a family without a system role: the system's words go before the first
/// thing the user says, and become a user's turn where there is none.
#[must_use]
pub fn fold_system(messages: &[Message]) -> Vec<Message> {
    let (system, mut rest): (Vec<Message>, Vec<Message>) =
        messages.iter().cloned().partition(|message| message.role == Role::System);
    let mut parts = Vec::new();
    for message in system {
        parts.extend(message.content);
        parts.push(gristmill_core::request::Part::Text("\n\n".to_owned()));
    }
    if parts.is_empty() {
        return rest;
    }
    match rest.iter_mut().find(|message| message.role == Role::User) {
        Some(first) => {
            parts.append(&mut first.content);
            first.content = parts;
        }
        None => {
            parts.pop();
            let mut turn = Message::text(Role::User, "");
            turn.content = parts;
            rest.insert(0, turn);
        }
    }
    rest
}
