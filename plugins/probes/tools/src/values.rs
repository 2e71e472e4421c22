//! One forced call for each type that an argument can have.

use gristmill_plugin::prelude::*;
use probe_kit::{
    Bench, Stop, Verdict,
    ask::{Answer, Call, ask, tool},
    failed, json, not_applicable, short,
};

/// Tokens a call may take.
const ROOM: u32 = 96;

/// An answer to a request that forces a call; "not applicable" where calls cannot be forced, or did
/// not fit.
pub(crate) fn forced(request: &Request) -> Result<Answer, Stop> {
    let answer = match ask(request) {
        Err(error) if error.code == "unsupported" => {
            return not_applicable(format!("calls cannot be forced: {}", error.message));
        }
        other => other?,
    };
    if answer.calls.is_empty() {
        return match &*answer.finish {
            "length" => not_applicable("no whole call within the tokens allowed"),
            _ => failed("a call was forced and none came", short(&answer.seen())),
        };
    }
    if answer.finish == "length" {
        return not_applicable("no whole call within the tokens allowed");
    }
    if answer.finish != "tool-calls" {
        return failed("expected the reason tool-calls", answer.finish);
    }
    Ok(answer)
}

/// The first call.
pub(crate) fn first(answer: &Answer) -> Result<&Call, Stop> {
    answer.calls.first().ok_or_else(|| Stop::NotApplicable("no call".to_owned()))
}

/// A tool `record` with one parameter of this schema, forced; its arguments satisfy the schema.
fn value(bench: &Bench, schema: &str) -> Verdict {
    let parameters = format!(
        r#"{{"type":"object","properties":{{"value":{schema}}},"required":["value"],"additionalProperties":false}}"#
    );
    arguments(bench, &parameters)
}

fn arguments(bench: &Bench, parameters: &str) -> Verdict {
    let request = bench.forced("Record a value of your choice.", tool("record", parameters), ROOM);
    let answer = forced(&request)?;
    let call = first(&answer)?;
    if call.name != "record" {
        return failed("another tool than the forced one", &*call.name);
    }
    let seen = short(&call.arguments);
    match json::check(&call.arguments, parameters) {
        Ok(_) => Ok(seen),
        Err(why) if bench.claims("structured_output") => {
            failed(format!("arguments against their schema: {why}"), seen)
        }
        Err(why) if json::parse(&call.arguments).is_ok() => not_applicable(format!(
            "arguments are not bound to the schema here, so the model's wit decides: {why}"
        )),
        Err(why) => not_applicable(format!("the model wrote no JSON, and nothing bound it: {why}")),
    }
}

pub(crate) fn string(bench: &Bench) -> Verdict {
    value(bench, r#"{"type":"string","enum":["grün","Straße \"7\"","你好"]}"#)
}

pub(crate) fn boolean(bench: &Bench) -> Verdict {
    value(bench, r#"{"type":"boolean"}"#)
}

pub(crate) fn number(bench: &Bench) -> Verdict {
    value(bench, r#"{"type":"integer","enum":[7,42,-1]}"#)?;
    value(bench, r#"{"enum":[0.5,-2.25]}"#)
}

pub(crate) fn array(bench: &Bench) -> Verdict {
    value(bench, r#"{"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":3}"#)
}

pub(crate) fn object(bench: &Bench) -> Verdict {
    value(
        bench,
        r#"{"type":"object","properties":{"inner":{"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"],"additionalProperties":false}},"required":["inner"],"additionalProperties":false}"#,
    )
}

pub(crate) fn null(bench: &Bench) -> Verdict {
    value(bench, r#"{"type":"null"}"#)
}

/// A tool without parameters is called with `{}`, not with nothing.
pub(crate) fn empty(bench: &Bench) -> Verdict {
    arguments(bench, r#"{"type":"object","properties":{},"additionalProperties":false}"#)
}
