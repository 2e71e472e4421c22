"""A stop string cuts at the same place on every route, across tokens, streamed and whole."""

import pytest

QUESTION = "Name three colours."
MESSAGES = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def routes(native, oai, claude, model):
    """Each route's text for a stop string, whole and streamed."""
    v1 = {"model": model, "temperature": 0}
    options = lambda stop: {"temperature": 0, "num_predict": 24, "stop": stop}

    def chat(stop, stream):
        answer = oai.chat.completions.create(**v1, messages=MESSAGES, max_tokens=24, stop=stop, stream=stream)
        if not stream:
            return answer.choices[0].message.content
        return "".join(part.choices[0].delta.content or "" for part in answer)

    def responses(stop, stream):
        answer = oai.responses.create(
            **v1, input=QUESTION, max_output_tokens=24, extra_body={"stop": stop}, stream=stream
        )
        if not stream:
            return answer.output_text
        return "".join(e.delta for e in answer if e.type == "response.output_text.delta")

    def messages(stop, stream):
        request = {"model": model, "messages": MESSAGES, "max_tokens": 24, "stop_sequences": stop,
                   "extra_body": {"temperature": 0}}
        if not stream:
            return claude.messages.create(**request).content[0].text
        with claude.messages.stream(**request) as events:
            return "".join(events.text_stream)

    def ollama(stop, stream):
        answer = native.chat(model, MESSAGES, options=options(stop), stream=stream)
        return "".join(p.message.content for p in answer) if stream else answer.message.content

    return {"chat": chat, "responses": responses, "messages": messages, "ollama": ollama}


@pytest.mark.parametrize("length", [1, 3, 9])
@pytest.mark.parametrize("route", ["chat", "responses", "messages", "ollama"])
def test_every_route_cuts_at_the_same_place(routes, route, length):
    full = routes["chat"](["\x00never"], False)
    start = len(full) // 3
    stop = full[start : start + length]
    for stream in (False, True):
        assert routes[route](["\x00never", stop], stream) == full[: full.index(stop)]


@pytest.mark.parametrize("length", [1, 3, 9])
def test_completions_cut_too(oai, model, length):
    request = {"model": model, "prompt": "Once upon a time", "temperature": 0, "max_tokens": 24}
    full = oai.completions.create(**request).choices[0].text
    start = len(full) // 3
    stop = full[start : start + length]
    assert oai.completions.create(**request, stop=stop).choices[0].text == full[: full.index(stop)]
    parts = oai.completions.create(**request, stop=stop, stream=True)
    assert "".join(part.choices[0].text for part in parts) == full[: full.index(stop)]
