"""Training that samples on vLLM beside our own engine: success, and seconds of every update.

    msgrpo train --preset quickstart --seeds 0-2 --acting vllm:URL --output-dir VLLM
    msgrpo train --preset quickstart --seeds 0-2 --acting vllm:URL --staleness 1 --output-dir AHEAD
    msgrpo train --preset quickstart --seeds 0-2 --output-dir ENGINE
    python -m benchmark.throughput.vllm_quickstart OUTPUT.json VLLM AHEAD ENGINE

All may have further flags, the same ones. A stopped run counts with the updates that it made, without a final table.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmark.throughput.rows import machine
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.summary import read_metrics

LAST = 5
"""The number of last updates whose episodes are counted together."""

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
        "success_of_updates": [round(line["success"], 3) for line in metrics if "success" in line],
        "validation_success": [line["validation_success"] for line in metrics if "validation_success" in line],
        **{name: [round(line[name], 2) for line in metrics] for name in ("seconds_acting", "seconds_training")},
        "hardware": provenance["hardware"],
        "versions": provenance["versions"],
    }
    if run["acting"] == "vllm":
        run["largest_sampler_k3"] = max(line.get("sampler_k3", 0.0) for line in metrics)
    if (folder / "summary.json").exists():
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        run["test_episodes"] = summary["episodes"]
        run |= {f"test_success_{name}": summary[name]["success"] for name in ("base", "adapter") if name in summary}
    return run


def row(run: Run) -> str:
    """A run in one line."""
    ahead = ", ahead" * run["changed"].get("staleness", 0)
    seconds = [a + b for a, b in zip(run["seconds_acting"], run["seconds_training"], strict=True)]
    figures = f"{run['updates']} updates, {median(seconds):.2f} s each, {median(run['seconds_acting']):.2f} s of it sampling"
    last, test = mean(run["success_of_updates"][-LAST:]), run.get("test_success_adapter", "–")
    return f"{run['acting']}{ahead}, seed {run['seed']}: {figures}; success {last:.2f} in the last {LAST}, {test} on test boards"


def main() -> None:
    """Reads the runs and writes the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.throughput.vllm_quickstart", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("folders", type=Path, nargs="+", help="output folders of msgrpo train, each with seed-N in it")
    options = parser.parse_args()
    runs = [read_run(seed) for folder in options.folders for seed in sorted(folder.glob("seed-*"))]
    record = {"cores": machine()["cores"], "runs": runs}
    options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(*map(row, runs), sep="\n")


if __name__ == "__main__":
    main()
