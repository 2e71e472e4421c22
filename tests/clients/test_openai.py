"""What the official openai package expects of a server."""

import base64
import json
import math
import struct

import openai
import pytest
import scripts

QUESTION = [{"role": "user", "content": "Name three colours."}]


def ask(oai, name, **change):
    request = {"model": name, "messages": QUESTION, "temperature": 0, "max_tokens": 24, **change}
    return oai.chat.completions.create(**request)


def test_the_packages_own_stream_helper_puts_calls_together(scripted_oai):
    def tool(name):
        parameters = {"type": "object", "properties": {}, "additionalProperties": False}
        return {"type": "function", "function": {"name": name, "strict": True, "parameters": parameters}}

    messages = [{"role": "user", "content": scripts.CALLS}]
    request = {"model": "scripted", "messages": messages, "tools": [tool("weather"), tool("nothing")]}
    with scripted_oai.chat.completions.stream(**request) as stream:
        events = [event for event in stream]
        final = stream.get_final_completion()
    parts = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
    assert {part.index for part in parts} == {0, 1}
    message = final.choices[0].message
    assert message.content == "Let me see."
    assert [call.id for call in message.tool_calls] == ["call_a", "call_b"]
    assert [call.function.arguments for call in message.tool_calls] == [scripts.ZURICH, "{}"]


def test_models_are_listed_and_found(oai, model):
    ids = [entry.id for entry in oai.models.list()]
    mine = next(entry for entry in ids if entry.split(":")[0] == model)
    found = oai.models.retrieve(mine)
    assert (found.id, found.object) == (mine, "model")
    with pytest.raises(openai.NotFoundError) as caught:
        oai.models.retrieve("nosuch")
    assert caught.value.code == "model_not_found"


def test_chat_answers_with_usage(oai, model):
    answer = ask(oai, model)
    choice = answer.choices[0]
    assert answer.object == "chat.completion"
    assert choice.message.role == "assistant" and choice.message.content.strip()
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.prompt_tokens > 10 and 0 < usage.completion_tokens <= 24
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_stream_has_the_documented_order(oai, model):
    whole = ask(oai, model)
    chunks = list(ask(oai, model, stream=True, stream_options={"include_usage": True}))
    assert len({(chunk.id, chunk.created, chunk.object) for chunk in chunks}) == 1
    *body, usage = chunks
    first, last = body[0].choices[0], body[-1].choices[0]
    assert first.delta.role == "assistant" and not first.delta.content
    assert [chunk.choices[0].finish_reason for chunk in body[:-1]] == [None] * (len(body) - 1)
    assert last.finish_reason == whole.choices[0].finish_reason
    text = "".join(chunk.choices[0].delta.content or "" for chunk in body)
    assert text == whole.choices[0].message.content
    assert all(chunk.usage is None for chunk in body)
    assert usage.choices == [] and usage.usage == whole.usage


def test_a_stream_without_usage_has_none(oai, model):
    assert all(chunk.usage is None and chunk.choices for chunk in ask(oai, model, stream=True))


def test_content_parts_are_one_message(oai, model):
    parts = [{"type": "text", "text": "Name three"}, {"type": "text", "text": " colours."}]
    answer = ask(oai, model, messages=[{"role": "user", "content": parts}])
    assert answer.choices[0].message.content == ask(oai, model).choices[0].message.content


def test_the_newer_length_name_counts(oai, model):
    answer = ask(oai, model, max_tokens=openai.omit, max_completion_tokens=4)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 4


def test_a_seed_repeats_an_answer(oai, model):
    say = lambda seed: ask(oai, model, temperature=1.2, seed=seed).choices[0].message.content
    assert say(7) == say(7)
    assert len({say(seed) for seed in range(4)}) > 1


