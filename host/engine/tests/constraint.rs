//! Bound answers of random models: whatever such a model says, a complete answer satisfies what was
//! asked for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::sync::Arc;

use common::{
    random::{MARK, noise, wild},
    serve::{Answer, ask, read},
};
use gristmill_core::{
    Code, Error,
    program::{Dialect, Span},
    request::{Constraint, Prompt, Reasoning, Request},
};
use gristmill_engine::runtime::Model;
use serde_json::{Value, json};

fn schemas() -> Vec<Value> {
    vec![
        json!({"type": "object", "properties": {
            "z": {"enum": ["Größe", "naïve 🙂", "日本\n"]}, "a": {"type": "integer", "minimum": -7, "maximum": 12},
            "m": {"type": "boolean"}}, "required": ["z", "a"], "additionalProperties": false}),
        json!({"type": "string", "pattern": "^[äöüß🙂]{3}-\\d{2}$"}),
        json!({"type": "array", "items": {"type": "number", "multipleOf": 0.25, "minimum": 0, "exclusiveMaximum": 100}, "minItems": 2, "maxItems": 4}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "urn:tree", "type": "object",
            "properties": {"tree": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {
                "left": {"$ref": "#/properties/tree/anyOf/0"}, "right": {"$ref": "#/properties/tree"}},
                "required": ["left"], "additionalProperties": false}]}},
            "required": ["tree"], "additionalProperties": false}),
        json!({"oneOf": [
            {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "integer", "minimum": 1, "maximum": 99}}, "required": ["kind", "r"], "additionalProperties": false},
            {"type": "object", "properties": {"kind": {"const": "dot"}}, "required": ["kind"], "additionalProperties": false}]}),
        json!({"type": "object", "properties": {"when": {"type": "string", "format": "date"}, "id": {"type": "string", "format": "uuid"}},
            "required": ["when", "id"], "additionalProperties": false}),
        json!({"allOf": [
            {"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}}, "required": ["a"]},
            {"properties": {"a": {"minLength": 2}, "b": {"type": "null"}}, "additionalProperties": false}]}),
        json!({"type": "object", "patternProperties": {"^x-[a-z]{1,4}$": {"type": "integer", "minimum": 0, "maximum": 9}},
            "additionalProperties": false, "maxProperties": 3}),
        json!({"type": ["integer", "null"], "minimum": 100, "maximum": 104}),
        json!({"dependentRequired": {"card": ["name"]}, "type": "object", "additionalProperties": false,
            "properties": {"card": {"type": "integer", "minimum": 1, "maximum": 9}, "name": {"type": "string", "maxLength": 4}}}),
    ]
}

