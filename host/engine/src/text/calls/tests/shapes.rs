//! Calls that are not JSON alone: tags, Python, marks of their own, split at every place.

use super::*;

mod attributes;
mod numbered;

const SCHEMA: &str = r##"{"type": "object", "$defs": {"many": {"type": "array"}}, "properties": {
    "text": {"type": "string"}, "n": {"type": "integer"}, "x": {"type": "number"},
    "on": {"type": "boolean"}, "list": {"$ref": "#/$defs/many"}, "map": {"type": ["object", "null"]},
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "none": {"type": "null"},
    "level": {"enum": [1, 2]}, "word": {"enum": ["a", "b"]}, "any": {},
    "either": {"allOf": [{"oneOf": [{"type": "integer"}, {"type": "boolean"}]}]}}}"##;

fn format(shape: &str) -> ToolFormat {
    let (open, close, name, arguments) = match shape {
        "xml" => ("<tool_call>", "</tool_call>", "function", "parameter"),
        "glm" => ("<tool_call>", "</tool_call>", "", "arg_key"),
        "mistral" => ("[TOOL_CALLS]", "", "[CALL_ID]", "[ARGS]"),
        "deepseek" => ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "function", ""),
        "kimi" => ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "", ""),
        "dsml" => {
            ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "｜DSML｜invoke", "｜DSML｜parameter")
        }
        _ => ("<|tool_call_start|>", "<|tool_call_end|>", "", ""),
    };
    ToolFormat {
        open: open.into(),
        close: close.into(),
        shape: shape.into(),
        name_key: name.into(),
        arguments_key: arguments.into(),
        extras: Vec::new(),
    }
}

fn calls(shape: &str, parallel: bool) -> Calls {
    let offers = vec![Offer::new(shape, "sum", SCHEMA), Offer::new(shape, "now", "no schema")];
    Calls::new(format(shape), offers, parallel, "call-".into())
}

/// What an answer becomes, which no split changes.
fn everywhere(shape: &str, text: &str, cut: bool) -> (String, Vec<String>) {
    let whole = gather(calls(shape, true), [text.to_owned()].into_iter(), cut);
    for (at, _) in text.char_indices() {
        let (before, after) = text.split_at(at);
        let pieces = [before.to_owned(), after.to_owned()].into_iter();
        assert_eq!(gather(calls(shape, true), pieces, cut), whole, "{text:?} split at {at}");
    }
    let characters: Vec<char> = text.chars().collect();
    for size in 1..8 {
        let pieces = characters.chunks(size).map(|chunk| chunk.iter().collect());
        assert_eq!(gather(calls(shape, true), pieces, cut), whole, "{text:?} by {size}");
    }
    whole
}

fn check(shape: &str, cases: &[(String, &str, &[&str])]) {
    for (text, seen, found) in cases {
        let found: Vec<String> = found.iter().map(|call| (*call).to_owned()).collect();
        assert_eq!(everywhere(shape, text, false), ((*seen).to_owned(), found), "{text:?}");
    }
}

/// One call in tags with one parameter.
fn tagged(key: &str, value: &str) -> String {
    format!(
        "<tool_call>\n<function=sum>\n<parameter={key}>{value}</parameter>\n</function>\n</tool_call>"
    )
}

