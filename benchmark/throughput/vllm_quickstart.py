"""The quickstart acting on vLLM, beside the same seeds acting with our own engine: success reached, and seconds of acting.

    msgrpo train --preset quickstart --seeds 0-2 --acting vllm:URL --output-dir VLLM
    msgrpo train --preset quickstart --seeds 0-2 --output-dir ENGINE
    python -m benchmark.throughput.vllm_quickstart OUTPUT.json VLLM ENGINE

Both may have further flags, the same ones. A run that was stopped has the updates that it made, and no final table.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmark.experiments.curves import with_interval
from benchmark.throughput.machine import machine
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.metrics import read_metrics

RESULTS = Path(__file__).with_name("results") / "vllm_quickstart.json"
LAST = 5
"""Updates at the end of a run whose episodes are counted together."""

GAME = preset("quickstart").game

ACTING = ("vllm", "engine")

Run = dict[str, Any]


def read_run(folder: Path) -> Run:
    """What a run folder says of its run: settings that are not the preset's, success, seconds, versions."""
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
        "seconds_acting": [round(line["seconds_acting"], 2) for line in metrics],
        "seconds_training": [round(line["seconds_training"], 2) for line in metrics],
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
    """Head and lines of a table: a line per seed, vLLM / our engine, up to the update that both have reached.

    If all runs have ended, a last line has the means of their final tables, with 95 % intervals over the seeds.
    """
    of = {(run["seed"], run["acting"]): run for run in runs}
    lines = []
    seeds = sorted({run["seed"] for run in runs})
    for seed in seeds:
        pair = [of[seed, acting] for acting in ACTING]
        both = min(run["updates"] for run in pair)
        success = [mean(run["success_of_updates"][:both][-LAST:]) for run in pair]
        test = [f"{run['test_success_adapter']:.3f}" if "test_success_adapter" in run else "–" for run in pair]
        acting = [median(run["seconds_acting"][:both]) for run in pair]
        minutes = [sum(run["seconds_acting"][:both] + run["seconds_training"][:both]) / 60 for run in pair]
        pairs = [_two(success, 2), " / ".join(test), _two(acting, 1), _two(minutes, 0), f"{pair[0]['largest_sampler_k3']:.1g}"]
        lines.append([str(seed), f"{both} of {pair[0]['updates_of_run']}", *pairs])
    tested = [
        [of[seed, acting]["test_success_adapter"] for seed in seeds if "test_success_adapter" in of[seed, acting]]
        for acting in ACTING
    ]
    if len(seeds) > 1 and all(len(values) == len(seeds) for values in tested):
        lines.append(["all", "", "", " / ".join(with_interval(values, game=GAME) for values in tested), "", "", ""])
    head = ["seed", "updates", f"success in the last {LAST} updates", "success in the final table"]
    return [*head, "seconds of acting, median", "minutes in all", "largest `sampler_k3`"], lines


def _two(values: Sequence[float], digits: int) -> str:
    return " / ".join(f"{value:.{digits}f}" for value in values)


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