/// Eight answers at a time, so that bound ones run beside each other.
async fn all(model: &Arc<dyn Model>, requests: Vec<Request>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for some in requests.chunks(8) {
        let mut running = Vec::new();
        for request in some {
            running.push(model.generate(request.clone()).await.unwrap());
        }
        for decoding in running {
            answers.push(read(decoding).await.unwrap());
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_seeds_satisfy_their_schemas() {
    let noise = noise(Dialect::default()).await;
    let schemas = schemas();
    let bind = |seed: u64| {
        let mut request = wild(seed, 600);
        request.constraint =
            Some(Constraint::JsonSchema(schemas[seed as usize % schemas.len()].to_string()));
        request
    };
    let answers = all(&noise.model, (0..200).map(bind).collect()).await;
    let mut complete = vec![0; schemas.len()];
    for (seed, answer) in answers.iter().enumerate() {
        let schema = &schemas[seed % schemas.len()];
        if answer.reason() == "length" {
            continue;
        }
        assert_eq!(answer.reason(), "stop");
        let value: Value = serde_json::from_str(&answer.text)
            .unwrap_or_else(|error| panic!("{error}: {:?} for {schema}", answer.text));
        let validator = jsonschema::options().should_validate_formats(true).build(schema).unwrap();
        assert!(validator.is_valid(&value), "{value} for {schema}");
        complete[seed % schemas.len()] += 1;
    }
    assert!(complete.iter().all(|count| *count >= 10), "of 20 each: {complete:?}");
    // The order of `properties` is the order of the answer.
    assert!(
        answers.iter().step_by(schemas.len()).any(|a| a.text.find("\"z\"") < a.text.find("\"a\""))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn seeds_greed_and_company_change_nothing_and_logprobs_are_the_models_own() {
    let noise = noise(Dialect::default()).await;
    let mut request = wild(5, 60);
    request.constraint = Some(Constraint::JsonSchema(schemas()[0].to_string()));
    request.logprobs = Some(5);
    let alone = ask(&noise.model, request.clone()).await;
    let mut free = wild(6, 60);
    free.logprobs = Some(1);
    let together =
        all(&noise.model, vec![request.clone(), free.clone(), request.clone(), free]).await;
    assert_eq!(together[0].text, alone.text);
    assert_eq!(together[2].text, alone.text);
    assert_eq!(together[1].text, together[3].text);
    // Before the grammar: what the model would rather have said is still there.
    let first = &alone.tokens[0];
    assert!(first.alternatives.iter().any(|other| other.logprob > first.logprob), "{first:?}");
    let mut greedy = request.clone();
    greedy.sampling.temperature = Some(0.0);
    let (one, two) = (ask(&noise.model, greedy.clone()).await, ask(&noise.model, greedy).await);
    assert_eq!((one.text.clone(), one.text.starts_with('{')), (two.text, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn expressions_and_grammars_bind_the_whole_answer() {
    let noise = noise(Dialect::default()).await;
    let gbnf =
        "root ::= \"[\" item (\", \" item){1,2} \"]\" # list\nitem ::= [a-c]{2} | \"ü\" | \"🙂\"";
    let lark = "start: GREETING \" \" NAME \"!\"?\nGREETING: \"hello\" | \"grüß dich\"\nNAME: /[A-Z][a-z]{1,5}/";
    let item = "(?:[a-c]{2}|ü|🙂)";
    for (constraint, expected) in [
        (
            Constraint::Regex("(ja|nein), \\w{1,3}[äö]?".into()),
            "^(?:ja|nein), [0-9A-Za-z_]{1,3}[äö]?$".to_owned(),
        ),
        (Constraint::Grammar(gbnf.into()), format!("^\\[{item}(?:, {item}){{1,2}}\\]$")),
        (Constraint::Grammar(lark.into()), "^(?:hello|grüß dich) [A-Z][a-z]{1,5}!?$".to_owned()),
    ] {
        let schema = json!({"pattern": expected});
        let validator = jsonschema::validator_for(&schema).unwrap();
        let requests = (0..16).map(|seed| {
            let mut request = wild(seed, 200);
            request.constraint = Some(constraint.clone());
            request
        });
        for answer in all(&noise.model, requests.collect()).await {
            assert_eq!(answer.reason(), "stop", "{answer:?}");
            assert!(validator.is_valid(&json!(answer.text)), "{:?} for {expected}", answer.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_enforced_is_refused_before_anything_is_computed() {
    let noise = noise(Dialect::default()).await;
    let schema = |schema: Value| Constraint::JsonSchema(schema.to_string());
    for (constraint, field) in [
        (
            schema(json!({"properties": {"a": {"uniqueItems": true}}})),
            "constraint/properties/a/uniqueItems",
        ),
        (
            schema(json!({"properties": {"a": {"oneOf": [{"type": "string"}, {"maxLength": 3}]}}})),
            "constraint/properties/a",
        ),
        (
            schema(
                json!({"type": "array", "items": {"type": "string", "minLength": 3, "maxLength": 2}, "minItems": 1}),
            ),
            "constraint/items",
        ),
        (schema(json!({"pattern": "^hello there indeed(?!x)$"})), "constraint/pattern"),
        (schema(json!({"$ref": "#"})), "constraint"),
        (Constraint::JsonSchema("{".into()), "constraint"),
        (Constraint::Regex("a(".into()), "constraint"),
        (Constraint::Grammar("root ::= \"a\" ]".into()), "constraint"),
        (Constraint::Grammar("start: missing".into()), "constraint"),
        (Constraint::Grammar("start: \"a\" (".into()), "constraint"),
    ] {
        let mut request = wild(1, 5);
        request.constraint = Some(constraint.clone());
        let error: Error =
            noise.model.generate(request).await.err().unwrap_or_else(|| panic!("{constraint:?}"));
        assert_eq!(error.code, Code::InvalidRequest, "{constraint:?}: {error}");
        assert_eq!(error.detail("field"), Some(field), "{constraint:?}: {error}");
    }
    // Nothing is left behind: the next answer is an answer.
    assert_eq!(ask(&noise.model, wild(1, 5)).await.usage.completion, 5);
}

fn thinking(open: &str, close: &str, open_at_start: bool) -> Dialect {
    let span = Span { open: open.into(), close: close.into(), open_at_start };
    Dialect { reasoning: Some(span), ..Dialect::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thought_is_free_and_the_answer_after_it_is_bound() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["a"], "additionalProperties": false});
    // The closing mark is a token of its own, or letters that tokens can write past.
    for (close, opened) in [(MARK, true), (MARK, false), ("ta", true), ("ta", false)] {
        let mut dialect = thinking("th", close, opened);
        dialect.template = Some(template.into());
        let noise = noise(dialect).await;
        let mark = noise.model.tokenize(close, true).unwrap();
        assert_eq!(mark.len(), 1);
        for reasoning in [Reasoning::Unset, Reasoning::On, Reasoning::Off] {
            let requests = (0..16).map(|seed| {
                let mut request = wild(seed, 3000);
                let message = gristmill_core::request::Message::text(
                    gristmill_core::request::Role::User,
                    "well",
                );
                request.prompt = Prompt::Chat(vec![message]);
                request.reasoning = reasoning.clone();
                request.constraint = Some(Constraint::JsonSchema(schema.to_string()));
                // Thoughts of about a dozen tokens; and a model that would rather end at once.
                request.sampling.logit_bias = vec![(mark[0], 6.0), (2, 8.0)];
                request
            });
            let answers = all(&noise.model, requests.collect()).await;
            let thought = answers.iter().filter(|answer| !answer.reasoning.is_empty()).count();
            for answer in &answers {
                assert_eq!(answer.reason(), "stop", "{answer:?}");
                let value: Value = serde_json::from_str(&answer.text)
                    .unwrap_or_else(|error| panic!("{error}: {answer:?}"));
                assert!(jsonschema::is_valid(&schema, &value), "{value}");
            }
            if opened {
                assert!(thought >= 8, "{thought} thought");
            } else if reasoning == Reasoning::Off {
                assert_eq!(thought, 0);
            }
        }
    }
}
