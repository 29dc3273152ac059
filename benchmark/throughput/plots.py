"""The plots of the results: `python -m benchmark.throughput.plots [RESULTS_DIR]`.

Reads update.json, stages.json and aaw.json where they exist, and writes a PNG for each.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmark.throughput.tables import RESULTS, cases, seconds

COLOURS = {"ours": "#4f9dde", "naive": "#e08a3c", "merged": "#c9a93a", "vllm": "#d9635f", "trl": "#9a7bd0", "limit": "#5fae6b"}
"""Legible on light and dark backgrounds: text and frames are grey, the background is transparent."""
NAMES = {
    "ours": "msgrpo_hub",
    "naive": "generate + padded batch",
    "merged": "the same, LoRA merged",
    "vllm": "vLLM + padded batch",
    "trl": "TRL 1.16",
    "limit": "limit of the machine",
}
GREY = "#8a8a8a"


def main() -> None:
    """Writes the plots of the results in the folder."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.throughput.plots", description=__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS)
    folder = parser.parse_args().results
    drawings = {"update": draw_update, "stages": draw_stages, "aaw": draw_aaw}
    for name, draw in drawings.items():
        path = folder / f"{name}.json"
        if path.exists():
            figure = draw(json.loads(path.read_text(encoding="utf-8")))
            figure.savefig(folder / f"{name}.png", transparent=True, dpi=150)


def panels(count: int, columns: int, width: float = 4.0, height: float = 3.0) -> tuple[Figure, list[Axes]]:
    """A figure with `count` axes, grey on a transparent background."""
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, number + 1) for number in range(count)]
    for axis in axes:
        axis.patch.set_alpha(0.0)
        axis.tick_params(colors=GREY, labelcolor=GREY, which="both")
        for text in (axis.title, axis.xaxis.label, axis.yaxis.label):
            text.set_color(GREY)
        for spine in axis.spines.values():
            spine.set_color(GREY)
    return figure, axes


LEGEND: dict[str, Any] = {"frameon": False, "labelcolor": GREY, "fontsize": 8, "loc": "lower center"}


def draw_update(record: dict[str, Any]) -> Figure:
    """Seconds per update of every side of every case, on a logarithmic axis."""
    lines = cases(record)
    figure, (axis,) = panels(1, 1, 7.0, 0.27 * len(lines) + 1.2)
    for side in NAMES:
        points = [(value, row) for row, line in enumerate(lines) if (value := seconds(line, side))]
        if points:
            axis.plot(*zip(*points, strict=True), "o", color=COLOURS[side], label=NAMES[side], markersize=6)
    axis.set_xscale("log")
    axis.set_yticks(range(len(lines)), [line["label"] for line in lines])
    axis.set_ylim(len(lines) - 0.4, -0.6)
    axis.grid(color=GREY, alpha=0.25)
    axis.set_xlabel(f"seconds per update ({record['machine']['clock']} time)")
    axis.legend(**LEGEND, bbox_to_anchor=(0.35, 1.0), ncols=3)
    return figure


def draw_stages(record: dict[str, Any]) -> Figure:
    """Shares of the stages in the time of an update."""
    cases = record["cases"]
    stages = sorted(dict.fromkeys(stage for case in cases for stage in case["stages"]), key="other".__eq__)
    figure, (axis,) = panels(1, 1, 8.0, 0.6 * len(cases) + 2.0)
    shades = [
        *("#4f9dde", "#e08a3c", "#9a7bd0", "#5fae6b", "#d9635f", "#c9a93a", "#54b5b5", "#c77fb0"),
        *("#6f9a3c", "#a3763f", "#3f6fae", "#b0483f", "#7f5fc0", "#2f8f6b", "#b5b54a", "#a0527f"),
    ]
    left = [0.0] * len(cases)
    for number, stage in enumerate(stages):
        shares = [case["stages"].get(stage, 0.0) / case["seconds"] for case in cases]
        colour = GREY if stage == "other" else shades[number]
        axis.barh(range(len(cases)), shares, left=left, color=colour, label=stage, height=0.6)
        left = [before + share for before, share in zip(left, shares, strict=True)]
    axis.set_yticks(range(len(cases)), [f"{case['label']}\n{case['seconds']:.2f} s" for case in cases], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of an update")
    axis.legend(**LEGEND, bbox_to_anchor=(0.45, 1.0), ncols=5)
    return figure


def draw_aaw(record: dict[str, Any]) -> Figure:
    """Reward after equal time by arm, one point per seed, and the seconds per update; dashed, the reward before training."""
    games = list(dict.fromkeys(row["key"][0] for row in record["rows"]))
    figure, axes = panels(2 * len(games), 2, 4.5, 2.6)
    for number, game in enumerate(games):
        rows = [row for row in record["rows"] if row["key"][0] == game]
        arms = list(dict.fromkeys(row["key"][1] for row in rows))
        for axis, name, title in (
            (axes[2 * number], "reward", "validation reward after equal time"),
            (axes[2 * number + 1], "seconds_per_update", "seconds per update"),
        ):
            for place, arm in enumerate(arms):
                values = [row[name] for row in rows if row["key"][1] == arm]
                axis.plot([place] * len(values), values, "o", color=COLOURS["ours"], alpha=0.7)
                axis.plot([place - 0.25, place + 0.25], [mean(values)] * 2, color=COLOURS["naive"], linewidth=2)
            axis.set_xticks(range(len(arms)), arms, fontsize=8)
            axis.set_title(f"{game.partition('-')[0]}: {title}", fontsize=9)
            axis.set_ylim(0, 1.1 * max(row[name] for row in rows))
        before = mean(row["reward_before"] for row in rows)
        axes[2 * number].axhline(before, color=GREY, linestyle="--", linewidth=1)
    return figure


if __name__ == "__main__":
    main()