#[test]
fn tags_become_json_in_the_order_they_are_written() {
    check(
        "xml",
        &[
            (
                "I will.\n<tool_call>\n<function=sum>\n<parameter=text>\nKöln \"q\" \\ </p>\n\tb\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>".into(),
                "I will.\n⟨0⟩",
                &["sum {\"text\": \"Köln \\\"q\\\" \\\\ </p>\\n\\tb\", \"n\": 3} end"],
            ),
            (
                "<tool_call><function=now></function></tool_call>\n<tool_call>\n<function=sum>\n<parameter=n>1</parameter></function></tool_call>\n".into(),
                "⟨0⟩⟨1⟩",
                &["now {} end", "sum {\"n\": 1} end"],
            ),
            // A tool without a schema: everything is text.
            (
                "<tool_call><function=now><parameter=a\"b>1</parameter></function></tool_call>".into(),
                "⟨0⟩",
                &["now {\"a\\\"b\": \"1\"} end"],
            ),
            // What only looks like a call.
            ("<tool_call>text</tool_call>!".into(), "<tool_call>text</tool_call>!", &[]),
            (
                "<tool_call><function=sun><parameter=n>1</parameter></function></tool_call>".into(),
                "<tool_call><function=sun><parameter=n>1</parameter></function></tool_call>",
                &[],
            ),
            ("<tool_call><function=>".into(), "<tool_call><function=>", &[]),
            ("<tool_call>\n<function=sum\n>".into(), "<tool_call>\n<function=sum\n>", &[]),
            (
                "<tool_call><function=sum>so <b>".into(),
                "<tool_call><function=sum>so <b>",
                &[],
            ),
            ("<tool_call>{\"name\": \"sum\"}".into(), "<tool_call>{\"name\": \"sum\"}", &[]),
            ("<function=sum></function>".into(), "<function=sum></function>", &[]),
            // The fault shows only after a parameter.
            (
                "<tool_call><function=sum><parameter=n>1</parameter> </func> more".into(),
                "⟨0⟩</func> more",
                &["sum {\"n\": 1 end"],
            ),
            (
                "<tool_call><function=sum></function> and</tool_call>".into(),
                "⟨0⟩and</tool_call>",
                &["sum {} end"],
            ),
            // The model ends within its call.
            (
                "<tool_call><function=sum><parameter=text>\nabc\n</para".into(),
                "⟨0⟩",
                &["sum {\"text\": \"abc end"],
            ),
            (
                "<tool_call><function=sum><parameter=n>1</parameter>\n".into(),
                "⟨0⟩",
                &["sum {\"n\": 1} end"],
            ),
            ("<tool_call><function=now>\n</function>".into(), "⟨0⟩", &["now {} end"]),
            ("<tool_call>\n<function=s".into(), "<tool_call>\n<function=s", &[]),
        ],
    );
}

#[test]
fn a_tagged_value_has_the_type_of_its_schema() {
    let cases = [
        ("text", "12", "\"12\""),
        ("text", "\n", "\"\""),
        ("text", "", "\"\""),
        ("text", "\n\n a \n\n", "\"\\n a \\n\""),
        ("text", "null", "\"null\""),
        ("text", "a</parameter", "\"a</parameter\""),
        ("text", "\u{1}", "\"\\u0001\""),
        ("unknown", "12", "\"12\""),
        ("any", "{}", "\"{}\""),
        ("word", "a", "\"a\""),
        ("n", "\n12\n", "12"),
        ("n", " -7 ", "-7"),
        ("n", "12345678901234567890123", "12345678901234567890123"),
        ("n", "1_000", "1000"),
        ("n", "1.0", "1.0"),
        ("n", "1.5", "\"1.5\""),
        ("n", "twelve", "\"twelve\""),
        ("n", "", "\"\""),
        ("n", "\n 1 2\n", "\" 1 2\""),
        ("x", "1.50", "1.50"),
        ("x", "2", "2"),
        ("x", "1e3", "1e3"),
        ("x", "1e999", "1e999"),
        ("list", "[1e999, 007]", "\"[1e999, 007]\""),
        ("x", "\"2\"", "\"\\\"2\\\"\""),
        ("on", "true", "true"),
        ("on", "False", "false"),
        ("on", "yes", "\"yes\""),
        ("none", "None", "null"),
        ("level", "2", "2"),
        ("either", "true", "true"),
        ("either", "4", "4"),
        ("either", "4.5", "\"4.5\""),
        ("list", "\n[1,  \"a\"]\n", "[1,  \"a\"]"),
        ("list", "['a', True, None, {'b': (1)}]", "\"['a', True, None, {'b': (1)}]\""),
        ("list", "['a', True, None,]", "[\"a\", true, null]"),
        ("list", "{}", "\"{}\""),
        ("map", "{\"b\": 1, \"a\": 2}", "{\"b\": 1, \"a\": 2}"),
        ("map", "{'a': 'it\\'s'}", "{\"a\": \"it's\"}"),
        ("map", "null", "null"),
        ("map", "{\"a\": ", "\"{\\\"a\\\": \""),
        ("maybe", "null", "null"),
        ("maybe", "\nNone\n", "null"),
        ("maybe", "nullify", "\"nullify\""),
        ("maybe", "null\n\n", "\"null\\n\""),
        ("maybe", "", "\"\""),
        ("maybe", "12", "\"12\""),
    ];
    for (key, value, json) in cases {
        let wanted = format!("sum {{\"{key}\": {json}}} end");
        let got = everywhere("xml", &tagged(key, value), false);
        assert_eq!(got, ("⟨0⟩".to_owned(), vec![wanted]), "{key} {value:?}");
    }
}

