"""The files of a run, and resuming it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from tests.files import hashes, sha256

if TYPE_CHECKING:
    from tests.command import Command, Finished

WEIGHTS = "adapter_model.safetensors"


def metrics(folder: Path) -> list[dict[str, float]]:
    """The metrics of each update, without measurements of the machine."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k and k != "memory_mb"} for line in lines]


def updates_safe(folder: Path) -> int:
    """The number of updates in the checkpoint."""
    if not (folder / "checkpoint.safetensors").exists():
        return 0
    with safe_open(folder / "checkpoint.safetensors", framework="pt") as file:
        return int(json.loads(file.metadata()["progress"])["updates"])


def summary_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


def assert_same_run(folder: Path, uninterrupted: Path) -> None:
    """The same weights to the last bit, each update once and with the same metrics, the same table, the same files."""
    assert [line["update"] for line in metrics(folder)] == [1, 2, 3, 4, 5, 6]
    assert metrics(folder) == metrics(uninterrupted)
    for name in ("adapter", "best"):
        assert sha256(folder / name / WEIGHTS) == sha256(uninterrupted / name / WEIGHTS), name
    ours, theirs = summary_of(folder), summary_of(uninterrupted)
    assert [ours[name] for name in ours["players"]] == [theirs[name] for name in theirs["players"]]
    assert hashes(folder).keys() == hashes(uninterrupted).keys()


def resumed(msgrpo: Command, folder: Path, *flags: object, **given: Any) -> Finished:
    return msgrpo("train", "--resume", *flags, "--output-dir", folder, **given)
