//! Calls in tags with attributes, which say whether a value is text or JSON.

use super::{check, everywhere};

const OPEN: &str = "<｜DSML｜tool_calls>";
const CLOSE: &str = "</｜DSML｜tool_calls>";
const END: &str = "</｜DSML｜invoke>";

fn begin(name: &str) -> String {
    format!("<｜DSML｜invoke name=\"{name}\">")
}

fn value(key: &str, attribute: &str, value: &str) -> String {
    format!("<｜DSML｜parameter name=\"{key}\"{attribute}>{value}</｜DSML｜parameter>")
}

/// A list of one call of `sum` with one parameter.
pub(super) fn list(key: &str, string: &str, text: &str) -> String {
    let value = value(key, &format!(" string=\"{string}\""), text);
    format!("{OPEN}\n{}\n{value}\n{END}\n{CLOSE}", begin("sum"))
}

#[test]
fn tags_with_attributes_become_json_in_the_order_they_are_written() {
    let text = value("text", " string=\"true\"", "\nKöln \"q\" \\ </｜DSML｜para>\n\tb\n");
    let n = value("n", " string=\"false\"", "3");
    let cases: &[(String, &str, &[&str])] = &[
        (
            format!("I will.\n\n{OPEN}\n{}\n{text}\n{n}\n{END}\n{CLOSE}", begin("sum")),
            "I will.\n\n⟨0⟩",
            &["sum {\"text\": \"\\nKöln \\\"q\\\" \\\\ </｜DSML｜para>\\n\\tb\\n\", \"n\": 3} end"],
        ),
        (
            format!("{OPEN}{}{END}\n{}{n}{END}{CLOSE}\n", begin("now"), begin("sum")),
            "⟨0⟩⟨1⟩",
            &["now {} end", "sum {\"n\": 3} end"],
        ),
        (format!("{OPEN}{CLOSE}"), "", &[]),
        // The fault shows only behind a parameter, or behind a call.
        (
            format!("{OPEN}{}{n} </｜DSML｜invite> more", begin("sum")),
            "⟨0⟩</｜DSML｜invite> more",
            &["sum {\"n\": 3 end"],
        ),
        (
            format!("{OPEN}{}{END} and{CLOSE}", begin("sum")),
            "⟨0⟩and</｜DSML｜tool_calls>",
            &["sum {} end"],
        ),
        (
            format!("{OPEN}{}{END}{}{END}{CLOSE}", begin("now"), begin("sun")),
            "⟨0⟩<｜DSML｜invoke name=\"sun\"></｜DSML｜invoke></｜DSML｜tool_calls>",
            &["now {} end"],
        ),
        // The model ends within its call, or without the closing marks.
        (
            format!(
                "{OPEN}{}<｜DSML｜parameter name=\"text\" string=\"true\">abc</｜DS",
                begin("sum")
            ),
            "⟨0⟩",
            &["sum {\"text\": \"abc end"],
        ),
        (format!("{OPEN}{}{n}\n", begin("sum")), "⟨0⟩", &["sum {\"n\": 3} end"]),
        (format!("{OPEN}{}\n{END}", begin("now")), "⟨0⟩", &["now {} end"]),
    ];
    check("dsml", cases);
    // What only looks like a call is text as it was written.
    for text in [
        format!("{OPEN}text{CLOSE}!"),
        format!("{OPEN}{}{n}{END}{CLOSE}", begin("sun")),
        format!("{OPEN}{}", begin("")),
        format!("{OPEN}{}", begin("a>b")),
        format!("{OPEN}<｜DSML｜invoke name=\"sum\" now>"),
        format!("{OPEN}{}so <b>", begin("sum")),
        format!("{OPEN}{}{}", begin("sum"), value("n", " string=\"maybe\"", "3")),
        format!("{OPEN}{}{}", begin("sum"), value("n", " string", "3")),
        format!("{}{n}{END}", begin("sum")),
        "<｜DSML｜function_calls>".to_owned(),
    ] {
        assert_eq!(everywhere("dsml", &text, false), (text.clone(), Vec::new()));
    }
}

#[test]
fn the_attribute_says_what_a_value_is_and_where_there_is_none_its_schema() {
    for (key, attribute, text, json) in [
        ("text", "true", "12", "\"12\""),
        ("n", "true", "12", "\"12\""),
        ("maybe", "true", "null", "\"null\""),
        ("text", "true", "", "\"\""),
        ("text", "true", "\n\n", "\"\\n\\n\""),
        ("n", "false", " 12\n", "12"),
        ("text", "false", "12", "12"),
        ("text", "false", "\"a \\\"b\\\"\"", "\"a \\\"b\\\"\""),
        ("unknown", "false", "[1,  {\"a\": null}]", "[1,  {\"a\": null}]"),
        ("map", "false", "{'a': True}", "{\"a\": true}"),
        ("n", "false", "12345678901234567890123", "12345678901234567890123"),
        ("maybe", "false", "null", "null"),
        // No JSON after all.
        ("text", "false", "Köln", "\"Köln\""),
        ("list", "false", "[1, ", "\"[1, \""),
        ("n", "false", "", "\"\""),
    ] {
        let wanted = (String::from("⟨0⟩"), vec![format!("sum {{\"{key}\": {json}}} end")]);
        let call = list(key, attribute, text);
        assert_eq!(everywhere("dsml", &call, false), wanted, "{key} {attribute} {text:?}");
    }
    for (key, text, json) in
        [("n", "12", "12"), ("text", "12", "\"12\""), ("maybe", "null", "null")]
    {
        let call = format!("{OPEN}{}{}{END}{CLOSE}", begin("sum"), value(key, "", text));
        let wanted = (String::from("⟨0⟩"), vec![format!("sum {{\"{key}\": {json}}} end")]);
        assert_eq!(everywhere("dsml", &call, false), wanted, "{key} {text:?}");
    }
}