def test_a_stop_string_ends_the_answer_and_is_not_in_it(oai, model):
    text = ask(oai, model).choices[0].message.content
    stop = text[len(text) // 2 : len(text) // 2 + 4]
    choice = ask(oai, model, stop=["\x00never", stop]).choices[0]
    assert choice.message.content == text[: text.index(stop)]
    assert choice.finish_reason == "stop"


def test_a_bias_moves_the_choice(oai, model):
    prompt = {"model": model, "prompt": "Once upon a", "temperature": 0, "max_tokens": 1}
    first = oai.completions.create(**prompt).choices[0].text
    favoured = {str(token): 100 for token in range(100, 104)}
    assert oai.completions.create(**prompt, logit_bias=favoured).choices[0].text != first


def test_logprobs_belong_to_the_tokens(oai, model):
    choice = ask(oai, model, logprobs=True, top_logprobs=2).choices[0]
    entries = choice.logprobs.content
    text = b"".join(bytes(entry.bytes) for entry in entries).decode()
    assert text.startswith(choice.message.content)
    for entry in entries:
        assert len(entry.top_logprobs) == 2
        assert entry.logprob == max(top.logprob for top in entry.top_logprobs)


def test_several_choices_are_given(oai, model):
    answer = ask(oai, model, n=2, temperature=1.2, seed=1)
    assert [choice.index for choice in answer.choices] == [0, 1]
    first, second = (choice.message.content for choice in answer.choices)
    assert first and second and first != second


def test_completions_continue_a_text(oai, model):
    request = {"model": model, "prompt": "Once upon a time", "temperature": 0, "max_tokens": 8}
    answer = oai.completions.create(**request)
    assert answer.object == "text_completion"
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 8)
    parts = list(oai.completions.create(**request, stream=True))
    assert "".join(part.choices[0].text for part in parts) == answer.choices[0].text
    assert parts[-1].choices[0].finish_reason == "length"


def test_several_prompts_are_answered(oai, model):
    request = {"model": model, "temperature": 0, "max_tokens": 4}
    prompts = ["Once upon", "The sky is"]
    answer = oai.completions.create(prompt=prompts, **request)
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice, prompt in zip(answer.choices, prompts):
        assert choice.text == oai.completions.create(prompt=prompt, **request).choices[0].text


def test_embeddings_come_as_floats_and_as_base64(oai, model):
    # The package asks for base64 and decodes it unless a format is named.
    implicit = oai.embeddings.create(model=model, input=["a cat", "a dog"])
    floats = oai.embeddings.create(model=model, input=["a cat", "a dog"], encoding_format="float")
    assert [item.index for item in floats.data] == [0, 1]
    assert implicit.usage.prompt_tokens == floats.usage.total_tokens > 2
    for one, other in zip(implicit.data, floats.data):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
        assert math.isclose(sum(x * x for x in one.embedding), 1, rel_tol=1e-3)
    coded = oai.embeddings.create(model=model, input="a cat", encoding_format="base64")
    raw = base64.b64decode(coded.data[0].embedding)
    assert list(struct.unpack(f"<{len(raw) // 4}f", raw)) == implicit.data[0].embedding
    assert len(oai.embeddings.create(model=model, input="a cat", dimensions=8).data[0].embedding) == 8


def test_json_is_honoured(oai, model):
    choice = ask(oai, model, response_format={"type": "json_object"}, max_tokens=200).choices[0]
    assert choice.finish_reason == "stop"
    assert isinstance(json.loads(choice.message.content), dict)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (openai.NotFoundError, {"model": "nosuch"}),
        (openai.BadRequestError, {"messages": []}),
        (openai.BadRequestError, {"messages": [{"role": "pirate", "content": "arr"}]}),
        (openai.BadRequestError, {"temperature": -1}),
        (openai.BadRequestError, {"temperature": "hot"}),
        (openai.BadRequestError, {"top_p": 2}),
        (openai.BadRequestError, {"top_logprobs": 2}),
        (openai.BadRequestError, {"max_tokens": -5}),
        (openai.BadRequestError, {"stop": ["a", "b", "c", "d", "e"]}),
        (openai.BadRequestError, {"stream_options": {"include_usage": True}}),
        (openai.BadRequestError, {"messages": [{"role": "user", "content": "x " * 300_000}]}),
    ],
    ids=lambda value: None if isinstance(value, type) else next(iter(value)),
)
def test_what_cannot_be_done_is_said(oai, model, kind, change):
    with pytest.raises(kind) as caught:
        ask(oai, model, **change)
    body = caught.value.response.json()["error"]
    assert set(body) >= {"message", "type", "param", "code"}
    assert body["message"]


def test_an_overflow_has_its_code(oai, model):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(oai, model, messages=[{"role": "user", "content": "word " * 100_000}])
    assert caught.value.code == "context_length_exceeded"
