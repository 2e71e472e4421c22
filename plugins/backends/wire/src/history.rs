//! A conversation's tool calls, linked: every call has an id, every result the id and the name of
//! the call it answers. Some clients send results with a name alone, some without either.
//!
//! Bounds: pictures and sounds of one conversation have at most [`MOST_MEDIA`] bytes.

use gristmill_plugin::prelude::*;

/// Bytes of pictures and sounds: they are written in base64, and moved from object to object.
pub const MOST_MEDIA: usize = 16 << 20;

/// One message of a conversation.
#[derive(Debug)]
pub struct Turn<'m> {
    /// The message.
    pub message: &'m Message,
    /// The ids of its calls, in order.
    pub call_ids: Vec<String>,
    /// On a tool message: id and, where it is known, name of the call it answers.
    pub answers: Option<(String, Option<String>)>,
}

/// Links the messages.
///
/// # Errors
/// `invalid-request` for a result that answers no call, and for too much media.
pub fn linked(messages: &[Message]) -> Result<Vec<Turn<'_>>> {
    let parts = messages.iter().flat_map(|message| &message.content);
    let bytes: usize = parts.map(media_bytes).sum();
    if bytes > MOST_MEDIA {
        let what = format!(
            "messages: expected at most {MOST_MEDIA} bytes of pictures and sounds, found {bytes}"
        );
        return Err(Error::invalid_request(what).with("field", "messages"));
    }
    // Id, name, and whether a result has come.
    let mut calls: Vec<(String, &str, bool)> = Vec::new();
    let mut turns = Vec::with_capacity(messages.len());
    for (at, message) in messages.iter().enumerate() {
        let ids: Vec<String> = (0..)
            .zip(&message.tool_calls)
            .map(|(n, call)| match call.id.as_str() {
                "" => format!("call_{at}_{n}"),
                id => id.to_owned(),
            })
            .collect();
        let named = ids.iter().cloned().zip(&message.tool_calls);
        calls.extend(named.map(|(id, call)| (id, call.name.as_str(), false)));
        let answers = if message.role == Role::Tool {
            Some(answered(&mut calls, message, at)?)
        } else {
            None
        };
        turns.push(Turn { message, call_ids: ids, answers });
    }
    Ok(turns)
}

fn media_bytes(part: &Part) -> usize {
    match part {
        Part::Image(media) | Part::Audio(media) => media.data.len(),
        Part::Text(_) | Part::Other(_) => 0,
    }
}

fn answered(
    calls: &mut [(String, &str, bool)],
    message: &Message,
    at: usize,
) -> Result<(String, Option<String>)> {
    let wanted = message.tool_call_id.as_deref().filter(|id| !id.is_empty());
    let name = message.name.as_deref().filter(|name| !name.is_empty());
    let found = match (wanted, name) {
        // Some clients count the calls of each turn from 0 again: the last one is meant.
        (Some(wanted), _) => calls.iter_mut().rfind(|(id, ..)| wanted == id),
        (None, Some(name)) => calls.iter_mut().find(|(_, call, done)| !*done && name == *call),
        (None, None) => calls.iter_mut().find(|(.., done)| !*done),
    };
    match (found, wanted) {
        (Some((id, called, done)), _) => {
            *done = true;
            Ok((id.clone(), Some((*called).to_owned())))
        }
        // A conversation whose beginning was cut off.
        (None, Some(wanted)) => Ok((wanted.to_owned(), name.map(ToOwned::to_owned))),
        (None, None) => {
            let field = format!("messages[{at}].tool_call_id");
            let what = "expected the id, or the name, of a call in an earlier message";
            Err(Error::invalid_request(format!("{field}: {what}")).with("field", field))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, name: &str) -> ToolCall {
        ToolCall { id: id.into(), name: name.into(), arguments: "{}".into() }
    }

    fn result(id: Option<&str>, name: Option<&str>) -> Message {
        let mut message = Message::text(Role::Tool, "42");
        message.tool_call_id = id.map(Into::into);
        message.name = name.map(Into::into);
        message
    }

    #[test]
    fn results_find_their_calls_by_id_by_name_and_by_order() {
        let mut first = Message::text(Role::Assistant, "");
        first.tool_calls = vec![call("", "a"), call("x", "b"), call("", "a")];
        let messages = [
            first,
            result(None, Some("a")),
            result(Some("x"), None),
            result(None, None),
            result(Some("lost"), Some("c")),
        ];
        let turns = linked(&messages).unwrap();
        assert_eq!(turns[0].call_ids, ["call_0_0", "x", "call_0_2"]);
        let answers: Vec<_> = turns[1..].iter().map(|turn| turn.answers.clone().unwrap()).collect();
        let some = |id: &str, name: &str| (id.to_owned(), Some(name.to_owned()));
        assert_eq!(
            answers,
            [some("call_0_0", "a"), some("x", "b"), some("call_0_2", "a"), some("lost", "c")]
        );
        let turn = |name: &str| {
            let mut turn = Message::text(Role::Assistant, "");
            turn.tool_calls = vec![call("call_0", name)];
            turn
        };
        let answer = result(Some("call_0"), None);
        let messages = [turn("a"), answer.clone(), turn("b"), answer];
        let answers = linked(&messages).unwrap();
        assert_eq!(answers[1].answers, Some(some("call_0", "a")));
        assert_eq!(answers[3].answers, Some(some("call_0", "b")));
        let error = linked(&[result(None, Some("a"))]).unwrap_err();
        assert_eq!(error.code, "invalid-request");
        assert_eq!(error.details, [("field".to_owned(), "messages[0].tool_call_id".to_owned())]);
    }
}
