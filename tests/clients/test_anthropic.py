"""What the official anthropic package expects of a server."""

import json

import anthropic
import httpx
import pytest
import scripts

QUESTION = [{"role": "user", "content": "Name three colours."}]
TOOLS = [
    {"name": "weather", "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}}},
    {"name": "nothing", "input_schema": {"type": "object", "properties": {}}},
]


# The package no longer names the temperature itself.
GREEDY = {"temperature": 0}


def ask(claude, name, temperature=0, **change):
    request = {"model": name, "messages": QUESTION, "max_tokens": 24, **change}
    return claude.messages.create(**request, extra_body={"temperature": temperature})


def say(claude, text, **change):
    messages = [{"role": "user", "content": text}]
    return claude.messages.create(model="scripted", messages=messages, max_tokens=100, **change)


def test_a_message_has_text_and_usage(claude, oai, model):
    answer = ask(claude, model)
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", model)
    assert answer.content[0].type == "text"
    chat = oai.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=24)
    assert answer.content[0].text == chat.choices[0].message.content
    usage = answer.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == chat.usage.prompt_tokens
    assert usage.output_tokens == chat.usage.completion_tokens
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert answer._request_id.startswith("req_")


def test_a_stream_carries_the_same_message(claude, model):
    whole = ask(claude, model)
    with claude.messages.stream(model=model, messages=QUESTION, max_tokens=24, extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.content[0].text == text == whole.content[0].text
    assert (final.stop_reason, final.stop_sequence) == (whole.stop_reason, whole.stop_sequence)
    assert final.usage.output_tokens == whole.usage.output_tokens
    total = lambda usage: usage.input_tokens + usage.cache_read_input_tokens
    assert total(final.usage) == total(whole.usage)


def test_tokens_are_counted_exactly(claude, model):
    change = {"system": "You are brief.", "messages": QUESTION}
    answer = ask(claude, model, **change)
    counted = claude.messages.count_tokens(model=model, **change)
    usage = answer.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_a_stop_sequence_ends_the_answer_and_is_named(claude, model):
    text = ask(claude, model).content[0].text
    stop = text[len(text) // 2 : len(text) // 2 + 4]
    answer = ask(claude, model, stop_sequences=["\x00never", stop])
    assert answer.content[0].text == text[: text.index(stop)]
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", stop)


def test_length_is_said(claude, model):
    answer = ask(claude, model, max_tokens=4)
    assert (answer.stop_reason, answer.usage.output_tokens) == ("max_tokens", 4)


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_and_calls_are_blocks_of_their_own(scripted_claude, stream):
    change = {"tools": TOOLS, "model": "scripted", "max_tokens": 2000,
              "messages": [{"role": "user", "content": scripts.CALLS}]}
    if stream:
        with scripted_claude.messages.stream(**change) as events:
            answer = events.get_final_message()
    else:
        answer = scripted_claude.messages.create(**change)
    kinds = [block.type for block in answer.content]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    thinking, text, weather, nothing = answer.content
    assert thinking.thinking == "hm, \nso" and thinking.signature == answer.id
    assert text.text == "Let me see."
    assert (weather.id, weather.name) == ("call_a", "weather")
    assert weather.input == json.loads(scripts.ZURICH)
    assert list(weather.input) == ["zone", "days"]
    assert (nothing.id, nothing.input) == ("call_b", {})
    assert answer.stop_reason == "tool_use"
    usage = answer.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (4, 3, 5)


def test_a_tool_loop_gives_back_what_it_got(scripted_claude):
    answer = say(scripted_claude, scripts.CALLS, tools=TOOLS)
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call_a", "content": "rain"},
            {"type": "tool_result", "tool_use_id": "call_b", "content": [{"type": "text", "text": "none"}]},
            {"type": "text", "text": "request"},
        ]},
    ]
    again = scripted_claude.messages.create(
        model="scripted", messages=messages, max_tokens=2000, tools=TOOLS
    )
    seen = again.content[0].text
    assert "call_a" in seen and "rain" in seen and "none" in seen and "hm, " in seen


@pytest.mark.parametrize("stream", [False, True])
def test_failures_are_raised(scripted_claude, stream):
    with pytest.raises(anthropic.APIStatusError) as caught:
        say(scripted_claude, scripts.REFUSED, stream=stream)
    assert caught.value.status_code == 503
    body = caught.value.body
    assert body["error"]["type"] == "overloaded_error" and body["request_id"]


def test_a_failure_in_the_stream_is_raised(scripted_claude):
    seen = []
    with pytest.raises(anthropic.APIError) as caught:
        for event in say(scripted_claude, scripts.BROKEN, stream=True):
            seen.append(event.type)
    assert "fell over" in str(caught.value)
    assert "message_stop" not in seen and "content_block_delta" in seen


@pytest.mark.parametrize(
    ("kind", "names", "change"),
    [
        (anthropic.NotFoundError, "nosuch", {"model": "nosuch"}),
        (anthropic.BadRequestError, "messages", {"messages": []}),
        (anthropic.BadRequestError, "temperature", {"temperature": 1.5}),
        (anthropic.BadRequestError, "max_tokens", {"max_tokens": 0}),
        (anthropic.BadRequestError, "tool_choice", {"tool_choice": {"type": "any"}}),
        (anthropic.BadRequestError, "tools[0].type", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        (anthropic.BadRequestError, "budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": 5}}),
        (anthropic.BadRequestError, "think", {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}}),
        (anthropic.BadRequestError, "messages[1]", {"messages": [*QUESTION, {"role": "assistant", "content": "Red,"}]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_done_is_said(claude, model, kind, names, change):
    with pytest.raises(kind) as caught:
        ask(claude, model, **change)
    assert caught.value.body["type"] == "error"
    assert names in caught.value.body["error"]["message"]


def test_an_event_stream_has_names(url, model):
    body = {"model": model, "messages": QUESTION, "max_tokens": 4, "stream": True}
    text = httpx.post(f"{url}/v1/messages", json=body, timeout=120).text
    frames = [frame.split("\n") for frame in text.split("\n\n") if frame]
    assert all(len(lines) == 2 for lines in frames)
    for event, data in frames:
        assert event == f"event: {json.loads(data.removeprefix('data: '))['type']}"
