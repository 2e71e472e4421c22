//! What a chat template may do, what it gets, and what bounds it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::time::{Duration, Instant, SystemTime};

use gristmill_core::{
    Code, Error,
    request::{Message, Part, Role, Tool, ToolCall},
};
use gristmill_models::{ChatTemplate, ModelError, template::fold_system};

fn render(source: &str, messages: &[Message]) -> Result<String, ModelError> {
    render_with(source, messages, &[])
}

fn render_with(
    source: &str,
    messages: &[Message],
    extras: &[(&str, &str)],
) -> Result<String, ModelError> {
    let extras: Vec<(String, String)> =
        extras.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    ChatTemplate::compile(source, "<s>", "</s>")?.render(messages, &[], true, &extras)
}

fn user(text: &str) -> Message {
    Message::text(Role::User, text)
}

fn call(id: &str, arguments: &str) -> Message {
    let mut message = Message::text(Role::Assistant, "");
    message.tool_calls.push(ToolCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: arguments.to_owned(),
    });
    message
}

#[test]
fn expressions_come_out_as_python_has_them() {
    for (source, expected) in [
        ("{{ bos_token }}|{{ eos_token }}", "<s>|</s>"),
        ("{{ tools is none }} {{ documents }} {{ add_generation_prompt }}", "True None True"),
        ("{{ {'b': 1, 'a': [true, none, 1.0]} | tojson }}", r#"{"b": 1, "a": [true, null, 1.0]}"#),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=True) }}", r#"{"a": 2, "b": 1}"#),
        ("{{ [1, {}] | tojson(indent=2) }}", "[\n  1,\n  {}\n]"),
        ("{{ {'a': [1]} | tojson(indent=4) }}", "{\n    \"a\": [\n        1\n    ]\n}"),
        (
            "{% if {'a': 1} %}y{% endif %}{% if {} %}n{% endif %}{{ 'm' if {'b': 2} and not {} }}",
            "ym",
        ),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ 'ü<&\"\u{1f600}' | tojson }}", "\"ü<&\\\"\u{1f600}\""),
        ("{{ 'ü\u{1f600}' | tojson(ensure_ascii=True) }}", r#""\u00fc\ud83d\ude00""#),
        ("{{ {'items': 1}.items() | list }}", "[('items', 1)]"),
        ("{{ {'a': none} }}", "{'a': None}"),
        (
            "{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
            "13",
        ),
        ("{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "1"),
        (
            "{% set n = namespace(l=[]) %}{% set _ = n.l.append(1) %}{{ n.l.pop(0) }}{{ n.l | length }}",
            "10",
        ),
        (
            "{% set d = {} %}{% set _ = d.update({'k': 2}) %}{{ d.k }}{{ d.pop('k') }}{{ d }}",
            "22{}",
        ),
        (
            "{% set l = [3, 1] %}{% set _ = l.insert(0, 2) %}{% set _ = l.extend(l) %}{{ l }}",
            "[2, 3, 1, 2, 3, 1]",
        ),
        ("{{ 'a b  c'.split()[-1] }}{{ ' x '.strip() }}{{ 'xay'.removeprefix('x') }}", "cxay"),
        ("{{ '[1, {\"a\": 2}]' | from_json }}", "[1, {'a': 2}]"),
        ("  {% if true %}\n  a\n  {% endif %}\nb\n", "  a\nb"),
        ("{% generation %}x{% endgeneration %}", "x"),
        ("{{ missing }}{% if missing is defined %}!{% endif %}", ""),
    ] {
        assert_eq!(render(source, &[user("hi")]).unwrap(), expected, "{source}");
    }
}

