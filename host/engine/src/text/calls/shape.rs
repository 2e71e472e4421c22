//! What every spelling of calls has in common: characters go in, and out come a name, arguments as
//! JSON, and whether this can still be a call.

use std::{fmt::Debug, sync::Arc};

use gristmill_core::program::ToolFormat;

use super::{
    deepseek::{self, DeepSeek, Marks},
    dsml::Dsml,
    glm::{self, Glm},
    harmony::Harmony,
    kinds::Offer,
    mistral::Mistral,
    pythonic::Pythonic,
    scan::{Scan, Scanner},
    xml::Xml,
};

/// The shape whose answers are messages on channels.
pub(crate) const HARMONY: &str = "harmony";
/// The shapes whose values have their types from the tools' schemas.
pub(crate) const XML: &str = "xml";
pub(crate) const GLM: &str = "glm";
pub(crate) const DSML: &str = "dsml";
/// The other shapes.
pub(crate) const MISTRAL: &str = "mistral";
pub(crate) const PYTHONIC: &str = "pythonic";
pub(crate) const DEEPSEEK: &str = "deepseek";
pub(crate) const KIMI: &str = "kimi";

/// Whether calls of this shape are read, and can be bound by a grammar.
pub(super) fn knows(shape: &str) -> bool {
    matches!(
        shape,
        "json" | "json-list" | XML | GLM | DSML | MISTRAL | PYTHONIC | DEEPSEEK | KIMI | HARMONY
    )
}

/// The marks of one call in a list, in the shapes that have such.
pub(crate) fn marks(shape: &str) -> Option<Marks> {
    match shape {
        DEEPSEEK => Some(deepseek::DEEPSEEK),
        KIMI => Some(deepseek::KIMI),
        _ => None,
    }
}

/// Whether a special token's text is one of the shape's marks inside a call.
pub(crate) fn inner(format: &ToolFormat, text: &str) -> bool {
    match format.shape.as_str() {
        MISTRAL => [&format.name_key, &format.arguments_key].iter().any(|mark| *mark == text),
        GLM => [glm::KEY, glm::KEY_END, glm::VALUE, glm::VALUE_END].contains(&text),
        shape => marks(shape)
            .is_some_and(|marks| [marks.begin, marks.separator, marks.end].contains(&text)),
    }
}

/// The character a call begins with where no mark comes before it.
pub(super) fn begins(shape: &str) -> char {
    match shape {
        "json-list" | PYTHONIC => '[',
        XML | GLM | DSML | DEEPSEEK | KIMI => '<',
        _ => '{',
    }
}

/// One spelling, read character by character.
pub(super) trait Shape: Debug + Send {
    /// What a character meant.
    fn push(&mut self, c: char) -> Scan;
    /// The name of the call being read.
    fn name(&self) -> Option<&str>;
    /// Its arguments, as far as nobody has taken them; none before they begin.
    fn arguments(&mut self) -> &mut Option<String>;
    /// Nothing follows: arguments that lack only what is beside them are complete.
    fn finish(&mut self) {}
}

/// Reads what stands between two marks.
#[derive(Debug)]
pub(super) struct Reader {
    shape: Box<dyn Shape>,
    /// What was read since arguments were taken last: it may turn out to be text.
    loose: String,
    /// The last character, where it only showed that the arguments before it are complete.
    next: Option<char>,
}

impl Reader {
    pub(super) fn new(format: &ToolFormat, offers: &Arc<[Offer]>) -> Self {
        let shape: Box<dyn Shape> = match format.shape.as_str() {
            XML => Box::new(Xml::new(format, Arc::clone(offers))),
            GLM => Box::new(Glm::new(format, Arc::clone(offers))),
            MISTRAL => Box::new(Mistral::new(format)),
            PYTHONIC => Box::new(Pythonic::new(format)),
            DSML => Box::new(Dsml::new(format, Arc::clone(offers))),
            shape => match marks(shape) {
                Some(marks) => Box::new(DeepSeek::new(format, marks)),
                None => Box::new(Scanner::new(format)),
            },
        };
        Self { shape, loose: String::new(), next: None }
    }

    /// The body of a message to a function: its arguments and nothing else.
    pub(super) fn body(name: String) -> Self {
        Self { shape: Box::new(Harmony::new(name)), loose: String::new(), next: None }
    }

    pub(super) fn push(&mut self, c: char) -> Scan {
        let verdict = self.shape.push(c);
        self.next = (verdict == Scan::Next).then_some(c);
        if verdict != Scan::Wrong {
            self.loose.push(c);
        }
        verdict
    }

    /// The name, whether or not arguments have begun.
    pub(super) fn name(&self) -> Option<&str> {
        self.shape.name()
    }

    /// The name, once the arguments have begun too.
    pub(super) fn call(&mut self) -> Option<&str> {
        self.shape.arguments().as_ref()?;
        self.shape.name()
    }

    /// Arguments read since the last time.
    pub(super) fn take_arguments(&mut self) -> Option<String> {
        let arguments = self.shape.arguments().as_mut()?;
        if arguments.is_empty() {
            return None;
        }
        self.loose.clear();
        self.loose.extend(self.next);
        Some(std::mem::take(arguments))
    }

    /// Nothing follows.
    pub(super) fn finish(&mut self) {
        self.shape.finish();
    }

    /// What was read so far belongs to a call that is complete.
    pub(super) fn settle(&mut self) {
        self.loose.clear();
    }

    /// What was read of something that was not a call after all.
    pub(super) fn take_loose(&mut self) -> String {
        std::mem::take(&mut self.loose)
    }
}
