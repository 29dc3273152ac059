"""Runs with rollouts; pushes them and reads the data set back."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from msgrpo_hub.episode import Episode
from msgrpo_hub.hub.uploading import Pushed
from tests.hub_server.client import LOADS_DATASETS, LOADS_MODELS

warm = (*LOADS_MODELS, *LOADS_DATASETS, "msgrpo_hub.hub.rollouts")

LAKE = "FrozenLake-NotSlippery-v1"
RUN = (
    "--preset quickstart --updates 3 --groups 2 --group-size 8 --selected-per-group 4 --eval-every 0 --test-episodes 0 "
    "--threads 1 --temperature 2 --save-rollouts"
)
EPISODES = 3 * 2 * 8


def push(folder: Path, repo: str, **options: Any) -> Pushed:
    from msgrpo_hub.hub import push_rollouts

    return push_rollouts(folder, repo, **options)


def load(repo: str, **options: Any) -> list[Episode]:
    from msgrpo_hub.hub import load_rollouts

    return load_rollouts(repo, **options)


def rows(files: dict[str, bytes], config: str, split: str = "") -> list[dict[str, Any]]:
    """The rows of a data set, by pyarrow alone."""
    names = sorted(name for name in files if name.startswith(f"{config}/{split}"))
    return [row for name in names for row in pq.read_table(io.BytesIO(files[name])).to_pylist()]


def upload_all(folder: str, repo: str) -> None:
    from huggingface_hub import HfApi

    HfApi().create_repo(repo, repo_type="dataset", exist_ok=True)
    HfApi().upload_folder(folder_path=folder, repo_id=repo, repo_type="dataset")
