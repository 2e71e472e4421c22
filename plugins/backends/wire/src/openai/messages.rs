//! Messages as `/v1/chat/completions` takes them.

use gristmill_plugin::prelude::*;

use super::{Profile, refused};
use crate::{
    Fields,
    history::{Turn, linked},
};

/// The conversation.
///
/// # Errors
/// `unsupported` for a part the server does not take, `invalid-request` for a result without a call.
pub(super) fn write(profile: &Profile, messages: &[Message]) -> Result<Vec<Fields>> {
    linked(messages)?.iter().enumerate().map(|(at, turn)| message(profile, at, turn)).collect()
}

fn message(profile: &Profile, at: usize, turn: &Turn<'_>) -> Result<Fields> {
    let message = turn.message;
    let mut fields = Fields::new();
    fields.set(
        "role",
        match &message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
            Role::Other(word) => word,
        },
    );
    let texts = message.content.iter().all(|part| matches!(part, Part::Text(_)));
    if !texts {
        let parts: Result<Vec<Fields>> = (0..)
            .zip(&message.content)
            .map(|(n, content)| part(profile, &format!("messages[{at}].content[{n}]"), content))
            .collect();
        fields.objects("content", parts?);
    } else if message.content.is_empty() && !message.tool_calls.is_empty() {
        fields.set("content", None::<&str>);
    } else {
        fields.set("content", message.whole_text());
    }
    fields.maybe(profile.thinking.back, message.reasoning.as_deref());
    if !message.tool_calls.is_empty() {
        let calls = turn.call_ids.iter().zip(&message.tool_calls).map(|(id, call)| {
            let mut function = Fields::new();
            function.set("name", &call.name);
            function.set("arguments", &call.arguments);
            let mut fields = Fields::new();
            fields.set("id", id);
            fields.set("type", "function");
            fields.object("function", function);
            fields
        });
        fields.objects("tool_calls", calls);
    }
    if let Some((id, name)) = &turn.answers {
        fields.set("tool_call_id", id);
        fields.maybe("name", name.as_deref());
    } else {
        fields.maybe("name", message.name.as_deref());
    }
    Ok(fields)
}

fn part(profile: &Profile, field: &str, part: &Part) -> Result<Fields> {
    let mut fields = Fields::new();
    match part {
        Part::Text(text) => {
            fields.set("type", "text");
            fields.set("text", text);
        }
        Part::Image(media) if profile.media => {
            let mut image = Fields::new();
            image.base64("url", &format!("data:{};base64,", media.mime), &media.data);
            fields.set("type", "image_url");
            fields.object("image_url", image);
        }
        Part::Audio(media) if profile.media => {
            let format = match media.mime.as_str() {
                "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
                "audio/mpeg" | "audio/mp3" => "mp3",
                other => {
                    let why = format!("expected audio/wav or audio/mpeg, found {other}");
                    return Err(refused(profile, field, &why));
                }
            };
            let mut audio = Fields::new();
            audio.base64("data", "", &media.data);
            audio.set("format", format);
            fields.set("type", "input_audio");
            fields.object("input_audio", audio);
        }
        Part::Image(_) | Part::Audio(_) => {
            return Err(refused(profile, field, "the server takes text alone"));
        }
        Part::Other((kind, _)) => {
            return Err(refused(profile, field, &format!("there is no part of kind {kind}")));
        }
    }
    Ok(fields)
}
