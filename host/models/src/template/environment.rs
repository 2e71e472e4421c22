//! The Jinja environment that chat templates are written for.

use std::{error::Error as _, fmt, time::SystemTime};

use jiff::{Timestamp, ZonedDateTime, tz::TimeZone};
use minijinja::{
    Environment, Error, ErrorKind, State, UndefinedBehavior, Value,
    syntax::SyntaxConfig,
    value::{Object, ValueKind},
};

use super::{FUEL, json, mutable};
use crate::ModelError;

/// The variable that carries the time of the rendering; no template can name it.
pub(super) const NOW: &str = "now of the rendering";

/// A time, for `strftime_now`.
#[derive(Debug)]
struct Now(ZonedDateTime);

impl Object for Now {}

/// The value of [`NOW`], in the machine's own time zone.
pub(super) fn now(time: SystemTime) -> Value {
    let timestamp = Timestamp::try_from(time).unwrap_or_default();
    Value::from_object(Now(timestamp.to_zoned_datetime(TimeZone::system())))
}

/// Why a template refused, carried through the engine's error.
#[derive(Debug)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// An environment as `transformers` sets up Jinja2, with what real templates call.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(method);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("from_json", from_json);
    // Jinja2 does not count None among the iterables, and templates rely on it for absent tools.
    environment.add_test("iterable", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq
                | ValueKind::Map
                | ValueKind::Iterable
                | ValueKind::String
                | ValueKind::Undefined
        )
    });
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_function(mutable::FUNCTION, mutable::mutable);
    environment
}

/// The domain's words for a failed rendering.
pub(super) fn failure(error: Error) -> ModelError {
    if error.kind() == ErrorKind::OutOfFuel {
        return ModelError::Template(format!("it did not finish within {FUEL} steps"));
    }
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(refused) = inner.downcast_ref::<Refused>() {
            return ModelError::TemplateRefused(refused.0.clone());
        }
        cause = inner.source();
    }
    ModelError::Template(error.to_string())
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Refused(message)))
}

fn strftime_now(state: &State<'_, '_>, format: &str) -> Result<String, Error> {
    let now = state.lookup(NOW);
    let now = now.as_ref().and_then(|now| now.downcast_object_ref::<Now>());
    let now = now.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "no time is known"))?;
    jiff::fmt::strtime::format(format, &now.0)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
}

fn from_json(text: &str) -> Result<Value, Error> {
    serde_json::from_str(text)
        .map(|json| json::from_json(&json))
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("from_json: {error}")))
}

/// Python's methods: those of `minijinja-contrib`, and a few it lacks.
fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match (value.kind(), method) {
        (ValueKind::Map, "copy") if args.is_empty() => mutable::mutable(value.clone()),
        (ValueKind::Seq, "copy") if args.is_empty() => mutable::mutable(value.clone()),
        (ValueKind::Seq, "index") => {
            let (item,): (Value,) = minijinja::value::from_args(args)?;
            let index = value.try_iter()?.position(|found| found == item);
            index.map(Value::from).ok_or_else(|| {
                Error::new(ErrorKind::InvalidOperation, format!("{item} is not in the list"))
            })
        }
        (ValueKind::String, "removeprefix" | "removesuffix") => {
            let (part,): (String,) = minijinja::value::from_args(args)?;
            let text = value.as_str().unwrap_or_default();
            let stripped = match method {
                "removeprefix" => text.strip_prefix(part.as_str()),
                _ => text.strip_suffix(part.as_str()),
            };
            Ok(Value::from(stripped.unwrap_or(text)))
        }
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}
