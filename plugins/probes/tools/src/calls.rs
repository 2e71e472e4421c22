//! Calls as a whole: none when none may be made, ids that hold, one channel, and the way back.

use gristmill_plugin::prelude::*;
use probe_kit::{
    Bench, Stop, Verdict,
    ask::{Answer, Call, ask, ask_by, tool},
    failed, json, not_applicable,
    reach::reaches,
    short,
};

use crate::values::{ROOM, first, forced};

const SWITCH: &str = r#"{"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"],"additionalProperties":false}"#;
const HEAT: &str = r#"{"type":"object","properties":{"degrees":{"type":"integer","enum":[7,21]}},"required":["degrees"],"additionalProperties":false}"#;

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
    let one = forced(bench, &request(bench))?;
    sound(&one, &["switch"])?;
    let mut again = request(bench);
    again.id.push_str("-2");
    let two = forced(bench, &again)?;
    sound(&two, &["switch"])?;
    let (a, b) = (&first(&one)?.id, &first(&two)?.id);
    if a == b {
        return failed("two answers with one call id", &**a);
    }
    Ok(format!("{a}, {b}"))
}

/// A call is in its own channel and nowhere else.
pub(crate) fn channel(bench: &Bench) -> Verdict {
    const MARKS: [&str; 8] = [
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "<function_call>",
        "[TOOL_CALLS]",
        "<|python_tag|>",
        "<|tool_call",
        "<function=",
    ];
    let answer = forced(bench, &request(bench))?;
    let call = first(&answer)?;
    // However it is spaced.
    let bare = |text: &str| text.split_whitespace().collect::<String>();
    let both = call.arguments.len() > 4 && bare(&answer.text).contains(&bare(&call.arguments));
    if both || MARKS.iter().any(|mark| answer.text.contains(mark)) {
        return failed("the call is in the text too", short(&answer.text));
    }
    Ok(short(&answer.seen()))
}

/// A conversation in which two calls were made and answered.
struct Past<'p> {
    ids: [&'p str; 2],
    arguments: &'p str,
    result: &'p str,
}

