"""A fake server that others wrote, guidellm's, behind the bridges: what it says arrives whole in every
dialect, and its failures are failures.
"""

import contextlib
import pathlib
import socket
import subprocess
import time

import anthropic
import conftest
import httpx
import ollama
import openai
import pytest

PYTHON = pathlib.Path(__file__).parents[2] / "target/foreign/bin/guidellm"
TOKENS = 12
BRIDGES = ("openai-compatible", "vllm")
SUM = {"type": "function", "function": {"name": "sum", "parameters": {"type": "object"}}}


@contextlib.contextmanager
def mock_server(*flags):
    """The fake on a port of its own, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [PYTHON, "mock-server", "--host", "127.0.0.1", "--port", str(port), "--model", "mock"]
    timing = ["--ttft-ms", "2", "--itl-ms", "0.5", "--output-tokens", str(TOKENS)]
    server = subprocess.Popen(
        [*command, *timing, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + conftest.START_SECONDS
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}/health", timeout=1).status_code == 200:
                    break
            assert server.poll() is None and time.monotonic() < deadline, "the fake does not start"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=60)


@contextlib.contextmanager
def in_front_of(fake):
    """gristmill with this server behind a bridge of each kind."""
    servers = [flag for name in BRIDGES for flag in ("--backend", f"{name}={name},{fake}")]
    with conftest.running("foreign", "--plugins-backend", "", *servers) as address:
        yield address


@pytest.fixture(scope="module")
def fake():
    with mock_server() as address:
        yield address


@pytest.fixture(scope="module")
def ours(fake):
    with in_front_of(fake) as address:
        yield address


def client(address):
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", timeout=60, max_retries=0)


def hello(bridge, **change):
    return {"model": f"{bridge}/mock", "messages": [{"role": "user", "content": "hello"}], **change}


@pytest.mark.parametrize("bridge", BRIDGES)
def test_its_counts_and_its_ends_are_the_servers_in_every_dialect(ours, fake, bridge):
    direct = client(fake).chat.completions.create(**hello(bridge, model="mock"))
    answer = client(ours).chat.completions.create(**hello(bridge))
    assert answer.usage.completion_tokens == direct.usage.completion_tokens == TOKENS
    assert answer.usage.prompt_tokens == direct.usage.prompt_tokens
    assert answer.choices[0].finish_reason == direct.choices[0].finish_reason
    assert answer.choices[0].message.content

    parts = list(client(ours).chat.completions.create(
        **hello(bridge, stream=True, max_tokens=8, stream_options={"include_usage": True})
    ))
    assert parts[-1].usage.completion_tokens == 8
    assert "".join(part.choices[0].delta.content or "" for part in parts[:-1])
    assert [part.choices[0].finish_reason for part in parts[:-1] if part.choices[0].finish_reason]

    native = ollama.Client(host=ours, timeout=60).chat(f"{bridge}/mock", hello(bridge)["messages"])
    assert (native.eval_count, native.prompt_eval_count) == (TOKENS, direct.usage.prompt_tokens)
    claude = anthropic.Anthropic(base_url=ours, api_key="none", timeout=60, max_retries=0)
    message = claude.messages.create(**hello(bridge, max_tokens=8))
    assert (message.usage.output_tokens, message.content[0].type) == (8, "text")


@pytest.mark.parametrize("bridge", BRIDGES)
@pytest.mark.parametrize("stream", (False, True))
def test_a_call_that_is_required_arrives_with_its_id(ours, bridge, stream):
    asked = hello(bridge, tools=[SUM], tool_choice="required", stream=stream)
    answer = client(ours).chat.completions.create(**asked)
    if stream:
        parts = [part.choices[0] for part in answer if part.choices]
        calls = [call for part in parts for call in part.delta.tool_calls or []]
        finish = [part.finish_reason for part in parts if part.finish_reason]
        name = "".join(call.function.name or "" for call in calls)
        arguments = "".join(call.function.arguments or "" for call in calls)
        ids = {call.id for call in calls if call.id}
    else:
        (call,) = answer.choices[0].message.tool_calls
        finish = [answer.choices[0].finish_reason]
        name, arguments, ids = call.function.name, call.function.arguments, {call.id}
    assert (name, arguments, finish, len(ids)) == ("sum", "{}", ["tool_calls"], 1)


@pytest.mark.parametrize("bridge", BRIDGES)
def test_what_it_gets_wrong_is_not_guessed_at(ours, bridge):
    # Streaming a completion it counts its tokens where the choice's number belongs.
    with pytest.raises(openai.InternalServerError) as refused:
        client(ours).completions.create(model=f"{bridge}/mock", prompt="hello", max_tokens=8)
    assert "asked for one answer, and got several" in str(refused.value.message)


@pytest.mark.parametrize("bridge", BRIDGES)
def test_its_failure_is_a_failure_that_names_the_back_end(bridge):
    with mock_server("--fail-after-requests", "0") as broken, in_front_of(broken) as address:
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError) as refused:
                client(address).chat.completions.create(**hello(bridge, stream=stream))
            assert refused.value.status_code == 502
            assert bridge in str(refused.value.message), refused.value.message
