"""How the cost of an update grows: `python -m benchmark.throughput.growth OUTPUT.json`.

Seconds and peak memory of our update against G, horizon, board size, reply length and model size, one at a time, each in a
process of its own. Work that is merged does not grow with G: a 4×4 lake has few live states, so beyond some G no prompt is
new. What does grow is what each episode adds by itself: drawing its tokens and stepping its game.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmark.throughput.cases import Case
from benchmark.throughput.rows import Key, ResultFile, Row, in_a_process
from benchmark.throughput.update import LAKE, SNAKE, prepare

_LAKE = Case(game=LAKE, groups=1, group_size=100, drawn=25, policy_updates=20)  # the base rarely reaches the goal
_SNAKE = Case(game=SNAKE, groups=1, group_size=100, drawn=25)

CURVES: dict[str, dict[float, Case]] = {
    "lake: G": {g: replace(_LAKE, group_size=g, drawn=g // 4) for g in (25, 50, 100, 200, 400)},
    "snake: G": {g: replace(_SNAKE, group_size=g, drawn=g // 4) for g in (25, 50, 100, 200, 400)},
    "lake: horizon": {h: replace(_LAKE, horizon=h) for h in (4, 8, 16, 32)},
    "snake: horizon": {h: replace(_SNAKE, group_size=40, drawn=10, horizon=h) for h in (5, 10, 20, 40)},
    "lake: board size": {n: replace(_LAKE, size=n, horizon=4 * n) for n in (4, 6, 8)},  # a large lake takes many steps to cross
    "snake: board size": {n: replace(_SNAKE, group_size=40, drawn=10, size=n) for n in (4, 6, 8, 10)},
    "lake: reply length": {
        k: replace(_LAKE, policy_updates=0, model="width-128", reply=k, group_size=40, drawn=10) for k in (8, 16, 32, 64)
    },
    "lake: width of the model": {
        w: replace(_LAKE, policy_updates=0, model=f"width-{w}", reply=16, group_size=40, drawn=10) for w in (64, 128, 256, 512)
    },
}
"""Curve → varied size → case. G' is always G/4."""


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """The slope of log seconds over log size; 1 is linear growth.

    >>> round(exponent([1, 2, 4], [3, 6, 12]), 6)
    1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def exponents(rows: Sequence[Row]) -> dict[str, float]:
    """The exponent of each curve with at least two points."""
    points = {name: [(row["key"][1], row["seconds"]) for row in rows if row["key"][0] == name] for name in CURVES}
    return {name: exponent(*map(list, zip(*found, strict=True))) for name, found in points.items() if len(found) > 1}


def main() -> None:
    """Measures the missing rows of the file, then writes the exponents."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.throughput.growth", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "msgrpo-throughput")
    parser.add_argument("--only", nargs="*", default=list(CURVES), choices=list(CURVES), metavar="CURVE")
    parser.add_argument("--updates", type=int, default=5, help="number of timed updates, of which the median counts")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    file = ResultFile(options.output)
    prepare([case for name in options.only for case in CURVES[name].values()], options.models)

    def measure(key: Key) -> Row:
        return in_a_process("ours", CURVES[key[0]][key[1]], options.models, options.updates, options.threads)

    file.measure([(name, size) for name in options.only for size in CURVES[name]], measure)
    file.record["exponents"] = exponents(file.rows)
    file.save()
    for name, slope in file.record["exponents"].items():
        print(f"{name}: seconds grow like size^{slope:.2f}")


if __name__ == "__main__":
    main()
