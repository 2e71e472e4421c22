//! Probe: an answer that is bound to a form has that form. Schemas are such that every answer is
//! short, so the binding decides and not the model.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;
use probe_kit::{Bench, Stop, Verdict, ask::ask, failed, json, not_applicable, short};

probe_kit::suite! {
    "structured.object" of "structured_output" if Claimed => object,
    "structured.schema" of "structured_output" if Claimed => schema,
    "structured.unicode" of "structured_output" if Claimed => unicode,
    "structured.types" of "structured_output" if Claimed => types,
    "structured.regex" of "structured_output" if Claimed => regex,
    "structured.refused" of "structured_output" if Claimed => refused,
    "structured.streaming" of "structured_output" if Claimed => streaming,
}

const ROOM: u32 = 128;

/// The answer under a constraint. "Not applicable" where this kind is refused by name or the answer
/// was cut.
fn bound(bench: &Bench, constraint: Constraint, text: &str) -> Result<String, Stop> {
    let mut request = bench.request(text, ROOM);
    request.constraint = Some(constraint);
    let answer = match ask(&request) {
        Err(error) if error.code == "unsupported" => return not_applicable(error.message),
        other => other?,
    };
    if answer.finish == "length" {
        return not_applicable(format!("not whole within {ROOM} tokens: {}", short(&answer.text)));
    }
    Ok(answer.text)
}

fn fits(bench: &Bench, schema: &str) -> Verdict {
    let text = bound(bench, Constraint::JsonSchema(schema.to_owned()), "Answer in JSON.")?;
    match json::check(&text, schema) {
        Ok(_) => Ok(short(&text)),
        Err(why) => failed(format!("the answer breaks its schema: {why}"), short(&text)),
    }
}

fn object(bench: &Bench) -> Verdict {
    let prompt = "Answer with the JSON object {\"ok\": true} and nothing else.";
    let text = bound(bench, Constraint::JsonObject, prompt)?;
    match json::check(&text, r#"{"type":"object"}"#) {
        Ok(_) => Ok(short(&text)),
        Err(why) => failed(format!("no JSON object: {why}"), short(&text)),
    }
}

fn schema(bench: &Bench) -> Verdict {
    fits(
        bench,
        r#"{"type":"object","properties":{"kind":{"enum":["river","mountain"]},"high":{"type":"boolean"},"parts":{"type":"array","items":{"enum":[1,2,3]},"minItems":1,"maxItems":2}},"required":["kind","high","parts"],"additionalProperties":false}"#,
    )
}

/// Exactly one of these, in any script.
fn unicode(bench: &Bench) -> Verdict {
    fits(bench, r#"{"enum":["Größe, Straße","你好","🙂","é"]}"#)
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
    let text = bound(bench, Constraint::Regex(pattern.to_owned()), "Answer.")?;
    let bytes = text.as_bytes();
    let matches = match bytes {
        [b'a', b'b', a, b, c] | [b'c', b'd', a, b, c] => {
            a.is_ascii_digit() && b.is_ascii_digit() && matches!(c, b'x' | b'y')
        }
        _ => false,
    };
    if matches { Ok(text) } else { failed(format!("expected a match of {pattern}"), short(&text)) }
}

/// A schema that is none is refused, not ignored.
fn refused(bench: &Bench) -> Verdict {
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

/// The binding holds event by event too.
fn streaming(bench: &Bench) -> Verdict {
    let schema = r#"{"type":"array","items":{"enum":["a","b"]},"minItems":3,"maxItems":3}"#;
    let mut request = bench.request("Answer in JSON.", ROOM);
    request.constraint = Some(Constraint::JsonSchema(schema.to_owned()));
    let answer = match probe_kit::ask::ask_by(&request, 1) {
        Err(error) if error.code == "unsupported" => return not_applicable(error.message),
        other => other?,
    };
    match json::check(&answer.text, schema) {
        Ok(_) => Ok(short(&answer.text)),
        Err(_) if answer.finish == "length" => {
            not_applicable("not whole within the tokens allowed")
        }
        Err(why) => failed(format!("the answer breaks its schema: {why}"), short(&answer.text)),
    }
}
