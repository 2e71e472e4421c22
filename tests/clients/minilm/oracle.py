"""Sentence vectors of all-MiniLM-L6-v2 by its published definition, in 64-bit floats.

    python oracle.py FOLDER > vectors.json        (needs numpy and tokenizers)

FOLDER is the checkpoint (config.json, model.safetensors, tokenizer.json). The tokenizer is Hugging
Face's own; the arithmetic is BERT's (post-norm encoder, exact GELU), the mean of all tokens' rows,
length one.
"""

import json
import math
import struct
import sys

import numpy as np
from tokenizers import Tokenizer

TEXTS = [
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
    "Größe und Maß: äöü ß, naïve façade",
    "数据 и текст — 12,345.67 €!",
    "word " * 90,
]


def weights(path):
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    out = {}
    for name, info in header.items():
        if name == "__metadata__" or info["dtype"] != "F32":
            continue
        start, end = (8 + length + offset for offset in info["data_offsets"])
        out[name] = np.frombuffer(data[start:end], "<f4").reshape(info["shape"]).astype(np.float64)
    return out


def norm(x, w, name):
    mean = x.mean(-1, keepdims=True)
    deviation = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-12)
    return (x - mean) / deviation * w[name + ".weight"] + w[name + ".bias"]


def linear(x, w, name):
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def vector(w, config, ids):
    heads = config["num_attention_heads"]
    e = "embeddings."
    x = w[e + "word_embeddings.weight"][ids]
    x = x + w[e + "position_embeddings.weight"][: len(ids)] + w[e + "token_type_embeddings.weight"][0]
    x = norm(x, w, e + "LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        p = f"encoder.layer.{layer}."
        split = lambda y: y.reshape(len(ids), heads, -1).transpose(1, 0, 2)
        q, k, v = (split(linear(x, w, p + f"attention.self.{n}")) for n in ("query", "key", "value"))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(ids), -1)
        x = norm(x + linear(mixed, w, p + "attention.output.dense"), w, p + "attention.output.LayerNorm")
        h = linear(x, w, p + "intermediate.dense")
        h = h * 0.5 * (1 + np.vectorize(math.erf)(h / math.sqrt(2)))
        x = norm(x + linear(h, w, p + "output.dense"), w, p + "output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


folder = sys.argv[1]
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
tokenizer.no_padding()
tokenizer.no_truncation()
config = json.load(open(f"{folder}/config.json"))
w = weights(f"{folder}/model.safetensors")
rows = []
for text in TEXTS:
    ids = tokenizer.encode(text).ids
    rows.append({"text": text, "ids": ids, "vector": [round(x, 6) for x in vector(w, config, ids).tolist()]})
json.dump(rows, sys.stdout, ensure_ascii=False, indent=None, separators=(",", ":"))
print()
