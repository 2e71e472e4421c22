"""What the official openai package expects of a server's Responses API."""

import json

import openai
import pytest
import scripts

TOOL = {
    "type": "function", "name": "weather", "strict": False,
    "parameters": {"type": "object", "properties": {"zone": {"type": "string"}, "days": {}}},
}
NOTHING = {"type": "function", "name": "nothing", "parameters": {"type": "object", "properties": {}}}


def ask(oai, name, **change):
    request = {"model": name, "input": "Name three colours.", "temperature": 0,
               "max_output_tokens": 24, **change}
    return oai.responses.create(**request)


def say(oai, text, **change):
    return oai.responses.create(model="scripted", input=text, **change)


def test_a_response_has_text_and_usage(oai, model):
    answer = ask(oai, model)
    assert answer.object == "response" and answer.status in ("completed", "incomplete")
    assert answer.output_text.strip()
    chat = oai.chat.completions.create(
        model=model, temperature=0, max_tokens=24,
        messages=[{"role": "user", "content": "Name three colours."}],
    )
    assert answer.output_text == chat.choices[0].message.content
    assert answer.usage.input_tokens == chat.usage.prompt_tokens
    assert answer.usage.output_tokens == chat.usage.completion_tokens
    assert answer.usage.total_tokens == chat.usage.total_tokens


def test_a_stream_carries_the_same_response(oai, model):
    whole = ask(oai, model)
    events = list(ask(oai, model, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:4]] == [
        "response.created", "response.in_progress",
        "response.output_item.added", "response.content_part.added",
    ]
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    last = events[-1].response
    assert text == whole.output_text == last.output_text
    assert events[-1].type == f"response.{last.status}"
    assert (last.status, last.incomplete_details) == (whole.status, whole.incomplete_details)
    assert last.usage.output_tokens == whole.usage.output_tokens


def test_the_packages_own_stream_helper_puts_it_together(scripted_oai):
    request = {"model": "scripted", "input": scripts.CALLS, "tools": [TOOL, NOTHING]}
    with scripted_oai.responses.stream(**request) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert {"response.output_text.delta", "response.function_call_arguments.delta"} <= kinds
    assert final.output_text == "Let me see."
    assert final.output[2].arguments == scripts.ZURICH


def test_instructions_and_items_are_one_conversation(oai, model):
    items = [
        {"role": "developer", "content": "You are brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Name three colours."}]},
    ]
    answer = ask(oai, model, input=items)
    told = ask(oai, model, instructions="You are brief.")
    assert told.output_text == answer.output_text
    assert told.usage.input_tokens == answer.usage.input_tokens
    counted = oai.responses.input_tokens.count(
        model=model, input="Name three colours.", instructions="You are brief."
    )
    assert counted.input_tokens == told.usage.input_tokens


def test_a_conversation_goes_on_where_it_was_kept(oai, model):
    first = ask(oai, model)
    second = ask(oai, model, input="And three more.", previous_response_id=first.id)
    whole = [{"role": "user", "content": "Name three colours."}, *first.output,
             {"role": "user", "content": "And three more."}]
    assert ask(oai, model, input=whole).output_text == second.output_text
    assert oai.responses.retrieve(first.id).output_text == first.output_text
    oai.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        oai.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        ask(oai, model, previous_response_id=first.id)
    unkept = ask(oai, model, store=False)
    with pytest.raises(openai.NotFoundError):
        oai.responses.retrieve(unkept.id)


def test_length_is_why_it_is_incomplete(oai, model):
    answer = ask(oai, model, max_output_tokens=4)
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage.output_tokens == 4


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_and_calls_are_items_of_their_own(scripted_oai, stream):
    answer = say(scripted_oai, scripts.CALLS, tools=[TOOL, NOTHING], stream=stream)
    if stream:
        events = list(answer)
        pieces = [e for e in events if e.type == "response.function_call_arguments.delta"]
        assert len(pieces) > 2
        answer = events[-1].response
    kinds = [item.type for item in answer.output]
    assert kinds == ["reasoning", "message", "function_call", "function_call"]
    reasoning, _, weather, nothing = answer.output
    assert reasoning.content[0].text == "hm, \nso"
    assert answer.output_text == "Let me see."
    assert (weather.call_id, weather.name, weather.arguments) == ("call_a", "weather", scripts.ZURICH)
    assert (nothing.call_id, nothing.arguments) == ("call_b", "{}")
    usage = answer.usage
    assert (usage.input_tokens, usage.input_tokens_details.cached_tokens) == (7, 3)
    assert (usage.output_tokens, usage.output_tokens_details.reasoning_tokens) == (5, 2)


def test_a_tool_loop_gives_back_what_it_got(scripted_oai):
    answer = say(scripted_oai, scripts.CALLS, tools=[TOOL, NOTHING])
    items = [
        {"role": "user", "content": "?"}, *answer.output,
        {"type": "function_call_output", "call_id": "call_a", "output": "rain"},
        {"type": "function_call_output", "call_id": "call_b", "output": "none"},
        {"role": "user", "content": "request"},
    ]
    seen = json.loads(say(scripted_oai, items, tools=[TOOL, NOTHING]).output_text)
    assert scripts.ZURICH in json.dumps(seen, ensure_ascii=False).replace('\\"', '"')


@pytest.mark.parametrize("stream", [False, True])
def test_failures_are_raised(scripted_oai, stream):
    with pytest.raises(openai.InternalServerError) as caught:
        say(scripted_oai, scripts.REFUSED, stream=stream)
    assert caught.value.status_code == 503 and caught.value.code == "busy"


def test_a_failure_in_the_stream_is_raised_and_nothing_looks_finished(scripted_oai):
    seen = []
    with pytest.raises(openai.APIError) as caught:
        for event in say(scripted_oai, scripts.BROKEN, stream=True):
            seen.append(event.type)
    assert "fell over" in str(caught.value)
    assert seen[-1] == "response.failed" and "response.completed" not in seen


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("temperature", {"temperature": 3}),
        ("max_output_tokens", {"max_output_tokens": 0}),
        ("background", {"background": True}),
        ("truncation", {"truncation": "auto"}),
        ("conversation", {"conversation": "conv_1"}),
        ("tools[0].type", {"tools": [{"type": "web_search"}]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("input[0].type", {"input": [{"type": "item_reference", "id": "x"}]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_done_is_said(oai, model, field, change):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(oai, model, **change)
    assert caught.value.param == field


def test_json_is_honoured(oai, model):
    answer = ask(oai, model, text={"format": {"type": "json_object"}}, max_output_tokens=200)
    assert answer.status == "completed"
    assert isinstance(json.loads(answer.output_text), dict)
