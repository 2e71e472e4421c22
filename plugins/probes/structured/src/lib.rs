//! Probe: an answer that is bound to a form has that form. Schemas are such that every answer is
//! short, so the binding decides and not the model.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;
use probe_kit::{
    Bench, Standing, Stop, Verdict,
    ask::{Answer, ask, ask_by},
    failed, json, not_applicable, short,
};

probe_kit::suite! {
    "structured.object" of "structured_output" if Claimed => object,
    "structured.schema" of "structured_output" if Claimed => schema,
    "structured.unicode" of "structured_output" if Claimed => unicode,
    "structured.types" of "structured_output" if Claimed => types,
    "structured.regex" of "structured_output" if Claimed => regex,
    "structured.refused" of "structured_output" if Claimed => refused,
    "structured.streaming" of "structured_output" if Claimed => streaming,
}

/// Tokens an answer may take; more than it needs, for models that write blanks wherever they may.
const ROOM: u32 = 192;

const SCHEMA: &str = "structured.json-schema";

/// The answer under a constraint, at most `max` events at a time. A refusal by name is "not
/// applicable", unless this kind is claimed; and of a back-end that claims to bind answers, and denies
/// no kind, schemas are the least.
fn bound(
    bench: &Bench,
    kind: &str,
    constraint: Constraint,
    text: &str,
    max: u32,
) -> Result<Answer, Stop> {
    let mut request = bench.request(text, ROOM);
    request.constraint = Some(constraint);
    match ask_by(&request, max) {
        Err(error) if error.code == "unsupported" => match bench.standing(kind) {
            Standing::Claimed(_) => failed(format!("{kind} is claimed and refused"), error.message),
            Standing::Open(_) if kind == SCHEMA => {
                failed("structured_output is claimed and a schema refused", error.message)
            }
            _ => not_applicable(error.message),
        },
        other => Ok(other?),
    }
}

/// Whether an answer satisfies a schema. One that was cut proves nothing, unless it had already begun
/// as something else.
fn judge(answer: &Answer, schema: &str) -> Verdict {
    let seen = short(&answer.text);
    match json::check(&answer.text, schema) {
        Ok(_) => Ok(seen),
        Err(_) if answer.finish == "length" && json::begins(&answer.text, schema) => {
            not_applicable(format!("not whole within {ROOM} tokens: {seen}"))
        }
        Err(why) => failed(format!("the answer breaks its schema: {why}"), seen),
    }
}

fn fits(bench: &Bench, schema: &str) -> Verdict {
    let constraint = Constraint::JsonSchema(schema.to_owned());
    judge(&bound(bench, SCHEMA, constraint, "Answer in JSON.", 256)?, schema)
}

fn object(bench: &Bench) -> Verdict {
    let prompt = "Answer with the JSON object {\"ok\": true} and nothing else.";
    let kind = "structured.json-object";
    judge(&bound(bench, kind, Constraint::JsonObject, prompt, 256)?, r#"{"type":"object"}"#)
}

fn schema(bench: &Bench) -> Verdict {
    fits(
        bench,
        r#"{"type":"object","properties":{"kind":{"enum":["river","mountain"]},"high":{"type":"boolean"},"parts":{"type":"array","items":{"enum":[1,2,3]},"minItems":1,"maxItems":2}},"required":["kind","high","parts"],"additionalProperties":false}"#,
    )
}

/// Each of these, in any script; where one may be chosen, the others are never seen. The last has a
/// combining mark that must not be composed.
fn unicode(bench: &Bench) -> Verdict {
    let mut seen = Vec::new();
    for text in ["Größe, Straße", "你好", "🙂", "é", "e\u{301}"] {
        seen.push(fits(bench, &format!(r#"{{"enum":["{text}"]}}"#))?);
    }
    Ok(seen.join(" "))
}

fn types(bench: &Bench) -> Verdict {
    for schema in [
        r#"{"type":"boolean"}"#,
        r#"{"type":"null"}"#,
        r#"{"enum":[-1,0,12]}"#,
        r#"{"const":{"a":[true,null,"x"]}}"#,
    ] {
        fits(bench, schema)?;
    }
    Ok("boolean, null, numbers, a constant".to_owned())
}

fn regex(bench: &Bench) -> Verdict {
    let pattern = "(ab|cd)[0-9]{2}(x|y)";
    let constraint = Constraint::Regex(pattern.to_owned());
    let answer = bound(bench, "structured.regex", constraint, "Answer.", 256)?;
    let text = answer.text;
    // A match has five letters: what is cut and longer was none.
    if answer.finish == "length" && text.len() < 5 {
        return not_applicable(format!("not whole within {ROOM} tokens: {}", short(&text)));
    }
    let bytes = text.as_bytes();
    let matches = match bytes {
        [b'a', b'b', a, b, c] | [b'c', b'd', a, b, c] => {
            a.is_ascii_digit() && b.is_ascii_digit() && matches!(c, b'x' | b'y')
        }
        _ => false,
    };
    if matches { Ok(text) } else { failed(format!("expected a match of {pattern}"), short(&text)) }
}

/// A schema that is none is refused, not ignored, and not because every schema is.
fn refused(bench: &Bench) -> Verdict {
    fits(bench, r#"{"type":"boolean"}"#)?;
    for schema in [r#"{"type":"nonsense"}"#, r#"{"type":"#] {
        let mut request = bench.request("Answer in JSON.", 8);
        request.constraint = Some(Constraint::JsonSchema(schema.to_owned()));
        match ask(&request) {
            Err(error) if matches!(&*error.code, "invalid-request" | "unsupported") => {}
            Err(error) => return failed("expected invalid-request", error.code),
            Ok(answer) => {
                return failed(format!("{schema} was taken for a schema"), short(&answer.text));
            }
        }
    }
    Ok("two schemas that are none were refused".to_owned())
}

/// The binding holds event by event too: of a text, which no model can stretch with blanks, and of a
/// list, where it comes to an end.
fn streaming(bench: &Bench) -> Verdict {
    let piecewise = |schema: &str| {
        let constraint = Constraint::JsonSchema(schema.to_owned());
        judge(&bound(bench, SCHEMA, constraint, "Answer in JSON.", 1)?, schema)
    };
    let text = piecewise(r#"{"enum":["a river, two bridges and no stone"]}"#)?;
    let list = r#"{"type":"array","items":{"enum":["a","b"]},"minItems":3,"maxItems":3}"#;
    match piecewise(list) {
        Err(Stop::NotApplicable(_)) => Ok(text),
        other => Ok(format!("{text} {}", other?)),
    }
}