#[test]
fn a_refusal_is_the_templates_own_words_and_the_callers_fault() {
    let error =
        render("{{ raise_exception('only ' ~ messages | length ~ ' turns?') }}", &[user("x")])
            .unwrap_err();
    assert!(matches!(&error, ModelError::TemplateRefused(words) if words == "only 1 turns?"));
    let error = Error::from(error);
    assert_eq!(error.code, Code::InvalidRequest);
    assert!(error.message.contains("only 1 turns?"), "{}", error.message);
    // Also from inside a macro.
    let nested = "{% macro m() %}{{ raise_exception('no') }}{% endmacro %}{{ m() }}";
    assert!(
        matches!(render(nested, &[]).unwrap_err(), ModelError::TemplateRefused(words) if words == "no")
    );
}

#[test]
fn a_template_that_never_ends_is_stopped() {
    let started = Instant::now();
    let endless = "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}\
                   {% endfor %}{% endfor %}{% endfor %}";
    let error = render(endless, &[]).unwrap_err();
    assert!(error.to_string().contains("did not finish"), "{error}");
    let recursive = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    assert!(matches!(render(recursive, &[]).unwrap_err(), ModelError::Template(_)));
    assert!(started.elapsed() < Duration::from_secs(120), "{:?}", started.elapsed());
}

#[test]
fn a_broken_template_says_where() {
    let error = ChatTemplate::compile("a\n{% if %}", "", "").unwrap_err();
    assert!(error.to_string().contains(":2"), "{error}");
}

