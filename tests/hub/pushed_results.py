"""Pushes evaluation results and reads the dataset back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgrpo_hub.hub.uploading import Pushed
from tests.hub_server.client import LOADS_DATASETS

warm = LOADS_DATASETS

TASKS = ("FrozenLake-NotSlippery-v1", "FrozenLake-NotSlippery20-v1")
FILES = {"config.lock.json", "episodes.parquet", "results.json", "steps.parquet"}


def push(folder: Path, repo: str, **options: Any) -> Pushed:
    """Runs in the client's process."""
    from msgrpo_hub.hub.results import push_results

    return push_results(folder, repo, **options)


def load(repo: str) -> list[dict[str, Any]]:
    """In the client's process: the rows that `datasets` loads."""
    from datasets import load_dataset

    splits = load_dataset(repo)
    assert list(splits) == ["runs"]
    return list(splits["runs"])


def folder_as_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def kept(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in folder_as_files(folder).items() if Path(name).name in FILES}