/// One call in Python with one parameter.
fn called(value: &str) -> String {
    format!("<|tool_call_start|>[sum(a={value})]<|tool_call_end|>")
}

#[test]
fn python_becomes_json_in_the_order_it_is_written() {
    let mark = "<|tool_call_start|>";
    check(
        "pythonic",
        &[
            (
                format!("Sure. {mark}[sum(text=\"Köln\", n = 3), now()]<|tool_call_end|>"),
                "Sure. ⟨0⟩⟨1⟩",
                &["sum {\"text\": \"Köln\", \"n\": 3} end", "now {} end"],
            ),
            (
                format!(
                    "{mark}\n[ sum( n=1, ) , ]\n<|tool_call_end|>\n{mark}[now()]<|tool_call_end|>"
                ),
                "⟨0⟩⟨1⟩",
                &["sum {\"n\": 1} end", "now {} end"],
            ),
            (format!("{mark}[]<|tool_call_end|>"), "", &[]),
            // The same models write JSON between the marks.
            (
                format!(
                    "{mark}[{{\"name\": \"sum\", \"arguments\": {{\"n\":  1}}}}, {{\"name\": \"now\"}}]<|tool_call_end|>"
                ),
                "⟨0⟩⟨1⟩",
                &["sum {\"n\":  1} end", "now {} end"],
            ),
            // What only looks like a call.
            (format!("{mark}see [1]"), "<|tool_call_start|>see [1]", &[]),
            (format!("{mark}[sun(a=1)]"), "<|tool_call_start|>[sun(a=1)]", &[]),
            (format!("{mark}[sum(1)]"), "<|tool_call_start|>[sum(1)]", &[]),
            (format!("{mark}[sum(a b=1)]"), "<|tool_call_start|>[sum(a b=1)]", &[]),
            (format!("{mark}[sum(**a)]"), "<|tool_call_start|>[sum(**a)]", &[]),
            (format!("{mark}[(a=1)]"), "<|tool_call_start|>[(a=1)]", &[]),
            (format!("{mark}[sum(=1)]"), "<|tool_call_start|>[sum(=1)]", &[]),
            ("[sum(a=1)]".into(), "[sum(a=1)]", &[]),
            // The fault shows only inside the arguments.
            (format!("{mark}[sum(a=nonsense)]"), "⟨0⟩nonsense)]", &["sum {\"a\":  end"]),
            (format!("{mark}[sum(a=1, 2)] x"), "⟨0⟩, 2)] x", &["sum {\"a\": 1 end"]),
            (format!("{mark}[sum(a='b' 'c')]"), "⟨0⟩'c')]", &["sum {\"a\": \"b\" end"]),
            (format!("{mark}[sum(a=[1}})]"), "⟨0⟩1})]", &["sum {\"a\": [ end"]),
            (
                format!("{mark}[now(), sun(a=1)]<|tool_call_end|>"),
                "⟨0⟩, sun(a=1)]<|tool_call_end|>",
                &["now {} end"],
            ),
            (format!("{mark}[now()]<|tool_call_and|>"), "⟨0⟩]<|tool_call_and|>", &["now {} end"]),
            // The model ends within its call, or without the closing mark.
            (format!("{mark}[sum(a=\"b"), "⟨0⟩", &["sum {\"a\": \"b end"]),
            (format!("{mark}[now()"), "⟨0⟩", &["now {} end"]),
            (format!("{mark}[no"), "<|tool_call_start|>[no", &[]),
        ],
    );
}