#[test]
fn extras_are_json_where_they_parse() {
    let source = "{{ enable_thinking is true }} {{ n + 1 }} {{ date_string }} {{ docs[0].z }}";
    let extras = [
        ("enable_thinking", "true"),
        ("n", "41"),
        ("date_string", "26 Jul 2026"),
        ("docs", r#"[{"z": "a"}]"#),
    ];
    assert_eq!(render_with(source, &[], &extras).unwrap(), "True 42 26 Jul 2026 a");
    let template = ChatTemplate::compile(source, "", "").unwrap();
    assert!(template.mentions("enable_thinking") && !template.mentions("tools"));
}

#[test]
fn content_comes_in_the_form_the_template_reads() {
    let mut two = user("one ");
    two.content.push(Part::Text("two".to_owned()));
    let as_text = "{% for m in messages %}{{ m.content + '!' }}{% endfor %}";
    assert_eq!(render(as_text, std::slice::from_ref(&two)).unwrap(), "one two!");
    let as_list =
        "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}";
    assert_eq!(render(as_list, &[two]).unwrap(), "[one ][two]");
}

#[test]
fn arguments_come_in_the_form_the_template_reads_with_their_order_kept() {
    let messages = [user("x"), call("c", r#"{"z": 1, "a": {"y": 2, "b": 3}}"#)];
    let loop_ = |inner: &str| {
        format!(
            "{{% for m in messages %}}{{{{ m.content }}}}{{% for c in m.tool_calls %}}{inner}{{% endfor %}}{{% endfor %}}"
        )
    };
    let as_object = loop_("{{ c.function.arguments | tojson }}{{ c.function.arguments.z }}");
    assert_eq!(render(&as_object, &messages).unwrap(), r#"x{"z": 1, "a": {"y": 2, "b": 3}}1"#);
    let as_text = loop_("{{ 'args: ' + c.function.arguments }}");
    assert_eq!(render(&as_text, &messages).unwrap(), r#"xargs: {"z": 1, "a": {"y": 2, "b": 3}}"#);
    // Not JSON: handed on as it is.
    let broken = [user("x"), call("c", "{oops")];
    assert_eq!(render(&loop_("{{ c.function.arguments }}"), &broken).unwrap(), "x{oops");
    let none = [user("x"), call("c", "")];
    assert_eq!(render(&loop_("{{ c.function.arguments | tojson }}"), &none).unwrap(), "x{}");
}

#[test]
fn reasoning_goes_under_the_name_the_template_knows() {
    let mut thought = Message::text(Role::Assistant, "4");
    thought.reasoning = Some("2+2".to_owned());
    for key in ["reasoning_content", "thinking", "reasoning"] {
        let source = format!("{{{{ messages[0].{key} }}}}");
        assert_eq!(render(&source, std::slice::from_ref(&thought)).unwrap(), "2+2", "{key}");
    }
}

#[test]
fn ids_of_nine_characters_where_the_template_insists() {
    let source = "{# alphanumeric strings with length 9 #}{% for m in messages %}\
        {{ m.tool_calls[0].id if m.tool_calls else m.tool_call_id }} {% endfor %}";
    let mut result = Message::text(Role::Tool, "1");
    result.tool_call_id = Some("call_1".to_owned());
    let text = render(source, &[call("call_1", "{}"), result]).unwrap();
    let ids: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(ids[0], ids[1]);
    assert!(ids[0].len() == 9 && ids[0].bytes().all(|byte| byte.is_ascii_alphanumeric()), "{text}");
    assert_eq!(render(source, &[call("abcDEF123", "{}")]).unwrap().trim(), "abcDEF123");
}

#[test]
fn ids_are_names_with_numbers_where_the_template_writes_them_as_the_call() {
    let source = "{% for m in messages %}{% for c in m.tool_calls or [] %}<|tool_call_begin|>\
        {{ c.id }}<|tool_call_argument_begin|>{% endfor %}\
        {{ '= ' + m.tool_call_id + ';' if m.tool_call_id else '' }}{% endfor %}";
    let result = |id: &str| {
        let mut result = Message::text(Role::Tool, "1");
        result.tool_call_id = Some(id.to_owned());
        result
    };
    let mut two = call("call_a", "{}");
    two.tool_calls.push(ToolCall { id: "call_b".to_owned(), ..two.tool_calls[0].clone() });
    two.tool_calls[1].name = "other".to_owned();
    let name = two.tool_calls[0].name.clone();
    // An id that was used before is the newest call's, one that nobody gave stays.
    let turns = [
        two,
        result("call_b"),
        result("call_a"),
        call("call_a", "{}"),
        result("call_a"),
        result("lost"),
    ];
    let text = render(source, &turns).unwrap();
    let text =
        text.replace("<|tool_call_begin|>", "> ").replace("<|tool_call_argument_begin|>", " ");
    assert_eq!(
        text,
        format!(
            "> functions.{name}:0 > functions.other:1 = functions.other:1;= functions.{name}:0;\
             > functions.{name}:2 = functions.{name}:2;= lost;"
        )
    );
}

#[test]
fn tools_keep_the_order_of_their_keys() {
    let tool = Tool {
        name: "f".to_owned(),
        description: None,
        parameters: r#"{"z": 1, "a": 2, "m": {"q": 1, "b": 2}}"#.to_owned(),
        strict: Some(true),
        extras: vec![],
    };
    let template = ChatTemplate::compile("{{ tools | tojson }}", "", "").unwrap();
    assert_eq!(
        template.render(&[], &[tool], false, &[]).unwrap(),
        r#"[{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2, "m": {"q": 1, "b": 2}}, "strict": true}}]"#
    );
}

#[test]
fn the_date_is_the_renderings() {
    let template = ChatTemplate::compile("{{ strftime_now('%d %b %Y %B') }}", "", "").unwrap();
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_785_067_200);
    assert_eq!(template.render_at(noon, &[], &[], false, &[]).unwrap(), "26 Jul 2026 July");
}

#[test]
fn a_system_turn_folds_into_the_first_user_turn() {
    let system = Message::text(Role::System, "Be brief.");
    let folded = fold_system(&[system.clone(), user("Hi"), user("More")]);
    let text = render("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}", &folded);
    assert_eq!(text.unwrap(), "user:Be brief.\n\nHi;user:More;");
    let alone = fold_system(&[system]);
    assert_eq!(
        render("{{ messages[0].role }}:{{ messages[0].content }}", &alone).unwrap(),
        "user:Be brief."
    );
}
