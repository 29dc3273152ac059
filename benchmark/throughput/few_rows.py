"""What oneDNN gains while decoding: `python -m benchmark.throughput.few_rows OUTPUT.json`.

Products of few rows with one weight of the 0.5B shape, in float32 and bfloat16, and decoding by a model of that shape in
float32: by the default library and by oneDNN, in turns. The fastest of the repetitions counts, since other processes can
only add to it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from benchmark.throughput.limit import best_seconds
from benchmark.throughput.machine import clock
from benchmark.throughput.rows import Key, Row, asked
from benchmark.throughput.shapes import SHAPES, model_folder
from msgrpo_hub.models import forward
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.weights import few_rows_by_one_dnn

SHAPE = "qwen2.5-0.5b"
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ROWS = (1, 2, 3, 4, 8, 16, 32, 64, 96)
REPLIES = (1, 2, 4, 8, 16, 32)
"""Numbers of replies that are decoded together, to four prompts of 150 tokens in common and 78 of their own."""
TOKENS = 16
UNITS = {"product": "ms", "decoding": "tokens/s"}

Around = Callable[[nn.Module], AbstractContextManager[None]]


def products(dtype: str, rows: int, repeats: int) -> Row:
    """Milliseconds of one product with the weights of the MLP's two input layers, which are one."""
    hidden, outputs = SHAPES[SHAPE]["hidden_size"], 2 * SHAPES[SHAPE]["intermediate_size"]
    layer = nn.Sequential(nn.Linear(hidden, outputs, bias=False, dtype=TYPES[dtype]))
    x = torch.randn(rows, hidden, dtype=TYPES[dtype])
    found: Row = {}
    with torch.no_grad():
        for name, around in (("default", nullcontext()), ("oneDNN", few_rows_by_one_dnn(layer))):
            with around:
                found[name] = round(1e3 * best_seconds(partial(layer, x), 8 * repeats), 3)
    return found


@cache
def model(models: Path) -> PreTrainedModel:
    loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(model_folder(SHAPE, models)).eval()
    return loaded


def decoding(replies: int, repeats: int, models: Path) -> Row:
    """Tokens per second of decoding: the seconds of `TOKENS` further tokens, without those of the prompts and of the copies."""
    rules = tuple(np.random.default_rng(0).integers(0, 1000, 150).tolist())
    prompts = [rules + tuple(np.random.default_rng(1 + k % 4).integers(0, 1000, 78).tolist()) for k in range(replies)]
    engine = Engine(model(models), frozenset())

    def seconds(tokens: int) -> float:
        began = clock()
        engine.sample(prompts, [np.random.default_rng(index) for index in range(replies)], 1.0, tokens)
        return clock() - began

    arounds: dict[str, Around] = {"default": lambda _: nullcontext(), "oneDNN": few_rows_by_one_dnn}
    spent: dict[str, list[float]] = {name: [] for name in arounds}
    acting = engine.choose(prompts[0], 1 + TOKENS).acting
    for _ in range(repeats):
        for name, around in arounds.items():
            with patch.object(forward, "few_rows_by_one_dnn", around), acting():
                seconds(2)  # copies the weights, once for a set of episodes
                of_prompts = seconds(1)
                spent[name].append(seconds(1 + TOKENS) - of_prompts)
    return {name: round(replies * TOKENS / min(each), 2) for name, each in spent.items()}


def main() -> None:
    """Measures the missing rows of the file and prints all."""
    options, file = asked("few_rows", __doc__)

    def row(key: Key) -> Row:
        match key:
            case "product", dtype, rows:
                return products(dtype, rows, options.repeats)
            case _:
                return decoding(key[1], options.repeats, options.models)

    keys: list[Key] = [("product", dtype, rows) for dtype in TYPES for rows in ROWS]
    file.measure([*keys, *(("decoding", replies) for replies in REPLIES)], row)
    for found in file.rows:
        kind, *what = found["key"]
        print(kind, *what, ", ".join(f"{name} {value} {UNITS[kind]}" for name, value in found.items() if name != "key"))


if __name__ == "__main__":
    main()
