"""What a run leaves, and going on with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from tests.files import hashes, sha256

if TYPE_CHECKING:
    from tests.command import Command, Finished


NOT_THE_SAME_TWICE = ("second", "memory_mb")
"""Parts of the names of metrics that are measurements of the machine."""


def metrics(folder: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not any(part in k for part in NOT_THE_SAME_TWICE)} for line in lines]


def updates_safe(folder: Path) -> int:
    """What the checkpoint says."""
    if not (folder / "checkpoint.safetensors").exists():
        return 0
    with safe_open(folder / "checkpoint.safetensors", framework="pt") as file:
        return int(json.loads(file.metadata()["progress"])["updates"])


def scores(folder: Path) -> dict[str, Any]:
    summary = json.loads((folder / "summary.json").read_text())
    return {name: summary[name] for name in summary["players"]}


def assert_same_run(folder: Path, uninterrupted: Path) -> None:
    """The same weights to the last bit, every update once and with the same figures, the same table, the same files."""
    assert [line["update"] for line in metrics(folder)] == [1, 2, 3, 4, 5, 6]
    assert metrics(folder) == metrics(uninterrupted)
    for name in ("adapter", "best"):
        weights = Path(name) / "adapter_model.safetensors"
        assert sha256(folder / weights) == sha256(uninterrupted / weights), name
    assert scores(folder) == scores(uninterrupted)
    assert hashes(folder).keys() == hashes(uninterrupted).keys()


def resumed(msgrpo: Command, folder: Path, *flags: object, **given: Any) -> Finished:
    return msgrpo("train", "--resume", *flags, "--output-dir", folder, **given)
