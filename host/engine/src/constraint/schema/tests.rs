//! What is refused and where, and what the engine gets to see.

use serde_json::{Value, json};

use super::exact;

fn path(schema: &Value) -> Option<String> {
    let error = exact(&schema.to_string(), "constraint", "a").err()?;
    let path = error.details.iter().find(|(key, _)| key == "path");
    let path = path.expect("a path").1.clone();
    let field = format!("constraint{path}");
    assert!(error.details.contains(&("field".to_owned(), field)), "{error:?}");
    Some(path)
}

#[test]
fn what_cannot_be_enforced_is_refused_with_its_path() {
    for (schema, expected) in [
        (json!({"properties": {"a": {"uniqueItems": true}}}), "/properties/a/uniqueItems"),
        (json!({"items": {"contains": {"const": 1}}}), "/items/contains"),
        (json!({"anyOf": [{}, {"not": {"required": ["a"]}}]}), "/anyOf/1/not"),
        (json!({"if": {"const": 1}, "then": {}}), "/if"),
        (json!({"properties": {"a/b~": {"pattern": "(?=x)"}}}), "/properties/a~1b~0/pattern"),
        (json!({"patternProperties": {"\\b": {}}}), "/patternProperties/\\b"),
        (json!({"format": "idn-email"}), "/format"),
        (json!({"unevaluatedProperties": false, "allOf": [{}]}), "/unevaluatedProperties"),
        (json!({"$dynamicRef": "#x"}), "/$dynamicRef"),
        (json!({"$ref": "#anchor"}), "/$ref"),
        (json!({"$ref": "other.json#/a"}), "/$ref"),
        (json!({"$ref": "#/nowhere"}), "/$ref"),
        (json!({"properties": {"a": {"$id": "http://x/", "$ref": "#/a"}}}), "/properties/a/$ref"),
        (json!({"$schema": "http://example.org/mine"}), "/$schema"),
        (json!({"minProperties": 2}), "/minProperties"),
        (json!({"const": "\u{1}"}), "/const"),
        (json!({"enum": [1, 9_007_199_254_740_993_u64]}), "/enum/1"),
        (json!({"minimum": 1e20}), "/minimum"),
        (json!({"multipleOf": 0}), "/multipleOf"),
        (json!({"type": "text"}), "/type"),
        (json!({"type": []}), "/type"),
        (json!({"items": 3}), "/items"),
        (json!({"prefixItems": [{"type": "null"}], "items": [{"type": "null"}]}), "/items"),
        (json!({"anyOf": []}), "/anyOf"),
        (json!({"enum": []}), "/enum"),
        (json!({"required": [1]}), "/required"),
        (json!({"minLength": -1}), "/minLength"),
        (json!({"propertyNames": {"minLength": 2}, "properties": {"a": {}}}), "/propertyNames"),
        (
            json!({"$defs": {"x": {"uniqueItems": true}}, "$ref": "#/$defs/x"}),
            "/$defs/x/uniqueItems",
        ),
        (json!([1]), ""),
    ] {
        assert_eq!(path(&schema).as_deref(), Some(expected), "{schema}");
    }
    for schema in [
        json!(true),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "urn:x", "title": "`<tool_call>\"{"}),
        json!({"uniqueItems": true, "maxItems": 1}),
        json!({"if": {"uniqueItems": true}}),
        json!({"then": {"uniqueItems": true}}),
        json!({"$defs": {"unused": {"uniqueItems": true}}}),
        json!({"not": {"type": ["null", "array"]}}),
        json!({"x-guidance": {"lenient": true}, "nullable": true}),
    ] {
        assert_eq!(path(&schema), None, "{schema}");
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let deep = format!("{}true{}", r#"{"items":"#.repeat(100), "}".repeat(100));
    assert!(
        exact(&deep, "constraint", "a").is_err_and(|e| e.message.contains("inside each other"))
    );
    let deep = format!("{}1{}", r#"{"items":"#.repeat(100_000), "}".repeat(100_000));
    assert!(exact(&deep, "constraint", "a").is_err());
    let wide = json!({"anyOf": vec![json!({}); 5000]}).to_string();
    assert!(exact(&wide, "constraint", "a").is_err_and(|e| e.message.contains("4000 subschemas")));
    let long = json!({"description": "x".repeat(300_000)}).to_string();
    assert!(exact(&long, "constraint", "a").is_err_and(|e| e.message.contains("bytes")));
    let chain: serde_json::Map<String, Value> = (0..200)
        .map(|n| (n.to_string(), json!({"$ref": format!("#/$defs/{}", n + 1)})))
        .chain([("200".to_owned(), json!({}))])
        .collect();
    let chain = json!({"$ref": "#/$defs/0", "$defs": chain}).to_string();
    assert!(
        exact(&chain, "constraint", "a").is_err_and(|e| e.message.contains("inside each other"))
    );
}

#[test]
fn what_the_engine_sees_says_the_same_in_one_form() {
    for (schema, expected) in [
        (
            json!({"type": "object", "description": "\"}", "x-guidance": {}, "properties": {"z": true, "a": {}, "m": {"$ref": "#"}}, "required": ["m", "z", "m"]}),
            json!({"type": "object", "properties": {"z": true, "a": {}, "m": {"$ref": "#/$defs/a0"}}, "required": ["m", "z"]}),
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema", "items": [{"type": "null"}], "allOf": [true], "additionalItems": false}),
            json!({"prefixItems": [{"type": "null"}], "items": false, "allOf": [true]}),
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": true}),
            json!({"exclusiveMinimum": 1}),
        ),
        (
            json!({"dependentRequired": {"a": ["b", "a"]}}),
            json!({"allOf": [{"anyOf": [{"properties": {"a": false}}, {"required": ["a", "b"]}]}]}),
        ),
        (
            json!({"propertyNames": {"enum": ["a", "b"]}, "properties": {"a": {}, "c": {}}}),
            json!({"properties": {"a": {}, "c": false}, "patternProperties": {"^(?:\\x{62})$": true}, "additionalProperties": false}),
        ),
        (
            json!({"allOf": [{"$ref": "#/definitions/x%20y/anyOf/1"}], "definitions": {"x y": {"anyOf": [0, {"maxLength": 2.0}]}}}),
            json!({"allOf": [{"$ref": "#/$defs/a0"}]}),
        ),
    ] {
        let found = exact(&schema.to_string(), "constraint", "a").expect("enforced");
        // As text: the order of members counts.
        assert_eq!(found.schema.to_string(), expected.to_string(), "{schema}");
    }
}
