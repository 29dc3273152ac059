"""Pushing evaluation results, and what is in the dataset then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgrpo_hub.hub.uploading import Pushed
from tests.hub_server.client import LOADS_DATASETS

warm = LOADS_DATASETS

TASKS = ("FrozenLake-NotSlippery-v1", "FrozenLake-NotSlippery20-v1")
FILES = {"config.lock.json", "episodes.parquet", "results.json", "steps.parquet"}


def push(folder: Path, repo: str, **options: Any) -> Pushed:
    """Over there."""
    from msgrpo_hub.hub.results import push_results

    return push_results(folder, repo, **options)


def load(repo: str) -> list[dict[str, Any]]:
    """Over there, what anybody's `datasets` makes of it."""
    from datasets import load_dataset

    splits = load_dataset(repo)
    assert list(splits) == ["runs"]
    return list(splits["runs"])


def folder_as_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def kept(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in folder_as_files(folder).items() if Path(name).name in FILES}
