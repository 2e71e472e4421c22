//! One forced call for each type that an argument can have.

use gristmill_plugin::prelude::*;
use probe_kit::{
    Bench, Stop, Verdict,
    ask::{Answer, Call, ask, tool},
    failed, json, not_applicable, short,
};

/// Tokens a call may take; more than it needs, for models that write blanks wherever they may.
pub(crate) const ROOM: u32 = 192;

/// An answer to a request that forces a call; "not applicable" where calls cannot be forced, or did
/// not fit.
pub(crate) fn forced(bench: &Bench, request: &Request) -> Result<Answer, Stop> {
    let answer = match ask(request) {
        Err(error) if error.code == "unsupported" && bench.claims("tools.required") => {
            return failed("that calls can be forced is claimed, and refused", error.message);
        }
        Err(error) if error.code == "unsupported" => {
            return not_applicable(format!("calls cannot be forced: {}", error.message));
        }
        other => other?,
    };
    if answer.calls.is_empty() {
        // A call that the limit cut is no call yet, and no text either.
        return match &*answer.finish {
            "length" if answer.text.trim().is_empty() => {
                not_applicable("no whole call within the tokens allowed")
            }
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
    let none = || Stop::Failed("a call was forced and none came".to_owned(), short(&answer.seen()));
    answer.calls.first().ok_or_else(none)
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
    let answer = forced(bench, &request)?;
    let call = first(&answer)?;
    if call.name != "record" {
        return failed("another tool than the forced one", &*call.name);
    }
    if call.arguments.trim().is_empty() {
        return failed("a call without arguments is a call with {}", "nothing");
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

/// Each of these values, alone: where one may be chosen, the others are never seen.
fn each(bench: &Bench, values: &[&str]) -> Verdict {
    let mut seen = Vec::new();
    for one in values {
        seen.push(value(bench, &format!(r#"{{"enum":[{one}]}}"#))?);
    }
    Ok(seen.join(" "))
}

pub(crate) fn string(bench: &Bench) -> Verdict {
    each(bench, &[r#""grün""#, r#""Straße \"7\"""#, r#""你好 🙂""#, r#""""#])
}

pub(crate) fn boolean(bench: &Bench) -> Verdict {
    value(bench, r#"{"type":"boolean"}"#)?;
    each(bench, &["true", "false"])
}

/// The last has as many digits as any back-end keeps; half of them are lost on the way through 32 bits.
pub(crate) fn number(bench: &Bench) -> Verdict {
    value(bench, r#"{"type":"integer","enum":[7,42,-1]}"#)?;
    each(bench, &["0", "-2.25", "123456789012345"])
}

pub(crate) fn array(bench: &Bench) -> Verdict {
    value(bench, r#"{"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":3}"#)?;
    each(bench, &[r#"["b","a"]"#, "[]"])
}

pub(crate) fn object(bench: &Bench) -> Verdict {
    value(
        bench,
        r#"{"type":"object","properties":{"inner":{"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"],"additionalProperties":false}},"required":["inner"],"additionalProperties":false}"#,
    )?;
    each(bench, &["{}"])
}

pub(crate) fn null(bench: &Bench) -> Verdict {
    value(bench, r#"{"type":"null"}"#)
}

/// A tool without parameters is called with `{}`, not with nothing, whatever binds the model.
pub(crate) fn empty(bench: &Bench) -> Verdict {
    arguments(bench, r#"{"type":"object","properties":{},"additionalProperties":false}"#)
}
