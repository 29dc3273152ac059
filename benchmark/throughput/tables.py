"""The tables of the results, in Markdown. `python docs/tables.py` writes them into their pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from benchmark.throughput.update import CASES
from msgrpo_hub.evaluation.tables import markdown

RESULTS = Path(__file__).parent / "results"

Line = Mapping[str, Any]


def record(name: str) -> dict[str, Any]:
    """A file of the results."""
    read: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return read


def cases(update: Mapping[str, Any]) -> list[Line]:
    """The cases of update.json that our side has run, in the order of `CASES`."""
    order = list(CASES)
    return [line for line in sorted(update["table"], key=lambda line: order.index(line["label"])) if "ours_seconds" in line]


def seconds(line: Line, side: str) -> float | None:
    """Seconds of a side in a case; the bound for the limit."""
    if side == "limit" and "limit_bound_seconds_acting" in line:
        return float(line["limit_bound_seconds_acting"] + line["limit_bound_seconds_training"])
    return line.get(f"{side}_seconds")


def update_table(name: str = "update") -> str:
    """Seconds per update of every side of every case, sampling + training, and their ratios to ours."""
    lines = []
    for line in cases(record(name)):
        against = []
        for side in ("naive", "merged", "trl", "vllm"):
            cell = "–"
            if f"{side}_seconds" in line:
                acting, training = (line[f"{side}_seconds_{part}"] for part in ("acting", "training"))
                cell = f"{acting:.1f} + {training:.1f}, **{line[f'ratio_{side}']:.1f}×**"
            against.append(cell)
        limit, ours = seconds(line, "limit"), line["ours_seconds"]
        rates = [line[f"ours_{what}"] / ours for what in ("episodes", "steps", "tokens")]
        memory = [line.get(f"{side}_memory_mb") for side in ("ours", "naive", "trl")]
        lines.append(
            [
                line["label"],
                f"{line['ours_seconds_acting']:.2f} + {line['ours_seconds_training']:.2f}",
                *against,
                "–" if limit is None else f"{limit:.2f} ({limit / ours:.0%})",
                *(f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}" for rate in rates),
                f"{line['ours_distinct_prompt_ratio']:.3f}",
                " / ".join("–" if megabytes is None else f"{megabytes:.0f}" for megabytes in memory),
            ]
        )
    head = [
        *("case", "ours: acting + training (s)", "(a) generate + padded", "(a), LoRA merged"),
        *("(b) TRL 1.16's step", "(d) vLLM + padded", "limit (s)"),
        *("episodes/s", "env steps/s", "tokens/s", "distinct prompts", "peak MB ours / (a) / (b)"),
    ]
    return markdown(head, lines)


def _arms(rows: Sequence[Line]) -> dict[tuple[str, str], list[Line]]:
    """(game, arm) → its runs, one per seed."""
    found: dict[tuple[str, str], list[Line]] = {}
    for row in rows:
        game, arm, _ = row["key"]
        found.setdefault((game, arm), []).append(row)
    return found


def selection_table() -> str:
    """The reward of each way to select in equal time, with every seed."""
    found, rows = record("aaw"), []
    for (game, arm), runs in _arms(found["rows"]).items():
        rewards = [run["reward"] for run in runs]
        before, updates, each = (mean(run[key] for run in runs) for key in ("reward_before", "updates", "seconds_per_update"))
        by_seed = ", ".join(f"{reward:.2f}" for reward in rewards)
        title = f"{game}, {found['seconds_per_run'][game]:.0f} s"
        rows.append([title, arm, f"{before:.2f}", by_seed, f"{mean(rewards):.2f}", f"{updates:.0f}", f"{each:.2f}"])
    head = ["game", "selected", "reward before", "reward, by seed", "mean", "updates", "seconds per update"]
    return markdown(head, rows)


def factor_table() -> str:
    """How much faster an update is with 25 of 100 episodes, and the reward in equal time."""
    arms, rows = _arms(record("aaw")["rows"]), []
    shown = ("all 100", "AAW 25", "uniform 25")
    for game in dict.fromkeys(game for game, _ in arms):
        every, few = (mean(run["seconds_per_update"] for run in arms[game, arm]) for arm in ("all 100", "AAW 25"))
        reached = [f"{mean(run['reward'] for run in arms[game, arm]):.2f}" for arm in shown]
        rows.append([game, f"{every:.2f}", f"{few:.2f}", f"{every / few:.1f}", *reached])
    head = ["game", "seconds per update: all 100", "AAW 25", "times as fast", "reward in equal time: all 100", *shown[1:]]
    return markdown(head, rows)


def gpu_table() -> str:
    """The cases that both sides ran on a GPU, with the shares of its rates that ours reached."""
    by_key: dict[tuple[str, str], Line] = {tuple(row["key"]): row for row in record("gpu")["rows"]}
    lines = []
    for (name, side), ours in by_key.items():
        other = by_key.get((name, "naive"))
        if side == "naive" or other is None:
            continue
        settings = dict(part.split("=") for part in name.split() if "=" in part)
        lines.append(
            [
                settings["model"].removeprefix("qwen2.5-").upper(),
                *(f"{row['seconds_acting']:.1f} + {row['seconds_training']:.1f}" for row in (ours, other)),
                f"**{other['seconds'] / ours['seconds']:.1f}×**",
                f"{ours['tokens_per_second_of_acting']:,.0f}",
                f"{ours['bytes_share_acting']:.0%}",
                f"{ours['operations_share_training']:.0%}",
                f"{ours['memory_mb'] / 1e3:.0f} / {other['memory_mb'] / 1e3:.0f}",
            ]
        )
    head = [
        *("base", "ours: acting + training (s)", "(a) generate + padded", "factor", "tokens/s while acting"),
        *("of the bandwidth while acting", "of the matrix rate while training", "peak GB ours / (a)"),
    ]
    return markdown(head, lines)


CARDS = (24, 48, 80, 141, 180)
"""Gigabytes of usual cards."""


def sizes_table() -> str:
    """Memory, card and seconds of an update of the paper's layout, by size of the base."""
    lines = []
    for row in record("sizes")["rows"]:
        gigabytes, count = sum(row["memory"].values()) / 1e9, row["processes"]
        card = f"{f'{count} × ' * bool(count)}{next(size for size in CARDS if size >= 1.1 * gigabytes)} GB"
        part, values = [*row["memory"].items()][-1]
        memory = [f"{size / 1e9:.1f}" for size in (row["memory"]["weights"], values)]
        seconds = [f"{row[name]:.0f}" if name in row else "–" for name in ("seconds_acting", "seconds_training")]
        flags = "FSDP, vLLM" if count else f"`{row['flags']}`" if row["flags"] else ""
        lines.append([row["base"], flags, memory[0], f"{memory[1]} {part.split()[0]}", f"**{gigabytes:.0f}**", card, *seconds])
    head = ["base", "flags", "weights (GB)", "an update", "in all", "card", "sampling (s)", "training (s)"]
    return markdown(head, lines)


TABLES = {
    "sizes": sizes_table,
    "real": partial(update_table, "real"),
    "gpu": gpu_table,
    "update": update_table,
    "selection": selection_table,
    "selection-factor": factor_table,
}
"""Name of a table → its Markdown."""
