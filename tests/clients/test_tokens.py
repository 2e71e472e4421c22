"""`/tokenize`, `/detokenize`, `/apply-template` over the native engine, against its own counts."""

import httpx
import pytest

TEXT = "Grüße, 漢字 😀 e\u0301!"


@pytest.fixture(scope="module")
def post(url):
    def run(path, **body):
        return httpx.post(url + path, json=body, timeout=120)

    return run


def test_tokens_and_text_are_one_another(post, model):
    answer = post("/tokenize", model=model, content=TEXT).json()
    assert answer["count"] == len(answer["tokens"]) > 5
    assert post("/detokenize", model=model, tokens=answer["tokens"]).json()["content"] == TEXT
    pieces = post("/tokenize", model=model, content=TEXT, with_pieces=True).json()["tokens"]
    assert [piece["id"] for piece in pieces] == answer["tokens"]
    raw = lambda piece: piece.encode() if isinstance(piece, str) else bytes(piece)
    assert b"".join(raw(piece["piece"]) for piece in pieces).decode() == TEXT


def test_half_a_character_is_marked(post, model):
    tokens = post("/tokenize", model=model, content="😀").json()["tokens"]
    assert len(tokens) > 1, "this vocabulary has the emoji whole; take a rarer one"
    answer = post("/detokenize", model=model, tokens=tokens[:1]).json()
    assert answer["lossy"] is True and "\ufffd" in answer["content"] and answer["bytes"]


def test_a_rendered_prompt_is_what_is_read(post, oai, model):
    messages = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Hello"}]
    prompt = post("/apply-template", model=model, messages=messages).json()["prompt"]
    assert "You are brief." in prompt and "Hello" in prompt and "assistant" in prompt
    read = oai.chat.completions.create(model=model, messages=messages, max_tokens=1).usage
    counted = post("/v1/chat/completions/input_tokens", model=model, messages=messages).json()
    assert counted["input_tokens"] == read.prompt_tokens
    by_chat = post("/tokenize", model=model, messages=messages).json()
    by_text = post("/tokenize", model=model, content=prompt).json()
    assert by_chat["count"] == read.prompt_tokens
    assert by_chat["tokens"] == by_text["tokens"]
    # Sent as it is, the rendered prompt is the same answer.
    greedy = {"model": model, "temperature": 0, "max_tokens": 8}
    chat = oai.chat.completions.create(messages=messages, **greedy).choices[0].message.content
    assert oai.completions.create(prompt=prompt, **greedy).choices[0].text == chat


@pytest.mark.parametrize(
    "body",
    [b'{"model":"%s","content":"\xe6\xad"}', b'{"model":"%s","content":"\\ud83d"}'],
)
def test_what_is_no_text_is_refused(url, model, body):
    content = body.replace(b"%s", model.encode())
    assert httpx.post(f"{url}/tokenize", content=content).status_code == 400


def test_a_token_that_is_not_there_is_refused(post, model):
    answer = post("/detokenize", model=model, tokens=[2**31])
    assert answer.status_code == 400 and "token" in answer.json()["error"]["message"]
