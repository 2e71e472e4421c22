"""What the official ollama package expects of a server."""

import json
import math

import ollama
import pytest

QUESTION = [{"role": "user", "content": "Name three colours."}]
GREEDY = {"temperature": 0, "num_predict": 24}
FREE = {"temperature": 1.2, "num_predict": 24}


def test_lists_and_shows_the_model(native, model):
    entry = next(m for m in native.list().models if m.model.split(":")[0] == model)
    assert entry.size > 1_000_000
    assert len(entry.digest) >= 12
    assert entry.details.format == "gguf"
    shown = native.show(model)
    assert shown.modelinfo["general.architecture"] == entry.details.family
    assert "completion" in shown.capabilities
    assert shown.template


def test_chat_answers_with_counts_and_times(native, model):
    answer = native.chat(model, QUESTION, options=GREEDY)
    assert answer.message.role == "assistant"
    assert answer.message.content.strip()
    assert answer.done and answer.done_reason in ("stop", "length")
    assert answer.prompt_eval_count > 10
    assert 0 < answer.eval_count <= 24
    assert answer.total_duration >= answer.eval_duration > 0


def test_a_stream_carries_the_same_text(native, model):
    whole = native.chat(model, QUESTION, options=GREEDY)
    parts = list(native.chat(model, QUESTION, options=GREEDY, stream=True))
    assert len(parts) > 3
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count
    assert parts[-1].done_reason == whole.done_reason


def test_generate_applies_the_template_and_raw_does_not(native, model):
    templated = native.generate(model, "Name three colours.", options=GREEDY)
    raw = native.generate(model, "Name three colours.", raw=True, options=GREEDY)
    assert templated.response.strip() and raw.response.strip()
    assert templated.prompt_eval_count > raw.prompt_eval_count
    parts = list(native.generate(model, "Name three colours.", options=GREEDY, stream=True))
    assert "".join(part.response for part in parts) == templated.response
    assert parts[-1].done


def test_a_system_text_changes_the_prompt(native, model):
    plain = native.generate(model, "Hello", options={**GREEDY, "num_predict": 1})
    system = native.generate(
        model, "Hello", system="You answer in one word and never explain anything at all to anybody.",
        options={**GREEDY, "num_predict": 1},
    )
    assert system.prompt_eval_count != plain.prompt_eval_count


def test_a_seed_repeats_an_answer(native, model):
    ask = lambda seed: native.chat(model, QUESTION, options={**FREE, "seed": seed}).message.content
    assert ask(7) == ask(7)
    assert len({ask(seed) for seed in range(4)}) > 1


def test_the_length_limit_is_exact(native, model):
    answer = native.generate(
        model, "Once upon a time", raw=True, options={"temperature": 0, "num_predict": 5}
    )
    assert (answer.eval_count, answer.done_reason) == (5, "length")


def test_a_stop_string_ends_the_answer_and_is_not_in_it(native, model):
    text = native.generate(model, "Once upon a time", raw=True, options=GREEDY).response
    stop = text[len(text) // 2 : len(text) // 2 + 5]
    answer = native.generate(
        model, "Once upon a time", raw=True, options={**GREEDY, "stop": [stop]}
    )
    assert answer.response == text[: text.index(stop)]
    assert answer.done_reason == "stop"


def test_logprobs_belong_to_the_tokens(native, model):
    answer = native.chat(model, QUESTION, options=GREEDY, logprobs=True, top_logprobs=3)
    assert "".join(entry.token for entry in answer.logprobs).startswith(answer.message.content)
    for entry in answer.logprobs:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
        # Greedy: the chosen token is the likeliest.
        assert entry.logprob == max(top.logprob for top in entry.top_logprobs)


def test_embeddings_are_unit_vectors_by_text(native, model):
    answer = native.embed(model, ["a cat", "a kitten", "a cat"])
    first, second, third = answer.embeddings
    for vector in answer.embeddings:
        assert math.isclose(sum(x * x for x in vector), 1, rel_tol=1e-3)
    assert first == third
    assert first != second
    assert answer.prompt_eval_count > 3
    short = native.embed(model, "a cat", dimensions=8).embeddings[0]
    assert len(short) == 8 and math.isclose(sum(x * x for x in short), 1, rel_tol=1e-3)
    assert len(native.embeddings(model, "a cat").embedding) == len(first)
    assert native.embed(model, []).embeddings == []


def test_an_empty_request_loads_and_unloads(native, model):
    assert native.generate(model, "").done_reason == "load"
    assert model in [m.model.split(":")[0] for m in native.ps().models]
    assert native.generate(model, "", keep_alive=0).done_reason == "unload"
    assert model not in [m.model.split(":")[0] for m in native.ps().models]


def test_another_context_length_is_no_other_model(native, model):
    native.generate(model, "", keep_alive=0)
    for place, context in enumerate((8192, 4096, 8192)):
        options = {**GREEDY, "num_ctx": context, "num_predict": 1}
        answer = native.chat(model, QUESTION, options=options)
        assert bool(answer.load_duration) == (place == 0), (context, answer.load_duration)


def test_ps_tells_memory_and_expiry(native, model):
    native.chat(model, QUESTION, options={"num_predict": 1}, keep_alive="10m")
    running = next(m for m in native.ps().models if m.model.split(":")[0] == model)
    assert running.size > 1_000_000
    assert running.expires_at is not None
    assert running.context_length > 0


def test_json_is_honoured(native, model):
    answer = native.chat(model, QUESTION, format="json", options={**GREEDY, "num_predict": 200})
    assert answer.done_reason == "stop"
    assert isinstance(json.loads(answer.message.content), dict)


def test_tools_are_as_show_says(native, model):
    def add(a: int, b: int) -> int:
        """Adds two numbers.

        Args:
          a: one
          b: the other
        """
        return a + b

    if "tools" in native.show(model).capabilities:
        assert model != "smollm2", "its template has no place for tools"
        assert native.chat(model, QUESTION, tools=[add], options=GREEDY).done
    else:
        refused(native, 400, "tools", model=model, messages=QUESTION, tools=[add])


@pytest.mark.parametrize(
    ("status", "names", "change"),
    [
        (404, "nosuch", {"model": "nosuch"}),
        (400, "think", {"think": True}),
        (400, "temperature", {"options": {"temperature": "hot"}}),
        (400, "top_logprobs", {"logprobs": True, "top_logprobs": 21}),
        (400, "image", {"messages": [{"role": "user", "content": "?", "images": [b"\x89PNG"]}]}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_done_is_said(native, model, status, names, change, stream):
    refused(native, status, names, **{"model": model, "messages": QUESTION, **change}, stream=stream)


def refused(native, status, names, **request):
    with pytest.raises(ollama.ResponseError) as caught:
        answer = native.chat(**request)
        if request.get("stream"):
            list(answer)
    assert caught.value.status_code == status
    assert names in caught.value.error


def test_models_cannot_be_changed_unless_switched_on(native, model):
    for change in (lambda: native.delete(model), lambda: native.copy(model, "other")):
        with pytest.raises(ollama.ResponseError) as caught:
            change()
        assert caught.value.status_code in (403, 405)
    assert [m.model for m in native.list().models if m.model.startswith(model)]
