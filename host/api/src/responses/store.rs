//! Responses that may be continued and fetched: in memory alone, bounded in number and bytes, the
//! oldest forgotten first. A restart forgets all.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gristmill_core::request::{Message, Part};
use serde_json::Value;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Responses; 0 keeps none.
    pub responses: usize,
    /// Bytes of all their conversations and bodies together.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { responses: 1024, bytes: 64 << 20 }
    }
}

/// A response and the conversation up to it, instructions left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// The response object as it was answered.
    pub response: Value,
    /// What was said, the answer last.
    pub said: Vec<Message>,
    /// Name of the key it was made with; nobody else's key finds it.
    pub owner: Option<String>,
}

/// All that are kept.
#[derive(Debug, Default)]
pub struct Store {
    bounds: Bounds,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    kept: HashMap<String, (usize, Arc<Kept>)>,
    order: VecDeque<String>,
    bytes: usize,
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything is ever kept.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.bounds.responses > 0
    }

    /// Keeps a response, and forgets the oldest until the bounds hold. One that is larger than all
    /// the room there is is not kept.
    pub fn keep(&self, id: String, kept: Kept) {
        let size = size(&kept);
        if !self.keeps() || size > self.bounds.bytes {
            return;
        }
        let mut inner = self.inner();
        inner.forget(&id);
        inner.bytes += size;
        inner.order.push_back(id.clone());
        inner.kept.insert(id, (size, Arc::new(kept)));
        while inner.kept.len() > self.bounds.responses || inner.bytes > self.bounds.bytes {
            let Some(oldest) = inner.order.front().cloned() else { return };
            inner.forget(&oldest);
        }
    }

    /// A kept response.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Arc<Kept>> {
        self.inner().kept.get(id).map(|(_, kept)| Arc::clone(kept))
    }

    /// Forgets a response. Whether it was there.
    pub fn forget(&self, id: &str) -> bool {
        self.inner().forget(id)
    }
}

impl Inner {
    fn forget(&mut self, id: &str) -> bool {
        let Some((size, _)) = self.kept.remove(id) else { return false };
        self.bytes -= size;
        self.order.retain(|known| known != id);
        true
    }
}

/// Bytes that a response holds, near enough to bound memory: texts and media, and a little for each
/// value around them.
fn size(kept: &Kept) -> usize {
    kept.said.iter().map(message).sum::<usize>() + value(&kept.response)
}

const AROUND: usize = 64;

fn message(message: &Message) -> usize {
    let part = |part: &Part| match part {
        Part::Text(text) => text.len(),
        Part::Image(media) | Part::Audio(media) => media.mime.len() + media.data.len(),
        Part::Other(kind, content) => kind.len() + content.len(),
    };
    let calls = message.tool_calls.iter();
    let content: usize = message.content.iter().map(|item| AROUND + part(item)).sum();
    let calls: usize =
        calls.map(|call| AROUND + call.id.len() + call.name.len() + call.arguments.len()).sum();
    AROUND + content + calls + message.reasoning.as_ref().map_or(0, String::len)
}

fn value(of: &Value) -> usize {
    AROUND
        + match of {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(value).sum(),
            Value::Object(map) => map.iter().map(|(key, item)| key.len() + value(item)).sum(),
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_core::request::Role;

    fn kept(text: &str) -> Kept {
        Kept { response: Value::Null, said: vec![Message::text(Role::User, text)], owner: None }
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many_or_they_are_too_large() {
        let store = Store::new(Bounds { responses: 2, bytes: 10_000 });
        for id in ["a", "b", "c"] {
            store.keep(id.into(), kept(id));
        }
        assert!(store.get("a").is_none() && store.get("b").is_some() && store.get("c").is_some());
        store.keep("d".into(), kept(&"x".repeat(9_700)));
        assert!(store.get("b").is_none() && store.get("c").is_none() && store.get("d").is_some());
        store.keep("e".into(), kept(&"x".repeat(20_000)));
        assert!(store.get("e").is_none() && store.get("d").is_some());
        assert!(store.forget("d") && !store.forget("d"));
        assert_eq!(store.inner().bytes, 0);
        assert!(store.inner().order.is_empty());
    }

    #[test]
    fn nothing_is_kept_where_nothing_may_be() {
        let store = Store::new(Bounds { responses: 0, bytes: 10_000 });
        store.keep("a".into(), kept("a"));
        assert!(store.get("a").is_none() && !store.keeps());
    }
}