impl Past<'_> {
    fn turns(&self) -> Vec<Message> {
        let [one, two] = self.ids;
        let call = |id: &str, arguments: &str| ToolCall {
            id: id.to_owned(),
            name: "switch".to_owned(),
            arguments: arguments.to_owned(),
        };
        let mut assistant = Message::text(Role::Assistant, "");
        assistant.content.clear();
        assistant.tool_calls = vec![call(one, self.arguments), call(two, r#"{"on":false}"#)];
        let result = |id: &str, text: &str| Message {
            tool_call_id: Some(id.to_owned()),
            name: Some("switch".to_owned()),
            ..Message::text(Role::Tool, text)
        };
        let begun = Message::text(Role::User, "Switch the light on.");
        vec![begun, assistant, result(one, self.result), result(two, "It is off.")]
    }
}

/// Calls and their results are taken back into the next turn, and a call made then has an id of its
/// own.
pub(crate) fn round_trip(bench: &Bench) -> Verdict {
    // The back-end's own id where a call can be forced; it is the likeliest to come again.
    let made = match forced(bench, &request(bench)) {
        Ok(answer) => first(&answer)?.id.clone(),
        Err(Stop::NotApplicable(_)) => String::new(),
        Err(failed) => return Err(failed),
    };
    let one = if made.is_empty() { "call_0" } else { &*made };
    let ids = [one, "call_1"];
    let after = |arguments, result| {
        let mut request = request(bench);
        request.id.push_str("-after");
        request.tool_choice = ToolChoice::Auto;
        request.max_tokens = Some(16);
        request.prompt = Prompt::Chat(Past { ids, arguments, result }.turns());
        request
    };
    let (on, lit) = (r#"{"on":true}"#, "The light is on.");
    let mut before = after(on, lit);
    before.prompt = Prompt::Chat(vec![Message::text(Role::User, "Switch the light on.")]);
    let before = ask(&before)?;
    let with = ask(&after(on, lit))?;
    let told = |answer: &Answer| answer.usage.as_ref().map(|usage| usage.prompt);
    if let (Some(before), Some(with)) = (told(&before), told(&with))
        && with <= before
    {
        return failed("calls and results do not reach the model", format!("{before}, {with}"));
    }
    let mut again = after(on, lit);
    again.tool_choice = ToolChoice::Named("switch".to_owned());
    again.max_tokens = Some(ROOM);
    let new = match forced(bench, &again) {
        Err(Stop::NotApplicable(_)) => with.calls.clone(),
        other => other?.calls,
    };
    if let Some(call) = new.iter().find(|call| ids.contains(&&*call.id)) {
        return failed("a new call has the id of an old one", &*call.id);
    }
    let others = [
        (after(on, "The lamp is broken, call somebody."), "result of a call"),
        (after(r#"{"on":false}"#, lit), "call's arguments"),
    ];
    reaches(bench, &after(on, lit), &others)?;
    if new.is_empty() {
        return not_applicable(
            "they reach the model, but no call came after, so no new id was seen",
        );
    }
    Ok(format!("{:?} tokens, then {:?}; {} calls after", told(&before), told(&with), new.len()))
}

/// With parallel calls off there is at most one; on, each has its own place and its own arguments.
pub(crate) fn parallel(bench: &Bench) -> Verdict {
    let mut request = bench.request("Switch the light on, and the heating too.", ROOM * 2);
    let offered = [("switch", SWITCH), ("heat", HEAT)];
    request.tools = offered.map(|(name, parameters)| tool(name, parameters)).into();
    request.tool_choice = ToolChoice::Required;
    request.parallel_tool_calls = Some(false);
    let one = forced(bench, &request)?;
    sound(&one, &["switch", "heat"])?;
    if one.calls.len() > 1 {
        return failed("several calls where one may be made", short(&one.seen()));
    }
    request.parallel_tool_calls = Some(true);
    let many = forced(bench, &request)?;
    sound(&many, &["switch", "heat"])?;
    for call in &many.calls {
        let schema = offered.iter().find(|(name, _)| *name == call.name).map(|(_, schema)| *schema);
        if let Err(why) = json::check(&call.arguments, schema.unwrap_or_default())
            && bench.claims("structured_output")
        {
            return failed(
                format!("{}: other arguments than its own: {why}", call.name),
                many.seen(),
            );
        }
    }
    match many.calls.len() {
        1 => not_applicable("the model made one call where it might have made several"),
        count => Ok(format!("1, then {count}")),
    }
}

fn same(whole: &Answer, pieces: &Answer) -> bool {
    let view = |call: &Call| (call.index, call.name.clone(), call.arguments.clone());
    let calls = whole.calls.iter().map(view).eq(pieces.calls.iter().map(view));
    calls && whole.text == pieces.text && whole.finish == pieces.finish
}

/// The same calls event by event and all at once, with ids that are as sound.
pub(crate) fn streaming(bench: &Bench) -> Verdict {
    let whole = forced(bench, &request(bench))?;
    let pieces = ask_by(&request(bench), 1)?;
    if !same(&whole, &pieces) {
        let seen = format!("{} | {}", short(&whole.seen()), short(&pieces.seen()));
        return failed("other calls when they are streamed", seen);
    }
    // What is wrong with them in any case is the business of `tools.ids`.
    if sound(&whole, &["switch"]).is_ok() {
        sound(&pieces, &["switch"])?;
    }
    Ok(short(&whole.seen()))
}

/// Arguments flow while they are written.
pub(crate) fn fragments(bench: &Bench) -> Verdict {
    let list = r#"{"type":"object","properties":{"list":{"type":"array","items":{"type":"boolean"},"minItems":12,"maxItems":12}},"required":["list"],"additionalProperties":false}"#;
    let request = bench.forced("Fill the list.", tool("fill", list), ROOM);
    forced(bench, &request)?;
    let answer = ask_by(&request, 1)?;
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
