"""The wire itself: media types, frames, error envelopes, rude clients."""

import concurrent.futures
import json
import socket
import urllib.parse

import pytest

MESSAGES = [{"role": "user", "content": "Name three colours."}]
NATIVE = {"messages": MESSAGES, "options": {"temperature": 0, "num_predict": 8}}
V1 = {"messages": MESSAGES, "temperature": 0, "max_tokens": 8}


def body(model, fields=NATIVE, **change):
    return json.dumps({"model": model, **fields, **change}).encode()


def test_health_and_metrics(curl):
    assert curl("/healthz")[0] == 200
    assert curl("/readyz")[0] == 200
    status, headers, text = curl("/metrics")
    assert status == 200 and headers["content-type"].startswith("application/openmetrics-text")
    assert b"# TYPE" in text
    assert curl("/")[2] == b"Gristmill is running"
    assert json.loads(curl("/api/version")[2])["version"]


def test_ndjson_lines(curl, model):
    status, headers, text = curl("/api/chat", data=body(model))
    assert (status, headers["content-type"]) == (200, "application/x-ndjson")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert all(line["created_at"].endswith("Z") for line in lines)


def test_event_stream_frames(curl, model):
    status, headers, text = curl("/v1/chat/completions", data=body(model, V1, stream=True))
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    frames = [frame for frame in text.decode().split("\n\n") if frame]
    assert all(frame.startswith("data: ") for frame in frames)
    assert frames[-1] == "data: [DONE]"
    assert [json.loads(frame[6:])["object"] for frame in frames[:-1]]


def test_an_answer_names_its_source(curl, model):
    status, headers, _ = curl("/v1/chat/completions", data=body(model, V1))
    assert status == 200
    for part in ("request-id", "model", "backend", "digest", "generation"):
        named = [name for name in headers if name.startswith("x-") and name.endswith(part)]
        assert named and headers[named[0]], f"no header for {part} in {sorted(headers)}"


@pytest.mark.parametrize(
    "bad",
    [
        b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b"", b'{"model": 3}',
        b'{"model": "smollm2", "messages": "hello"}',
        b'{"model": "smollm2", "messages": [{"role": "user", "content": 5}]}',
        b'{"model": "smollm2", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b"[" * 100_000,
    ],
    ids=lambda value: value[:40].decode("latin-1"),
)
@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
def test_malformed_bodies_get_the_dialects_envelope(curl, path, bad):
    status, headers, text = curl(path, data=bad)
    assert 400 <= status < 500
    assert headers["content-type"].startswith("application/json")
    error = json.loads(text)["error"]
    if path.startswith("/v1"):
        assert set(error) == {"message", "type", "param", "code"} and error["message"]
    else:
        assert isinstance(error, str) and error


def test_unknown_paths_and_methods(curl):
    assert curl("/api/nosuch")[0] == 404
    assert curl("/v1/nosuch")[0] == 404
    assert curl("/api/chat")[0] == 405


def test_a_huge_body_is_refused(curl, model):
    text = b'{"model": "' + b"x" * (200 << 20) + b'"}'
    for path in ("/api/chat", "/v1/chat/completions"):
        status, headers, answer = curl(path, data=text)
        assert status == 413
        assert json.loads(answer)["error"]


def test_slow_clients_keep_nobody_waiting(url, curl, model):
    """Many half-sent requests are open while others are answered."""
    target = urllib.parse.urlsplit(url)
    place = (target.hostname, target.port)
    slow = [socket.create_connection(place, timeout=60) for _ in range(32)]
    try:
        for number, client in enumerate(slow):
            client.sendall(b"POST /api/chat HTTP/1.1\r\nHost: 127.0.0.1\r\n"[: number + 1])
        assert curl("/api/chat", data=body(model, stream=False))[0] == 200
    finally:
        for client in slow:
            client.close()


def test_clients_that_leave_free_their_places(url, curl, model):
    """More clients than there are places start long answers and leave; the next one is served."""
    target = urllib.parse.urlsplit(url)
    request = body(model, options={"num_predict": 4000, "temperature": 1}, stream=True)
    head = (
        f"POST /api/chat HTTP/1.1\r\nHost: {target.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(request)}\r\n\r\n"
    ).encode()
    place = (target.hostname, target.port)
    clients = [socket.create_connection(place, timeout=60) for _ in range(8)]
    for client in clients:
        client.sendall(head + request)
    for client in clients[:2]:
        assert client.recv(64)  # streams already
    for client in clients:
        client.close()
    status, _, text = curl("/api/chat", "--max-time", "20", data=body(model, stream=False))
    assert status == 200 and json.loads(text)["done"]


def test_answers_side_by_side_are_the_answers_alone(curl, model):
    data = body(model, stream=False)
    alone = json.loads(curl("/api/chat", data=data)[2])["message"]["content"]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: curl("/api/chat", data=data), range(6)))
    assert {json.loads(text)["message"]["content"] for _, _, text in answers} == {alone}
