//! Lists and dicts that a template may change in place, as Python's can be. Templates that do so
//! get them for every literal (see [`super::rewrite`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Enumerator, Object, ObjectRepr, ValueKind, from_args},
};

/// The function that [`super::rewrite`] puts around literals.
pub(super) const FUNCTION: &str = "__mutable__";

/// A list.
#[derive(Debug)]
struct List(Mutex<Vec<Value>>);

/// A dict, in the order of insertion.
#[derive(Debug)]
struct Dict(Mutex<Vec<(Value, Value)>>);

/// A changeable copy of a list or dict; anything else as it is.
pub(super) fn mutable(value: Value) -> Result<Value, Error> {
    Ok(match value.kind() {
        ValueKind::Seq => Value::from_object(List(Mutex::new(value.try_iter()?.collect()))),
        ValueKind::Map => {
            let mut pairs = Vec::new();
            for key in value.try_iter()? {
                let item = value.get_item(&key)?;
                pairs.push((key, item));
            }
            Value::from_object(Dict(Mutex::new(pairs)))
        }
        _ => value,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A Python index, which counts from the end when it is negative.
fn position(index: i64, length: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(i64::try_from(length).ok()?)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < length)
}

fn missing(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.to_owned())
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let items = lock(&self.0);
        let index = position(i64::try_from(key.clone()).ok()?, items.len())?;
        items.get(index).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(lock(&self.0).clone())
    }

    fn call_method(
        self: &Arc<Self>,
        _state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        let mut items = lock(&self.0);
        match method {
            "append" => {
                let (item,): (Value,) = from_args(args)?;
                items.push(item);
            }
            "extend" => {
                let (more,): (Value,) = from_args(args)?;
                // The list may be extended by itself.
                drop(items);
                let more: Vec<Value> = more.try_iter()?.collect();
                lock(&self.0).extend(more);
            }
            "insert" => {
                let (index, item): (i64, Value) = from_args(args)?;
                let length = items.len();
                let index = match position(index, length) {
                    Some(index) => index,
                    None if index < 0 => 0,
                    None => length,
                };
                items.insert(index, item);
            }
            "pop" => {
                let (index,): (Option<i64>,) = from_args(args)?;
                let index = position(index.unwrap_or(-1), items.len());
                let index = index.ok_or_else(|| missing("pop: no item at this index"))?;
                return Ok(items.remove(index));
            }
            "remove" => {
                let (item,): (Value,) = from_args(args)?;
                let index = items.iter().position(|found| *found == item);
                items.remove(index.ok_or_else(|| missing("remove: no such item"))?);
            }
            "index" => {
                let (item,): (Value,) = from_args(args)?;
                let index = items.iter().position(|found| *found == item);
                return index.map(Value::from).ok_or_else(|| missing("index: no such item"));
            }
            "clear" => items.clear(),
            "reverse" => items.reverse(),
            _ => return Err(Error::from(ErrorKind::UnknownMethod)),
        }
        Ok(Value::from(()))
    }
}

impl Object for Dict {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        lock(&self.0).iter().find(|(found, _)| found == key).map(|(_, value)| value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(lock(&self.0).iter().map(|(key, _)| key.clone()).collect())
    }

    fn call_method(
        self: &Arc<Self>,
        _state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        let at = |key: &Value| lock(&self.0).iter().position(|(found, _)| found == key);
        let set = |key: Value, value: Value| {
            let mut pairs = lock(&self.0);
            match pairs.iter_mut().find(|(found, _)| *found == key) {
                Some(pair) => pair.1 = value,
                None => pairs.push((key, value)),
            }
        };
        match method {
            "update" => {
                let (more,): (Value,) = from_args(args)?;
                for key in more.try_iter()? {
                    let value = more.get_item(&key)?;
                    set(key, value);
                }
            }
            "setdefault" => {
                let (key, default): (Value, Option<Value>) = from_args(args)?;
                if at(&key).is_none() {
                    set(key.clone(), default.unwrap_or_else(|| Value::from(())));
                }
                return Ok(self.get_value(&key).unwrap_or_default());
            }
            "pop" => {
                let (key, default): (Value, Option<Value>) = from_args(args)?;
                return match at(&key) {
                    Some(index) => Ok(lock(&self.0).remove(index).1),
                    None => default.ok_or_else(|| missing("pop: no such key")),
                };
            }
            "clear" => lock(&self.0).clear(),
            _ => return Err(Error::from(ErrorKind::UnknownMethod)),
        }
        Ok(Value::from(()))
    }
}
