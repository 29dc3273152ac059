"""Decoding beside a real vLLM: `python -m benchmark.throughput.vllm OUTPUT.json --vllm-python build/vllm/bin/python`.

Both sides reply to the same prompts at the 0.5B shape, with as many forced tokens and as many threads, in turns: what else the
machine does strikes both. vLLM runs in its own environment (`make build/vllm/.installed`), without a server between.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from benchmark.throughput.machine import clock
from benchmark.throughput.rows import Key, ResultFile, Row
from benchmark.throughput.shapes import model_folder
from benchmark.throughput.with_vllm import Worker
from msgrpo_hub.evaluation.tables import markdown
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.sampling import TokenIds

SHAPE = "qwen2.5-0.5b"
REPLIES = (4, 8, 16, 32)
"""Numbers of replies that are decoded together, to four prompts of 150 tokens in common and 78 of their own."""
TOKENS = 32
RESULTS = Path(__file__).parent / "results" / "vllm.json"


def prompts(replies: int) -> list[TokenIds]:
    """As many prompts as replies; four are distinct."""
    rules = tuple(np.random.default_rng(0).integers(0, 1000, 150).tolist())
    return [rules + tuple(np.random.default_rng(1 + k % 4).integers(0, 1000, 78).tolist()) for k in range(replies)]


def seconds_of_vllm(worker: Worker, replies: int, tokens: int) -> float:
    """Seconds that vLLM takes for replies of so many tokens."""
    return float(worker.ask(prompts=prompts(replies), tokens=tokens)["seconds"])


def seconds_of_ours(engine: Engine, replies: int, tokens: int) -> float:
    """Seconds that our engine takes for them."""
    began = clock()
    engine.sample(prompts(replies), [np.random.default_rng(index) for index in range(replies)], 1.0, tokens)
    return clock() - began


def compared(python: Path, models: Path, key: Key, threads: int, repeats: int) -> Row:
    """Tokens per second of decoding by both, without the tokens of the prompts: of each repetition, and their medians."""
    dtype, replies = key
    folder = model_folder(SHAPE, models)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval().requires_grad_(False)
    engine = Engine(loaded, frozenset())
    spent: dict[str, list[float]] = {"ours": [], "vLLM": []}
    acting = engine.choose(prompts(replies)[0], 1 + TOKENS).acting  # entered once, as for a set of episodes
    with Worker(python, folder, dtype, threads) as worker, acting():
        for turn in range(repeats + 1):  # the first warms up
            ours = seconds_of_ours(engine, replies, 1 + TOKENS) - seconds_of_ours(engine, replies, 1)
            theirs = seconds_of_vllm(worker, replies, 1 + TOKENS) - seconds_of_vllm(worker, replies, 1)
            if turn:
                spent["ours"].append(round(replies * TOKENS / ours, 2))
                spent["vLLM"].append(round(replies * TOKENS / theirs, 2))
    return {**{name: median(each) for name, each in spent.items()}, "repetitions": spent, "threads": threads}


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: tokens per second of both, and the smallest and the largest ratio of a repetition."""
    header = ["type", "replies", "our engine (tokens/s)", "vLLM (tokens/s)", "ratio", "of single repetitions"]
    return header, [_cells(row) for row in rows]


def _cells(row: Row) -> list[str]:
    dtype, replies = row["key"]
    both = row["repetitions"]
    ratios = [ours / theirs for ours, theirs in zip(both["ours"], both["vLLM"], strict=True)]
    between = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return [dtype, str(replies), f"{row['ours']:.1f}", f"{row['vLLM']:.1f}", f"{row['ours'] / row['vLLM']:.2f}", between]


def main() -> None:
    """Measures the missing rows of the file and prints all."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.throughput.vllm", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--vllm-python", type=Path, required=True, help="the interpreter of vLLM's environment")
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "msgrpo-throughput")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    file = ResultFile(options.output)
    keys = [(dtype, replies) for dtype in options.dtypes for replies in REPLIES]
    file.measure(keys, lambda key: compared(options.vllm_python, options.models, key, options.threads, options.repeats))
    print(markdown(*table(file.rows)))


if __name__ == "__main__":
    main()
