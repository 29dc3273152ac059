"""The quickstart sampling on vLLM, beside the same seeds with our own engine: success, and seconds of sampling.

    msgrpo train --preset quickstart --seeds 0-2 --acting vllm:URL --output-dir VLLM
    msgrpo train --preset quickstart --seeds 0-2 --output-dir ENGINE
    python -m benchmark.throughput.vllm_quickstart OUTPUT.json VLLM ENGINE

Both may have further flags, the same ones. A stopped run counts with the updates that it made, without a final table.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmark.experiments.differences import with_interval
from benchmark.throughput.rows import machine
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.summary import read_metrics

LAST = 5
"""The number of last updates whose episodes are counted together."""
ACTING = ("vllm", "engine")

Run = dict[str, Any]


def read_run(folder: Path) -> Run:
    """A run from its folder: settings that differ from the preset, success, seconds, versions."""
    config: Run = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    provenance = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    metrics = read_metrics(folder / "metrics.jsonl")
    quickstart = preset("quickstart")
    run: Run = {
        "seed": config["seed"],
        "acting": provenance["rounding"]["acting"],
        "changed": {name: value for name, value in config.items() if value != getattr(quickstart, name) and name != "seed"},
        "updates_of_run": config["updates"],
        "updates": len(metrics),
        "success_of_updates": [round(line["success"], 3) for line in metrics],
        **{name: [round(line[name], 2) for line in metrics] for name in ("seconds_acting", "seconds_training")},
        "hardware": provenance["hardware"],
        "versions": provenance["versions"],
    }
    if run["acting"] == "vllm":
        run["largest_sampler_k3"] = max(line["sampler_k3"] for line in metrics)
    if (folder / "summary.json").exists():
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        run["test_episodes"] = summary["episodes"]
        run |= {f"test_success_{name}": summary[name]["success"] for name in ("base", "adapter")}
    return run


def table(runs: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: a row per seed, vLLM / our engine, up to the last update that both have.

    If all runs have ended, a last row has the means of their final tables, with 95 % intervals over the seeds.
    """
    of = {(run["seed"], run["acting"]): run for run in runs}
    seeds = sorted({run["seed"] for run in runs})
    lines = []
    tests = [[of[seed, acting].get("test_success_adapter") for acting in ACTING] for seed in seeds]
    for seed, tested in zip(seeds, tests, strict=True):
        pair = [of[seed, acting] for acting in ACTING]
        both = min(run["updates"] for run in pair)
        success = [f"{mean(run['success_of_updates'][:both][-LAST:]):.2f}" for run in pair]
        test = ["–" if rate is None else f"{rate:.3f}" for rate in tested]
        acting = [f"{median(run['seconds_acting'][:both]):.1f}" for run in pair]
        minutes = [f"{sum(run['seconds_acting'][:both] + run['seconds_training'][:both]) / 60:.0f}" for run in pair]
        pairs = [" / ".join(cells) for cells in (success, test, acting, minutes)]
        lines.append([str(seed), f"{both} of {pair[0]['updates_of_run']}", *pairs, f"{pair[0]['largest_sampler_k3']:.1g}"])
    if len(seeds) > 1 and all(None not in tested for tested in tests):
        game = preset("quickstart").game
        ends = [with_interval(of_acting, game=game) for of_acting in zip(*tests, strict=True)]
        lines.append(["all", "", "", " / ".join(ends), "", "", ""])
    head = ["seed", "updates", f"success in the last {LAST} updates", "success in the final table"]
    return [*head, "seconds of acting, median", "minutes in all", "largest `sampler_k3`"], lines


def main() -> None:
    """Reads the runs and writes the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.throughput.vllm_quickstart", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("folders", type=Path, nargs="+", help="output folders of msgrpo train, each with seed-N in it")
    options = parser.parse_args()
    runs = [read_run(seed) for folder in options.folders for seed in sorted(folder.glob("seed-*"))]
    record = {"cores": machine()["cores"], "runs": runs}
    options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for line in table(runs)[1]:
        print(" | ".join(line))


if __name__ == "__main__":
    main()