#[test]
fn pythons_values_become_jsons() {
    let cases = [
        (r#""a 'b' \"c\" \\ \/""#, r#""a 'b' \"c\" \\ \\/""#),
        (r#"'it\'s "x"'"#, r#""it's \"x\"""#),
        (r"'\n\t\r\x41\u00e9\U0001F600\101\0'", "\"\\n\\t\\rAé😀A\\u0000\""),
        (r"'\ud83d\ude00 \ud83d \ude00'", "\"😀 \u{fffd} \u{fffd}\""),
        (
            r"'\d\
x'",
            r#""\\dx""#,
        ),
        ("'two\nlines'", r#""two\nlines""#),
        ("''", "\"\""),
        ("3", "3"),
        ("-2.50", "-2.50"),
        ("+1e5", "1e5"),
        ("1_000", "1000"),
        ("1e999", "1e999"),
        (".5", "0.5"),
        ("-5.", "-5.0"),
        ("0xFF", "255"),
        ("0b101", "5"),
        ("True", "true"),
        ("False", "false"),
        ("None", "null"),
        ("null", "null"),
        ("[]", "[]"),
        ("[ 1,2 , [3,],{}]", "[1, 2, [3], {}]"),
        ("{ 'b' : 1, \"a\": [None, {'c': 'd'}], }", r#"{"b": 1, "a": [null, {"c": "d"}]}"#),
        ("{1: 2, True: False}", r#"{"1": 2, "true": false}"#),
    ];
    for (value, json) in cases {
        assert!(json == "1e999" || serde_json::from_str::<serde_json::Value>(json).is_ok());
        let wanted = (String::from("⟨0⟩"), vec![format!("sum {{\"a\": {json}}} end")]);
        assert_eq!(everywhere("pythonic", &called(value), false), wanted, "{value}");
    }
    let wrong = [
        "007x",
        "0x",
        "0x+1",
        "1__0",
        "_1",
        "1_",
        "nan",
        "inf",
        "1e",
        "f'a'",
        "(1, 2)",
        "{1, 2}",
        "[1 2]",
        "[,]",
        "{'a'}",
        "{'a': }",
        "{[1]: 2}",
        "sum()",
        "1+1",
        r"'\xZZ'",
        r"'\UFFFFFFFF'",
    ];
    for value in wrong {
        let (seen, found) = everywhere("pythonic", &called(value), false);
        assert!(seen.ends_with(")]<|tool_call_end|>"), "{value}: {seen:?}");
        assert!(found.len() == 1 && !found[0].contains("} end"), "{value}: {found:?}");
    }
}

/// One call of GLM with one argument.
fn paired(key: &str, value: &str) -> String {
    format!(
        "<tool_call>sum\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>"
    )
}

#[test]
fn pairs_of_tags_become_json_in_the_order_they_are_written() {
    check(
        "glm",
        &[
            (
                "I will.\n<tool_call>sum\n<arg_key>text</arg_key>\n<arg_value>Köln \"q\" \\ </arg>\n\tb\n</arg_value>\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>".into(),
                "I will.\n⟨0⟩",
                &["sum {\"text\": \"Köln \\\"q\\\" \\\\ </arg>\\n\\tb\\n\", \"n\": 3} end"],
            ),
            // GLM 4.7 writes no line ends.
            (
                "<tool_call>now</tool_call><tool_call>sum<arg_key>n</arg_key><arg_value>1</arg_value><arg_key>on</arg_key><arg_value>true</arg_value></tool_call>".into(),
                "⟨0⟩⟨1⟩",
                &["now {} end", "sum {\"n\": 1, \"on\": true} end"],
            ),
            ("<tool_call>\nnow \n</tool_call>\n".into(), "⟨0⟩", &["now {} end"]),
            // What only looks like a call.
            ("<tool_call></tool_call>!".into(), "<tool_call></tool_call>!", &[]),
            ("<tool_call>sun\n</tool_call>".into(), "<tool_call>sun\n</tool_call>", &[]),
            (
                "<tool_call>sun<arg_key>n</arg_key>".into(),
                "<tool_call>sun<arg_key>n</arg_key>",
                &[],
            ),
            ("<tool_call>sum so".into(), "<tool_call>sum so", &[]),
            ("<tool_call>sum\nso".into(), "<tool_call>sum\nso", &[]),
            ("<tool_call>sum<arg_key></arg_key>".into(), "<tool_call>sum<arg_key></arg_key>", &[]),
            ("sum<arg_key>n</arg_key>".into(), "sum<arg_key>n</arg_key>", &[]),
            // The fault shows only after a key or a value.
            (
                "<tool_call>sum<arg_key>n</arg_key> 1</tool_call>".into(),
                "⟨0⟩1</tool_call>",
                &["sum {\"n\":  end"],
            ),
            (
                "<tool_call>sum<arg_key>n</arg_key><arg_value>1</arg_value></tool> more".into(),
                "⟨0⟩</tool> more",
                &["sum {\"n\": 1 end"],
            ),
            // The model ends within its call, or without the closing mark.
            (
                "<tool_call>sum<arg_key>text</arg_key><arg_value>abc</arg_va".into(),
                "⟨0⟩",
                &["sum {\"text\": \"abc end"],
            ),
            (
                "<tool_call>sum<arg_key>n</arg_key><arg_value>1</arg_value>\n".into(),
                "⟨0⟩",
                &["sum {\"n\": 1} end"],
            ),
        ],
    );
}

#[test]
fn a_paired_value_has_the_type_of_its_schema_and_keeps_its_line_ends() {
    for (key, value, json) in [
        ("text", "\na\n", "\"\\na\\n\""),
        ("text", "", "\"\""),
        ("n", "\n12\n", "12"),
        ("n", "twelve", "\"twelve\""),
        ("on", "False", "false"),
        ("list", "[1, \"a\"]", "[1, \"a\"]"),
        ("maybe", "null", "null"),
        ("maybe", "null\n", "\"null\\n\""),
    ] {
        let wanted = (String::from("⟨0⟩"), vec![format!("sum {{\"{key}\": {json}}} end")]);
        assert_eq!(everywhere("glm", &paired(key, value), false), wanted, "{key} {value:?}");
    }
}

/// One call of DeepSeek.
fn fenced(arguments: &str) -> String {
    format!(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>sum\n```json\n{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )
}

#[test]
fn calls_between_marks_of_their_own_are_read_in_both_forms() {
    let (open, close) = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>");
    let (begin, sep, end) = ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>");
    let old =
        |name: &str, json: &str| format!("{begin}function{sep}{name}\n```json\n{json}\n```{end}");
    let new = |name: &str, json: &str| format!("{begin}{name}{sep}{json}{end}");
    let cases: &[(String, &str, &[&str])] = &[
        (
            format!("So.{open}{}\n{}{close}", old("sum", "{\"a\":  \"}```\"}"), old("now", "{}")),
            "So.⟨0⟩⟨1⟩",
            &["sum {\"a\":  \"}```\"} end", "now {} end"],
        ),
        (
            format!("{open}{}{}{close}", new("sum", "{\"a\": [1]}"), new("now", " {} ")),
            "⟨0⟩⟨1⟩",
            &["sum {\"a\": [1]} end", "now {} end"],
        ),
        // With less around the arguments than the template shows.
        (format!("{open}{begin}function{sep}now\n{{}}{end}{close}"), "⟨0⟩", &["now {} end"]),
        (
            format!("{open}{begin}function{sep}now\n```\n{{}}```{end}{close}"),
            "⟨0⟩",
            &["now {} end"],
        ),
        (format!("{open}{close}"), "", &[]),
        // A tool that is called like the word before the separator.
        (format!("{open}{}{close}", new("now", "{}")), "⟨0⟩", &["now {} end"]),
        // The model ends within its call, or without the closing marks.
        (format!("{open}{begin}sum{sep}{{\"a\": 1"), "⟨0⟩", &["sum {\"a\": 1 end"]),
        (format!("{open}{begin}sum{sep}{{\"a\": 1}}"), "⟨0⟩", &["sum {\"a\": 1} end"]),
        (format!("{open}{}", old("now", "{}")), "⟨0⟩", &["now {} end"]),
    ];
    check("deepseek", cases);
    // What only looks like a call is text as it was written.
    for text in [
        format!("{open}text"),
        format!("{open}{}", new("sun", "{}")),
        format!("{open}{begin}function{sep}sun\n```json\n{{}}"),
        format!("{open}{begin}sum{sep}[1]\n{{"),
        format!("{open}{begin}{sep}{{}}{end}"),
        format!("{open}{begin}function{sep}now\n```yaml\n"),
        format!("{begin}sum{sep}{{}}{end}"),
    ] {
        assert_eq!(everywhere("deepseek", &text, false), (text.clone(), Vec::new()));
    }
    // The fault shows only inside the arguments, or behind them.
    let cases: &[(String, &str, &[&str])] = &[
        (format!("{open}{begin}sum{sep}{{\"a\": x}}"), "⟨0⟩}", &["sum {\"a\": x end"]),
        (format!("{open}{begin}now{sep}{{}} so"), "⟨0⟩so", &["now {} end"]),
    ];
    check("deepseek", cases);
}

#[test]
fn a_name_and_an_object_behind_a_mark_are_a_call() {
    let cases: &[(String, &str, &[&str])] = &[
        (
            "So. [TOOL_CALLS]sum[ARGS]{\"a\":  \"[ARGS]}\"}[TOOL_CALLS]now[ARGS]{}".into(),
            "So. ⟨0⟩⟨1⟩",
            &["sum {\"a\":  \"[ARGS]}\"} end", "now {} end"],
        ),
        // With an id of the model's own, which is not the call's.
        ("[TOOL_CALLS]now[CALL_ID]9xK2mQ7pL[ARGS] {}\n".into(), "⟨0⟩", &["now {} end"]),
        // What only looks like a call.
        ("[TOOL_CALLS][{\"name\": \"now\"}]".into(), "[TOOL_CALLS][{\"name\": \"now\"}]", &[]),
        ("[TOOL_CALLS]sun[ARGS]{}".into(), "[TOOL_CALLS]sun[ARGS]{}", &[]),
        ("[TOOL_CALLS]now[ARGS][]".into(), "[TOOL_CALLS]now[ARGS][]", &[]),
        ("[TOOL_CALLS][ARGS]{}".into(), "[TOOL_CALLS][ARGS]{}", &[]),
        ("now[ARGS]{}".into(), "now[ARGS]{}", &[]),
        // The fault shows only inside the arguments, or the model ends there.
        ("[TOOL_CALLS]sum[ARGS]{\"a\": x} y".into(), "⟨0⟩} y", &["sum {\"a\": x end"]),
        ("[TOOL_CALLS]sum[ARGS]{\"a\": \"b".into(), "⟨0⟩", &["sum {\"a\": \"b end"]),
    ];
    check("mistral", cases);
}

#[test]
fn nesting_and_length_are_bounded() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let one = |shape: &str, text: String| gather(calls(shape, true), [text].into_iter(), false);
    assert_eq!(one("pythonic", called(&deep(128))).0, "⟨0⟩");
    assert!(one("pythonic", called(&deep(129))).0.starts_with("⟨0⟩[]"));
    assert_eq!(one("pythonic", called(&"1".repeat(64 << 10))).0, "⟨0⟩");
    assert!(one("pythonic", called(&"1".repeat((64 << 10) + 1))).0.starts_with("⟨0⟩1"));
    // Too deep for JSON is text.
    assert!(one("xml", tagged("list", &deep(200))).1[0].contains("\"[[["));
    let long = "n".repeat(64 << 10);
    for (shape, text) in [
        ("xml", format!("<tool_call><function={long}></function></tool_call>")),
        ("pythonic", format!("<|tool_call_start|>[{long}()]<|tool_call_end|>")),
    ] {
        assert_eq!(one(shape, text.clone()), (text, Vec::new()));
    }
    let long = "n".repeat(2 << 20);
    assert_eq!(one("xml", tagged("text", &long)).0, "⟨0⟩");
    assert!(one("xml", tagged("list", &long)).0.len() > 1 << 20);
}

#[test]
fn a_cut_answer_has_no_marks_and_one_call_where_no_more_are_allowed() {
    for (shape, whole, done) in [
        ("xml", format!("Well. {}", tagged("n", "1")), "</function>"),
        ("glm", format!("Well. {}", paired("n", "1")), "</tool_call>"),
        ("mistral", "Well. [TOOL_CALLS]sum[CALL_ID]a1[ARGS]{\"n\": 1}".into(), "}"),
        ("deepseek", format!("Well. {}", fenced("{\"n\": 1}")), "}"),
        ("kimi", format!("Well. {}", numbered::list("{\"n\": 1}")), "}"),
        ("dsml", format!("Well. {}", attributes::list("n", "false", "1")), "</｜DSML｜invoke>"),
        ("pythonic", format!("Well. {}", called("1")), ")"),
    ] {
        let begun = whole.find(&format(shape).open).unwrap() + format(shape).open.len();
        for end in (begun..=whole.len()).filter(|end| whole.is_char_boundary(*end)) {
            let (seen, found) = everywhere(shape, &whole[..end], true);
            assert_eq!(seen.replace("⟨0⟩", ""), "Well. ", "{:?}", &whole[..end]);
            let ended = found.iter().any(|call| call.ends_with("end"));
            assert_eq!(ended, whole[..end].contains(done), "{:?}", &whole[..end]);
        }
        let twice = format!("{whole}{whole}");
        let (seen, found) = gather(calls(shape, false), [twice].into_iter(), false);
        assert_eq!((seen.as_str(), found.len()), ("Well. ⟨0⟩", 1));
    }
}

#[test]
fn arguments_flow_as_they_are_written() {
    for (shape, pieces) in [
        ("xml", ["<tool_call><function=sum><parameter=text>one", " two", " three"]),
        ("glm", ["<tool_call>sum<arg_key>text</arg_key><arg_value>one", " two", " three"]),
        (
            "deepseek",
            [
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>sum<｜tool▁sep｜>{\"text\": \"one",
                " two",
                " three",
            ],
        ),
        ("pythonic", ["<|tool_call_start|>[sum(text='one", " two", " three"]),
        (
            "kimi",
            [
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.sum:0<|tool_call_argument_begin|>{\"text\": \"one",
                " two",
                " three",
            ],
        ),
        (
            "dsml",
            [
                "<｜DSML｜tool_calls><｜DSML｜invoke name=\"sum\"><｜DSML｜parameter name=\"text\" string=\"true\">one",
                " two",
                " three",
            ],
        ),
    ] {
        let mut calls = calls(shape, true);
        let mut said = String::new();
        for (n, piece) in pieces.iter().enumerate() {
            let mut events = Vec::new();
            calls.push(piece, &mut events);
            for event in events {
                if let Event::ToolArguments(0, text) = event {
                    said.push_str(&text);
                }
            }
            let wanted = ["{\"text\": \"one", " two", " three"][..=n].concat();
            assert_eq!(said, wanted, "{shape}");
        }
    }
}
