"""Sentence vectors of all-MiniLM-L6-v2, from the checkpoint in its package through the component
and the engine to the clients, held against the published model's.

minilm/vectors.json was written by minilm/oracle.py, which gives the similarities that the model's
own library publishes for the first three sentences.
"""

import json
import os
import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent
ROWS = json.loads((HERE / "minilm/vectors.json").read_text())
TEXTS = [row["text"] for row in ROWS]


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


@pytest.fixture(scope="module")
def minilm(url):
    if "GRISTMILL_URL" not in os.environ:
        root = HERE.parents[1]
        binary = os.environ.get("GRISTMILL_BINARY", str(root / "target/dist/bin/gristmill"))
        store = {"GRISTMILL_PATHS_MODELS": str(root / "target/clients-work/store")}
        subprocess.run([binary, "pull", "minilm"], check=True, env={**os.environ, **store})
    return "minilm"


def test_vectors_are_the_published_models(oai, minilm):
    data = oai.embeddings.create(model=minilm, input=TEXTS).data
    assert [entry.index for entry in data] == list(range(len(TEXTS)))
    for entry, row in zip(data, ROWS, strict=True):
        assert len(entry.embedding) == 384
        assert cosine(entry.embedding, row["vector"]) > 1 - 1e-3, row["text"]


def test_published_similarities(native, minilm):
    vectors = native.embed(model=minilm, input=TEXTS[:3]).embeddings
    found = [round(cosine(vectors[a], vectors[b]), 3) for a, b in ((0, 1), (0, 2), (1, 2))]
    assert found == pytest.approx([0.666, 0.105, 0.141], abs=0.0011)


def test_tokens_are_counted_as_the_models_own_tokenizer_does(oai, minilm):
    for row in ROWS:
        usage = oai.embeddings.create(model=minilm, input=row["text"]).usage
        assert usage.prompt_tokens == len(row["ids"]), row["text"]


def test_a_batch_is_the_same_as_one_at_a_time(native, minilm):
    together = native.embed(model=minilm, input=TEXTS).embeddings
    for text, vector in zip(TEXTS, together, strict=True):
        alone = native.embed(model=minilm, input=text).embeddings[0]
        assert cosine(alone, vector) > 0.999999


def test_sixty_four_texts_keep_their_order(native, minilm):
    texts = [f"{n} {word} were sold in town {n * 7}." for n, word in enumerate(["apples", "cars", "books", "boats"] * 16)]
    together = native.embed(model=minilm, input=texts).embeddings
    assert len(together) == 64
    for place, text in enumerate(texts):
        alone = native.embed(model=minilm, input=text).embeddings[0]
        assert cosine(alone, together[place]) > 0.9999
        assert max(range(64), key=lambda other: cosine(alone, together[other])) == place


def test_an_encoder_writes_no_answers(oai, minilm):
    import openai

    with pytest.raises(openai.BadRequestError):
        oai.chat.completions.create(model=minilm, messages=[{"role": "user", "content": "Hi"}])
