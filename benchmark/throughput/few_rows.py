"""What oneDNN gains while decoding: `python -m benchmark.throughput.few_rows OUTPUT.json`.

Products of few rows with one weight of the 0.5B shape, and decoding by a model of that shape in float32: by the default
library and by oneDNN, in turns. The fastest of the repetitions counts, since other processes can only add to it.
"""

from __future__ import annotations

import argparse
import tempfile
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
from benchmark.throughput.rows import Key, ResultFile, Row
from benchmark.throughput.shapes import SHAPES, model_folder
from msgrpo_hub.models import attention
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.few_rows import few_rows_by_one_dnn

SHAPE = "qwen2.5-0.5b"
ROWS = (1, 2, 3, 4, 8, 16, 32, 64, 128)
REPLIES = (1, 2, 4, 8, 16, 32)
"""Numbers of replies that are decoded together, to four prompts of 150 tokens in common and 78 of their own."""
TOKENS = 16

Around = Callable[[nn.Module], AbstractContextManager[None]]


def products(rows: int, repeats: int) -> Row:
    """Milliseconds of one product with the weight of the MLP."""
    layer = nn.Sequential(nn.Linear(SHAPES[SHAPE]["hidden_size"], SHAPES[SHAPE]["intermediate_size"], bias=False))
    x = torch.randn(rows, SHAPES[SHAPE]["hidden_size"])
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
            with patch.object(attention, "few_rows_by_one_dnn", around), acting():
                seconds(2)  # copies the weights, once for a set of episodes
                of_prompts = seconds(1)
                spent[name].append(seconds(1 + TOKENS) - of_prompts)
    return {name: round(replies * TOKENS / min(each), 2) for name, each in spent.items()}


def main() -> None:
    """Measures the missing rows of the file and prints all."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.throughput.few_rows", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "msgrpo-throughput")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    file = ResultFile(options.output)

    def row(key: Key) -> Row:
        kind, count = key
        return products(count, options.repeats) if kind == "product" else decoding(count, options.repeats, options.models)

    file.measure([*(("product", rows) for rows in ROWS), *(("decoding", replies) for replies in REPLIES)], row)
    for found in file.rows:
        kind, count = found["key"]
        unit, ratio = (
            ("ms", found["default"] / found["oneDNN"]) if kind == "product" else ("tokens/s", found["oneDNN"] / found["default"])
        )
        print(f"{kind} of {count}: {found['default']} {unit}, by oneDNN {found['oneDNN']}: {ratio:.2f} times as fast")


if __name__ == "__main__":
    main()
