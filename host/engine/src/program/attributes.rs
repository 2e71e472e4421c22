//! Typed reading of a step's attributes. Each may be given once; whatever is left unread at the
//! end is unknown and refused by name.

use gristmill_core::program::Attribute;

use super::{fault::Fault, limits};

/// The attributes of one step or state, taken out one by one.
pub(super) struct Attributes<'a> {
    left: Vec<(&'a str, &'a Attribute)>,
    known: Vec<&'static str>,
}

type Taken<T> = Result<T, Box<Fault>>;

impl<'a> Attributes<'a> {
    pub(super) fn new(given: &'a [(String, Attribute)]) -> Taken<Self> {
        if given.len() > limits::ATTRIBUTES {
            return Err(Fault::wrong(
                "attributes",
                format!("at most {}", limits::ATTRIBUTES),
                given.len(),
            ));
        }
        let mut left: Vec<(&str, &Attribute)> = Vec::with_capacity(given.len());
        for (name, value) in given {
            if left.iter().any(|(other, _)| other == name) {
                return Err(Fault::wrong(format!("attribute `{name}`"), "one value", "two"));
            }
            left.push((name, value));
        }
        Ok(Self { left, known: Vec::new() })
    }

    /// Refuses what nobody asked for.
    pub(super) fn finish(self) -> Taken<()> {
        let Some((name, _)) = self.left.first() else { return Ok(()) };
        let known =
            if self.known.is_empty() { "no attributes".to_owned() } else { self.known.join(", ") };
        Err(Fault::unknown(
            format!("attribute `{name}`"),
            known,
            "an attribute this host does not know",
        ))
    }

    fn take(&mut self, name: &'static str) -> Option<&'a Attribute> {
        self.known.push(name);
        let place = self.left.iter().position(|(other, _)| *other == name)?;
        Some(self.left.remove(place).1)
    }

    fn need<T>(name: &str, kind: &str, value: Option<T>) -> Taken<T> {
        value.ok_or_else(|| Fault::wrong(format!("attribute `{name}`"), kind, "nothing"))
    }

    fn type_error(name: &str, kind: &str, found: &Attribute) -> Box<Fault> {
        let found = match found {
            Attribute::Int(_) => "an int",
            Attribute::Float(_) => "a float",
            Attribute::Flag(_) => "a flag",
            Attribute::Text(_) => "a text",
            Attribute::Tensor(_) => "a tensor",
            Attribute::Ints(_) => "ints",
            Attribute::Floats(_) => "floats",
            Attribute::Texts(_) => "texts",
        };
        Fault::wrong(format!("attribute `{name}`"), kind, found)
    }

    pub(super) fn tensor_or(&mut self, name: &'static str) -> Taken<Option<&'a str>> {
        match self.take(name) {
            None => Ok(None),
            Some(Attribute::Tensor(value)) => Ok(Some(value)),
            Some(other) => Err(Self::type_error(name, "a tensor", other)),
        }
    }

    pub(super) fn tensor(&mut self, name: &'static str) -> Taken<&'a str> {
        let value = self.tensor_or(name)?;
        Self::need(name, "a tensor", value)
    }

    pub(super) fn text_or(&mut self, name: &'static str, default: &'a str) -> Taken<&'a str> {
        match self.take(name) {
            None => Ok(default),
            Some(Attribute::Text(value)) => Ok(value),
            Some(other) => Err(Self::type_error(name, "a text", other)),
        }
    }

    pub(super) fn text(&mut self, name: &'static str) -> Taken<&'a str> {
        match self.take(name) {
            Some(Attribute::Text(value)) => Ok(value),
            Some(other) => Err(Self::type_error(name, "a text", other)),
            None => Self::need(name, "a text", None),
        }
    }

    pub(super) fn flag_or(&mut self, name: &'static str, default: bool) -> Taken<bool> {
        match self.take(name) {
            None => Ok(default),
            Some(Attribute::Flag(value)) => Ok(*value),
            Some(other) => Err(Self::type_error(name, "a flag", other)),
        }
    }

    pub(super) fn flag(&mut self, name: &'static str) -> Taken<bool> {
        match self.take(name) {
            Some(Attribute::Flag(value)) => Ok(*value),
            Some(other) => Err(Self::type_error(name, "a flag", other)),
            None => Self::need(name, "a flag", None),
        }
    }

    /// A whole number in `1 ..= most`.
    pub(super) fn count_or(&mut self, name: &'static str, most: u64) -> Taken<Option<usize>> {
        match self.take(name) {
            None => Ok(None),
            Some(Attribute::Int(value)) => bounded(name, *value, 1, most).map(Some),
            Some(other) => Err(Self::type_error(name, "an int", other)),
        }
    }

    pub(super) fn count(&mut self, name: &'static str, most: u64) -> Taken<usize> {
        let value = self.count_or(name, most)?;
        Self::need(name, "an int", value)
    }

    /// A whole number in `0 ..= most`.
    pub(super) fn offset_or(&mut self, name: &'static str, most: u64) -> Taken<Option<usize>> {
        match self.take(name) {
            None => Ok(None),
            Some(Attribute::Int(value)) => bounded(name, *value, 0, most).map(Some),
            Some(other) => Err(Self::type_error(name, "an int", other)),
        }
    }

    pub(super) fn offset(&mut self, name: &'static str, most: u64) -> Taken<usize> {
        let value = self.offset_or(name, most)?;
        Self::need(name, "an int", value)
    }

    pub(super) fn float_or(&mut self, name: &'static str) -> Taken<Option<f64>> {
        match self.take(name) {
            None => Ok(None),
            Some(Attribute::Float(value)) if value.is_finite() => Ok(Some(*value)),
            Some(Attribute::Float(value)) => {
                Err(Fault::wrong(format!("attribute `{name}`"), "a finite float", value))
            }
            Some(other) => Err(Self::type_error(name, "a float", other)),
        }
    }

    pub(super) fn float(&mut self, name: &'static str) -> Taken<f64> {
        let value = self.float_or(name)?;
        Self::need(name, "a float", value)
    }

    /// A float above zero.
    pub(super) fn positive_or(&mut self, name: &'static str) -> Taken<Option<f64>> {
        match self.float_or(name)? {
            Some(value) if value <= 0.0 => {
                Err(Fault::wrong(format!("attribute `{name}`"), "a float above 0", value))
            }
            other => Ok(other),
        }
    }

    pub(super) fn positive(&mut self, name: &'static str) -> Taken<f64> {
        let value = self.positive_or(name)?;
        Self::need(name, "a float", value)
    }
}

fn bounded(name: &str, value: i64, least: u64, most: u64) -> Taken<usize> {
    u64::try_from(value)
        .ok()
        .filter(|value| (least..=most).contains(value))
        .and_then(|value| usize::try_from(value).ok())
        .ok_or_else(|| {
            Fault::wrong(
                format!("attribute `{name}`"),
                format!("an int in {least}..={most}"),
                value,
            )
        })
}
