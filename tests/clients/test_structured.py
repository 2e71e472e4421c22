"""Bound answers through the official clients: schema, expression and grammar, streamed or not."""

import json
import re

import openai
import pytest

QUESTION = [{"role": "user", "content": "Which city is the capital of Germany? Answer in JSON."}]
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "city": {"enum": ["Köln", "Berlin", "München"]},
        "people": {"type": "integer", "minimum": 1, "maximum": 9_999_999},
    },
    "required": ["city", "people"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": SCHEMA}}


def check(text):
    value = json.loads(text)
    assert list(value) == ["city", "people"]
    assert value["city"] in SCHEMA["properties"]["city"]["enum"]
    assert isinstance(value["people"], int) and 1 <= value["people"] <= 9_999_999


def ask(oai, model, **change):
    request = {"model": model, "messages": QUESTION, "temperature": 0, "max_tokens": 200, **change}
    return oai.chat.completions.create(**request)


def test_openai_schema(oai, model):
    choice = ask(oai, model, response_format=FORMAT).choices[0]
    assert choice.finish_reason == "stop"
    check(choice.message.content)


def test_openai_schema_streamed(oai, model):
    parts = [part for part in ask(oai, model, response_format=FORMAT, stream=True) if part.choices]
    text = "".join(part.choices[0].delta.content or "" for part in parts)
    check(text)
    assert parts[-1].choices[0].finish_reason == "stop"
    assert text == ask(oai, model, response_format=FORMAT).choices[0].message.content


@pytest.mark.parametrize(
    "body, expected",
    [
        ({"structured_outputs": {"regex": "(yes|no)[.!]"}}, r"(yes|no)[.!]"),
        ({"guided_choice": ["grün", "blau"]}, r"grün|blau"),
        ({"grammar": 'root ::= "[" [0-9]{2} "]"'}, r"\[\d\d\]"),
    ],
)
def test_fields_of_other_servers(oai, model, body, expected):
    choice = ask(oai, model, extra_body=body).choices[0]
    assert choice.finish_reason == "stop"
    assert re.fullmatch(expected, choice.message.content)


def test_openai_refusal_names_the_path(oai, model):
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    bad = {"type": "json_schema", "json_schema": {"name": "bad", "schema": schema}}
    with pytest.raises(openai.BadRequestError) as caught:
        ask(oai, model, response_format=bad)
    assert "/properties/a/uniqueItems" in str(caught.value)


def test_openai_cut_is_length(oai, model):
    choice = ask(oai, model, response_format=FORMAT, max_tokens=4).choices[0]
    assert choice.finish_reason == "length"


def test_openai_tools(oai, native, model):
    """A call, where the model says that it can be asked for one; otherwise a refusal by name."""
    tool = {
        "type": "function",
        "function": {"name": "look_up", "strict": True, "parameters": SCHEMA},
    }
    bound = {"tools": [tool], "tool_choice": "required"}
    if "tools" not in native.show(model).capabilities:
        with pytest.raises(openai.BadRequestError) as caught:
            ask(oai, model, **bound)
        assert caught.value.param == "tools"
        return
    choice = ask(oai, model, **bound).choices[0]
    assert choice.finish_reason == "tool_calls"
    for call in choice.message.tool_calls:
        assert call.function.name == "look_up"
        check(call.function.arguments)


def test_ollama_schema(native, model):
    options = {"temperature": 0, "num_predict": 200}
    answer = native.chat(model=model, messages=QUESTION, format=SCHEMA, options=options)
    check(answer.message.content)
    parts = native.chat(model=model, messages=QUESTION, format=SCHEMA, options=options, stream=True)
    assert "".join(part.message.content or "" for part in parts) == answer.message.content


def up_to_the_last_comma(text):
    """The object that a cut answer began, closed after its last whole member."""
    open_, quoted, escaped, last = [], False, False, None
    for at, letter in enumerate(text):
        if escaped or (quoted and letter not in '"\\'):
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter == '"':
            quoted = not quoted
        elif letter in "{[":
            open_.append("}" if letter == "{" else "]")
        elif letter in "}]":
            assert open_.pop() == letter
        elif letter == ",":
            last = at, list(reversed(open_))
    at, closing = last
    return json.loads(text[:at] + "".join(closing))


def test_ollama_json(native, model):
    options = {"temperature": 0, "num_predict": 400}
    answer = native.generate(model=model, prompt="A person as JSON:", format="json", options=options)
    if answer.done_reason == "stop":
        assert isinstance(json.loads(answer.response), dict)
        return
    # A small model does not find the end; what it wrote is JSON all the same.
    assert (answer.done_reason, answer.eval_count) == ("length", 400)
    assert isinstance(up_to_the_last_comma(answer.response), dict)
