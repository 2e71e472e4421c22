"""litellm as a client: one question through four of its providers is one answer."""

import json

import litellm
import pytest
import scripts

litellm.suppress_debug_info = True
QUESTION = [{"role": "user", "content": "Name three colours."}]
PROVIDERS = {
    "openai": ("openai/{}", "/v1"),
    "hosted_vllm": ("hosted_vllm/{}", "/v1"),
    "anthropic": ("anthropic/{}", ""),
    "ollama_chat": ("ollama_chat/{}", ""),
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in (("weather", {"zone": {"type": "string"}}), ("nothing", {}))
]


def ask(provider, url, model, messages=QUESTION, **change):
    name, path = PROVIDERS[provider]
    return litellm.completion(
        model=name.format(model), api_base=url + path, api_key="none", messages=messages,
        max_tokens=24, num_retries=0, timeout=120, **change,
    )


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_gives_the_same_answer(url, oai, model, provider):
    plain = oai.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=24)
    answer = ask(provider, url, model, temperature=0)
    assert answer.choices[0].message.content == plain.choices[0].message.content
    assert answer.choices[0].finish_reason == plain.choices[0].finish_reason
    assert answer.usage.completion_tokens == plain.usage.completion_tokens
    assert answer.usage.prompt_tokens == plain.usage.prompt_tokens
    parts = list(ask(provider, url, model, temperature=0, stream=True))
    text = "".join(part.choices[0].delta.content or "" for part in parts)
    assert text == plain.choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "anthropic"])
def test_calls_and_reasoning_come_through(script_url, provider, stream):
    messages = [{"role": "user", "content": scripts.CALLS}]
    answer = ask(provider, script_url, "scripted", messages, tools=TOOLS, stream=stream)
    if stream:
        answer = litellm.stream_chunk_builder(list(answer), messages=messages)
    message = answer.choices[0].message
    assert message.content == "Let me see."
    assert message.reasoning_content == "hm, \nso"
    assert [call.function.name for call in message.tool_calls] == ["weather", "nothing"]
    assert [call.id for call in message.tool_calls] == ["call_a", "call_b"]
    assert json.loads(message.tool_calls[0].function.arguments) == json.loads(scripts.ZURICH)
    assert json.loads(message.tool_calls[1].function.arguments) == {}
    assert answer.choices[0].finish_reason == "tool_calls"


def test_responses_through_litellm(url, oai, model):
    request = {"input": "Name three colours.", "temperature": 0, "max_output_tokens": 24}
    plain = oai.responses.create(model=model, **request)
    answer = litellm.responses(
        model=f"openai/{model}", api_base=f"{url}/v1", api_key="none", num_retries=0, **request
    )
    assert answer.output[0].content[0].text == plain.output_text
    assert answer.usage.output_tokens == plain.usage.output_tokens


def test_documents_are_ranked(script_url):
    answer = litellm.rerank(
        model="hosted_vllm/scripted", api_base=f"{script_url}/v1", api_key="none",
        query="red apple", documents=["a green pear", "an apple", "a red apple"], top_n=2,
        return_documents=True,
    )
    assert [result["index"] for result in answer.results] == [2, 1]
    scores = [result["relevance_score"] for result in answer.results]
    assert scores == sorted(scores, reverse=True) and 0 < scores[0] <= 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_unknown_model_is_not_found(url, provider):
    with pytest.raises((litellm.NotFoundError, litellm.APIConnectionError)) as caught:
        ask(provider, url, "nosuch")
    assert "nosuch" in str(caught.value)
