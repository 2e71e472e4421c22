//! From a request to a prompt: one token per letter, `<s>` as the beginning.

use crate::{
    CONTEXT, Job, error,
    gristmill::contract::types::{Error, Message, Part, Prompt, Role},
};

/// The beginning of a text, as a token beyond Unicode.
const BOS: u32 = 0x11_0001;

pub(crate) fn tokenize(model: &str, text: &str, special: bool) -> Vec<u32> {
    let letters = match model {
        "squeezes" => text.split(' ').filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" "),
        "drops-marks" => text.chars().filter(|c| !('\u{300}'..'\u{370}').contains(c)).collect(),
        _ => text.to_owned(),
    };
    let mut tokens = Vec::new();
    let mut rest = &*letters;
    while let Some(letter) = rest.chars().next() {
        let inside = model == "forges-inside" && !tokens.is_empty();
        let known = (special || model == "forges" || inside) && model != "no-specials";
        let marked = rest.strip_prefix("<s>").filter(|_| known);
        (rest, tokens) = match marked {
            Some(after) => (after, [tokens, vec![BOS]].concat()),
            None => (&rest[letter.len_utf8()..], [tokens, vec![letter.into()]].concat()),
        };
    }
    tokens
}

pub(crate) fn detokenize(tokens: &[u32]) -> Vec<u8> {
    let spelled = |token: &u32| match *token {
        BOS => "<s>".to_owned(),
        other => char::from_u32(other).map(String::from).unwrap_or_default(),
    };
    tokens.iter().map(spelled).collect::<String>().into_bytes()
}

/// What is seen and heard is spelled as a checksum of its bytes; who does not look sees them all alike.
fn text(job: &Job, message: &Message) -> String {
    let mut text = String::new();
    for part in &message.content {
        match part {
            Part::Text(more) => text.push_str(more),
            Part::Image(media) | Part::Audio(media) if !job.lies("blind") => {
                let mix = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
                let sum = media.data.iter().fold(0x811c_9dc5, mix);
                let unread = job.lies("glances") || job.lies("deaf");
                text.push_str(&format!("[{:08x}]", if unread { 0 } else { sum }));
            }
            _ => {}
        }
    }
    for call in &message.tool_calls {
        text.push_str(&call.arguments);
    }
    text
}

/// The prompt as text.
pub(crate) fn rendered(job: &Job) -> String {
    match &job.request.prompt {
        Prompt::Text(text) | Prompt::Infill((text, _)) => text.clone(),
        Prompt::Tokens(tokens) => String::from_utf8(detokenize(tokens)).unwrap(),
        Prompt::Chat(messages) => {
            let last = messages.len().saturating_sub(1);
            let read = |(place, message): &(usize, &Message)| match message.role {
                Role::System => !job.lies("ignores-system"),
                Role::Tool => !job.lies("forgets-results"),
                Role::Assistant if !message.tool_calls.is_empty() => !job.lies("forgets-results"),
                _ => !job.lies("forgets-turns") || *place == last,
            };
            let turns = messages.iter().enumerate().filter(read);
            turns.map(|(_, message)| format!("[{}]\n", text(job, message))).collect()
        }
    }
}

/// What of the prompt the answer depends on; all of it, but for two lies.
pub(crate) fn read(job: &Job) -> String {
    let all = rendered(job);
    match &*job.lie {
        "counts-unread" => all.lines().last().unwrap_or_default().to_owned(),
        "reads-tail" => {
            let skipped = all.chars().count().saturating_sub(CONTEXT as usize / 2);
            all.chars().skip(skipped).collect()
        }
        _ => all,
    }
}

/// The id of the first call in the conversation.
pub(crate) fn first_id(job: &Job) -> Option<String> {
    let Prompt::Chat(messages) = &job.request.prompt else { return None };
    messages.iter().flat_map(|message| &message.tool_calls).map(|call| call.id.clone()).next()
}

/// Tokens of the prompt, the beginning included, where they fit.
pub(crate) fn length(job: &Job) -> Result<u32, Error> {
    let text = rendered(job);
    let spelled = text.starts_with("<s>");
    let mut length = match &job.request.prompt {
        Prompt::Tokens(tokens) => tokens.len(),
        _ => tokenize(&job.lie, &text, true).len(),
    } as u32;
    let tokens = matches!(job.request.prompt, Prompt::Tokens(_));
    if !tokens && (!spelled || job.lies("two-beginnings")) {
        length += 1;
    }
    if length > CONTEXT {
        if job.lies("truncates") {
            return Ok(CONTEXT);
        }
        return Err(error("context-overflow", &format!("{length} tokens, {CONTEXT} fit")));
    }
    if job.lies("reads-half") && length > CONTEXT / 2 {
        return Ok(CONTEXT / 2);
    }
    Ok(length)
}
