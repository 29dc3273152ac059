"""The gain of oneDNN in decoding: `python -m benchmark.throughput.few_rows OUTPUT.json`.

Products of few rows with one weight of the 0.5B shape, in float32 and bfloat16, and decoding by a model of that shape in
float32: by the default library and by oneDNN, in turns. The fastest repetition counts, since other processes can only add to it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from benchmark import ended
from benchmark.throughput.cases import SHAPES, model_folder
from benchmark.throughput.limit import best_seconds
from benchmark.throughput.rows import Key, ResultFile, Row, clock, options
from msgrpo_hub.models import forward
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.weights import few_rows_by_one_dnn

SHAPE = "qwen2.5-0.5b"
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ROWS = (1, 2, 3, 4, 8, 16, 32, 64, 96)
REPLIES = (1, 2, 4, 8, 16, 32)
"""Numbers of replies that are decoded together."""
TOKENS = 16
UNITS = {"product": "ms", "decoding": "tokens/s"}


def prompts(replies: int) -> list[TokenIds]:
    """A prompt per reply, four of them distinct: 150 common tokens, then 78 different ones."""
    rules = tuple(np.random.default_rng(0).integers(0, 1000, 150).tolist())
    return [rules + tuple(np.random.default_rng(1 + k % 4).integers(0, 1000, 78).tolist()) for k in range(replies)]


def seconds(engine: Engine, replies: int, tokens: int) -> float:
    """Seconds of sampling replies of so many tokens, prompts included."""
    began = clock()
    engine.sample(prompts(replies), [np.random.default_rng(index) for index in range(replies)], 1.0, tokens)
    return clock() - began


def products(dtype: str, rows: int, repeats: int) -> Row:
    """Milliseconds of one product with the fused weights of the MLP's two input layers."""
    hidden, outputs = SHAPES[SHAPE]["hidden_size"], 2 * SHAPES[SHAPE]["intermediate_size"]
    layer = nn.Sequential(nn.Linear(hidden, outputs, bias=False, dtype=TYPES[dtype]))
    x = torch.randn(rows, hidden, dtype=TYPES[dtype])
    found: Row = {}
    with torch.no_grad():
        for name, around in (("default", nullcontext()), ("oneDNN", few_rows_by_one_dnn(layer))):
            with around:
                found[name] = round(1e3 * best_seconds(partial(layer, x), 8 * repeats), 3)
    return found


def decoding(replies: int, repeats: int, models: Path) -> Row:
    """Tokens per second of decoding `TOKENS` more tokens, without the time of prompts and of weight copies."""
    engine = Engine(AutoModelForCausalLM.from_pretrained(model_folder(SHAPE, models)).eval(), frozenset())
    arounds: dict[str, Callable[[nn.Module], AbstractContextManager[None]]] = {
        "default": lambda _: nullcontext(),
        "oneDNN": few_rows_by_one_dnn,
    }
    spent: dict[str, list[float]] = {name: [] for name in arounds}
    acting = engine.choose(prompts(replies)[0], 1 + TOKENS).acting
    for _ in range(repeats):
        for name, around in arounds.items():
            with patch.object(forward, "few_rows_by_one_dnn", around), acting():
                seconds(engine, replies, 2)  # copies the weights, once for a set of episodes
                of_prompts = seconds(engine, replies, 1)
                spent[name].append(seconds(engine, replies, 1 + TOKENS) - of_prompts)
    return {name: round(replies * TOKENS / min(each), 2) for name, each in spent.items()}


def main(arguments: list[str]) -> None:
    """Measures the missing rows of the file and prints all."""
    given = options(arguments, __doc__, threads=1, repeats={"type": int, "default": 3})
    file = ResultFile(given.output)
    keys: list[Key] = [("product", dtype, rows) for dtype in TYPES for rows in ROWS]
    file.measure(keys, lambda key: products(key[1], key[2], given.repeats))
    file.measure([("decoding", replies) for replies in REPLIES], lambda key: decoding(key[1], given.repeats, given.models))
    for found in file.rows:
        kind, *what = found["key"]
        print(kind, *what, ", ".join(f"{name} {value} {UNITS[kind]}" for name, value in found.items() if name != "key"))


if __name__ == "__main__":
    ended(main)
