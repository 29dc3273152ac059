"""Decoding beside a real vLLM: `python -m benchmark.throughput.vllm OUTPUT.json --vllm-python build/vllm/bin/python`.

Both sides reply to the same prompts at the 0.5B shape, with as many forced tokens and threads, in turns, so that other load on
the machine affects both. vLLM runs in its own environment (`make build/vllm/.installed`), without a server between.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch
from transformers import AutoModelForCausalLM

from benchmark import ended
from benchmark.throughput.cases import model_folder
from benchmark.throughput.few_rows import SHAPE, prompts, seconds
from benchmark.throughput.rows import Key, ResultFile, Row, options
from benchmark.throughput.with_vllm import Worker
from msgrpo_hub.evaluation.tables import markdown
from msgrpo_hub.models.engine import Engine

REPLIES = (4, 8, 16, 32)
"""Numbers of replies that are decoded together."""
TOKENS = 32
RESULTS = Path(__file__).parent / "results" / "vllm.json"


def compared(python: Path, models: Path, key: Key, threads: int, repeats: int) -> Row:
    """Tokens per second of decoding by both, without the time of prompts: of each repetition, and their medians."""
    dtype, replies = key
    folder = model_folder(SHAPE, models)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval().requires_grad_(False)
    engine = Engine(loaded, frozenset())
    rates: dict[str, list[float]] = {"ours": [], "vLLM": []}
    acting = engine.choose(prompts(replies)[0], 1 + TOKENS).acting  # entered once, as for a set of episodes
    with Worker(python, folder, dtype, threads) as worker, acting():
        for turn in range(repeats + 1):  # the first warms up
            ours = [seconds(engine, replies, tokens) for tokens in (1 + TOKENS, 1)]
            theirs = [worker.ask(prompts=prompts(replies), tokens=tokens)["seconds"] for tokens in (1 + TOKENS, 1)]
            if turn:
                for name, (whole, of_prompts) in (("ours", ours), ("vLLM", theirs)):
                    rates[name].append(round(replies * TOKENS / (whole - of_prompts), 2))
    return {**{name: median(each) for name, each in rates.items()}, "repetitions": rates, "threads": threads}


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: tokens per second of both, their ratio, and the smallest and the largest ratio of a repetition."""
    lines = []
    for row in rows:
        dtype, replies = row["key"]
        both = row["repetitions"]
        ratios = [ours / theirs for ours, theirs in zip(both["ours"], both["vLLM"], strict=True)]
        rates = [f"{row['ours']:.1f}", f"{row['vLLM']:.1f}", f"{row['ours'] / row['vLLM']:.2f}"]
        lines.append([dtype, str(replies), *rates, f"{min(ratios):.2f} to {max(ratios):.2f}"])
    return ["type", "replies", "our engine (tokens/s)", "vLLM (tokens/s)", "ratio", "of single repetitions"], lines


def main(arguments: list[str]) -> None:
    """Measures the missing rows of the file and prints all."""
    given = options(
        arguments,
        __doc__,
        vllm_python={"type": Path, "required": True, "help": "the interpreter of vLLM's environment"},
        dtypes={"nargs": "+", "default": ["float32", "bfloat16"]},
        repeats={"type": int, "default": 3},
    )
    file = ResultFile(given.output)
    keys = [(dtype, replies) for dtype in given.dtypes for replies in REPLIES]
    file.measure(keys, lambda key: compared(given.vllm_python, given.models, key, given.threads, given.repeats))
    print(markdown(*table(file.rows)))


if __name__ == "__main__":
    ended(main)
