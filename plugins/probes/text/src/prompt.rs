//! How a request becomes a prompt, seen through the count of its tokens and through what another
//! prompt changes: one beginning of text, a chat format, a system role.

use gristmill_plugin::{prelude::*, probe::serving};
use probe_kit::{Bench, Standing, Stop, Verdict, ask::ask, failed, not_applicable, reach::reaches};

/// How families spell the beginning of a text.
const BOS: [&str; 5] = ["<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"];

/// Tokens of the prompt of this request.
fn count(request: &Request) -> Result<u32, Stop> {
    match ask(request)?.usage {
        Some(usage) if usage.prompt > 0 => Ok(usage.prompt),
        _ => not_applicable("the prompt's tokens are not told"),
    }
}

/// A text prompt gets the beginning of text at most once, also if it is spelled out already.
pub(crate) fn bos_once(bench: &Bench) -> Verdict {
    if let Standing::Denied(why) = bench.standing("inference.text") {
        return not_applicable(why);
    }
    let text = "The sky is blue.";
    let bare = serving::tokenize(&bench.model, text, true)?.len();
    let counted = count(&bench.plain(text, 1))? as usize;
    if counted < bare || counted > bare + 1 {
        let seen = format!("{bare} tokens, a prompt of {counted}");
        return failed("expected at most one token more than the text has", seen);
    }
    if counted == bare {
        return Ok(format!("{bare} tokens, none added"));
    }
    let mut tried = false;
    for spelling in BOS {
        if serving::tokenize(&bench.model, spelling, true)?.len() != 1 {
            continue;
        }
        tried = true;
        let spelled = count(&bench.plain(&format!("{spelling}{text}"), 1))? as usize;
        // One: the spelled one is the beginning. Two: it is another token of this model.
        if serving::tokenize(&bench.model, &format!("{spelling}{text}"), true)?.len() == counted
            && spelled > counted
            && spelling != "<|endoftext|>"
        {
            let seen = format!("{spelling}: {spelled} tokens instead of {counted}");
            return failed("the beginning of text came twice", seen);
        }
    }
    if !tried {
        return not_applicable(
            "one is added, and no spelling known here is one token of this model",
        );
    }
    Ok(format!("{bare} tokens, one added"))
}

fn chat(bench: &Bench, messages: &[(Role, &str)]) -> Request {
    let mut request = bench.request("", 8);
    let message = |(role, text): &(Role, &str)| Message::text(role.clone(), *text);
    request.prompt = Prompt::Chat(messages.iter().map(message).collect());
    request
}

fn has_chat(bench: &Bench) -> Result<(), Stop> {
    for capability in ["inference.text", "inference.chat"] {
        if let Standing::Denied(why) = bench.standing(capability) {
            return not_applicable(why);
        }
    }
    Ok(())
}

/// A conversation is rendered: turns have marks around them, and every turn counts.
pub(crate) fn template(bench: &Bench) -> Verdict {
    has_chat(bench)?;
    let long = "One two three four five six seven eight nine ten.";
    let one = count(&chat(bench, &[(Role::User, "Hello.")]))?;
    let three = count(&chat(
        bench,
        &[(Role::User, "Hello."), (Role::Assistant, long), (Role::User, "Go on.")],
    ))?;
    if three <= one + 5 {
        return failed("earlier turns do not reach the model", format!("{one} and {three} tokens"));
    }
    if bench.claims("tokenize") && bench.claims("inference.chat") {
        let bare = serving::tokenize(&bench.model, "Hello.", false)?.len();
        if one as usize <= bare {
            let seen = format!("{bare} tokens of text, a prompt of {one}");
            return failed("the message has no marks of a turn around it", seen);
        }
    }
    let turns = |user: &str, assistant: &str| {
        chat(bench, &[(Role::User, user), (Role::Assistant, assistant), (Role::User, "Go on.")])
    };
    let others = [
        (turns("Good evening, my friend.", long), "user's turn"),
        (turns("Hello.", "The river is cold and deep today."), "turn of the assistant"),
    ];
    reaches(bench, &turns("Hello.", long), &others)?;
    Ok(format!("{one} tokens for one turn, {three} for three; other turns, another answer"))
}

/// The system's text reaches the model, whether the family has such a role or not.
pub(crate) fn system(bench: &Bench) -> Verdict {
    has_chat(bench)?;
    let long = "You are a careful clerk who answers in one short sentence and never guesses.";
    let one = count(&chat(bench, &[(Role::System, "Be kind."), (Role::User, "Hello.")]))?;
    let longer = count(&chat(bench, &[(Role::System, long), (Role::User, "Hello.")]))?;
    if longer < one + 5 {
        return failed("the system's text does not reach the model", format!("{one}, {longer}"));
    }
    let told = |system: &str| chat(bench, &[(Role::System, system), (Role::User, "Hello.")]);
    reaches(bench, &told(long), &[(told("Be kind."), "text of the system")])?;
    Ok(format!("{one} tokens with a short one, {longer} with a long one, and another answer"))
}
