//! Calls as a whole: none when none may be made, ids that hold, one channel, and the way back.

use gristmill_plugin::prelude::*;
use probe_kit::{
    Bench, Stop, Verdict,
    ask::{Answer, Call, ask, ask_by, tool},
    failed, not_applicable, short,
};

use crate::values::{first, forced};

const ROOM: u32 = 96;
const SWITCH: &str = r#"{"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"],"additionalProperties":false}"#;

fn request(bench: &Bench) -> Request {
    bench.forced("Switch the light on.", tool("switch", SWITCH), ROOM)
}

/// `none` means that no call comes.
pub(crate) fn none(bench: &Bench) -> Verdict {
    let mut request = request(bench);
    request.tool_choice = ToolChoice::None;
    let answer = ask(&request)?;
    match answer.calls.first() {
        Some(call) => failed("a call although none may be made", &*call.name),
        None => Ok(short(&answer.text)),
    }
}

/// Every call has an id of its own, an index in order, and a name that was on offer.
fn sound(answer: &Answer, names: &[&str]) -> Result<(), Stop> {
    for (place, call) in answer.calls.iter().enumerate() {
        if call.id.is_empty() {
            return failed("a call without an id", &*call.name);
        }
        if answer.calls.iter().skip(place + 1).any(|other| other.id == call.id) {
            return failed("two calls with one id", &*call.id);
        }
        if call.index as usize != place {
            return failed("calls count from 0 without gaps", format!("{} at {place}", call.index));
        }
        if !names.contains(&&*call.name) {
            return failed("a call of a tool that was not on offer", &*call.name);
        }
    }
    Ok(())
}

pub(crate) fn ids(bench: &Bench) -> Verdict {
    let one = forced(&request(bench))?;
    sound(&one, &["switch"])?;
    let mut again = request(bench);
    again.id.push_str("-2");
    let two = forced(&again)?;
    sound(&two, &["switch"])?;
    let (a, b) = (&first(&one)?.id, &first(&two)?.id);
    if a == b {
        return failed("two answers with one call id", &**a);
    }
    Ok(format!("{a}, {b}"))
}

/// A call is in its own channel and nowhere else.
pub(crate) fn channel(bench: &Bench) -> Verdict {
    const MARKS: [&str; 5] =
        ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<function="];
    let answer = forced(&request(bench))?;
    let call = first(&answer)?;
    let both = call.arguments.len() > 4 && answer.text.contains(&*call.arguments);
    if both || MARKS.iter().any(|mark| answer.text.contains(mark)) {
        return failed("the call is in the text too", short(&answer.text));
    }
    Ok(short(&answer.seen()))
}

/// A call and its result are taken back into the next turn, the id with them.
pub(crate) fn round_trip(bench: &Bench) -> Verdict {
    let ids = ["call_0", "call_1"];
    let call = |id: &str, on: &str| ToolCall {
        id: id.to_owned(),
        name: "switch".to_owned(),
        arguments: format!("{{\"on\":{on}}}"),
    };
    let mut assistant = Message::text(Role::Assistant, "");
    assistant.content.clear();
    assistant.tool_calls = vec![call("call_0", "true"), call("call_1", "false")];
    let result = |id: &str, text: &str| Message {
        tool_call_id: Some(id.to_owned()),
        name: Some("switch".to_owned()),
        ..Message::text(Role::Tool, text)
    };
    let mut request = request(bench);
    request.tool_choice = ToolChoice::Auto;
    request.max_tokens = Some(16);
    let begun = vec![Message::text(Role::User, "Switch the light on.")];
    request.prompt = Prompt::Chat(begun.clone());
    let before = ask(&request)?;
    let turns = [assistant, result("call_0", "The light is on."), result("call_1", "It is off.")];
    request.prompt = Prompt::Chat(begun.into_iter().chain(turns).collect());
    let after = ask(&request)?;
    let told = |answer: &Answer| answer.usage.as_ref().map(|usage| usage.prompt);
    if let (Some(before), Some(after)) = (told(&before), told(&after))
        && after <= before
    {
        return failed("calls and results do not reach the model", format!("{before}, {after}"));
    }
    if after.calls.iter().any(|call| ids.contains(&&*call.id)) {
        return failed("a new call has the id of an old one", short(&after.seen()));
    }
    Ok(format!("{:?} tokens, then {:?}", told(&before), told(&after)))
}

/// With parallel calls off there is at most one; on, each has its own place.
pub(crate) fn parallel(bench: &Bench) -> Verdict {
    let mut request = bench.request("Switch the light on, and the heating too.", ROOM * 2);
    request.tools = vec![tool("switch", SWITCH), tool("heat", SWITCH)];
    request.tool_choice = ToolChoice::Required;
    request.parallel_tool_calls = Some(false);
    let one = forced(&request)?;
    sound(&one, &["switch", "heat"])?;
    if one.calls.len() > 1 {
        return failed("several calls where one may be made", short(&one.seen()));
    }
    request.parallel_tool_calls = Some(true);
    let many = forced(&request)?;
    sound(&many, &["switch", "heat"])?;
    Ok(format!("1, then {}", many.calls.len()))
}

fn same(calls: &[Call], others: &[Call]) -> bool {
    let view = |call: &Call| (call.index, call.name.clone(), call.arguments.clone());
    calls.iter().map(view).eq(others.iter().map(view))
}

/// The same calls event by event and all at once.
pub(crate) fn streaming(bench: &Bench) -> Verdict {
    let whole = forced(&request(bench))?;
    let pieces = ask_by(&request(bench), 1)?;
    if !same(&whole.calls, &pieces.calls) || whole.text != pieces.text {
        let seen = format!("{} | {}", short(&whole.seen()), short(&pieces.seen()));
        return failed("other calls when they are streamed", seen);
    }
    Ok(short(&whole.seen()))
}

/// Arguments flow while they are written.
pub(crate) fn fragments(bench: &Bench) -> Verdict {
    let list = r#"{"type":"object","properties":{"list":{"type":"array","items":{"type":"boolean"},"minItems":12,"maxItems":12}},"required":["list"],"additionalProperties":false}"#;
    let answer = ask_by_forced(&bench.forced("Fill the list.", tool("fill", list), ROOM))?;
    let call = first(&answer)?;
    let seen = format!("{} bytes in {} pieces", call.arguments.len(), call.pieces);
    if call.arguments.len() < 40 {
        return not_applicable(format!("arguments too short to tell: {seen}"));
    }
    if call.pieces < 2 {
        return failed("the arguments came in one piece", seen);
    }
    Ok(seen)
}

fn ask_by_forced(request: &Request) -> Result<Answer, Stop> {
    forced(request)?;
    Ok(ask_by(request, 1)?)
}
