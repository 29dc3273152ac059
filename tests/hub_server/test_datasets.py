"""The `datasets` library: pushed, loaded, streamed."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

from tests.hub_server.client import LOADS_DATASETS, ClientError
from tests.hub_server.operations import create

if TYPE_CHECKING:
    from tests.hub_server.lanes import Lane, Loopback

warm = LOADS_DATASETS


def push(repo: str, rows: int, shards: int = 1) -> None:
    from datasets import Dataset  # type: ignore[import-untyped]

    Dataset.from_dict({"n": list(range(rows))}).push_to_hub(
        repo, private=True, num_shards={"train": shards} if shards > 1 else None
    )


def load(repo: str, **options: Any) -> list[int]:
    from datasets import load_dataset

    return [row["n"] for row in load_dataset(repo, split="train", **options)]


def numbers(parquet: bytes) -> list[int]:
    column: list[int] = pyarrow.parquet.read_table(io.BytesIO(parquet))["n"].to_pylist()
    return column


def test_a_dataset_is_pushed_and_loaded_and_streamed(hub: Lane) -> None:
    repo = hub.repository("dataset")
    hub.owner.call(push, repo, 5)
    files = hub.files(repo, "dataset")
    assert set(files) == {"README.md", "data/train-00000-of-00001.parquet"}
    assert numbers(files["data/train-00000-of-00001.parquet"]) == [0, 1, 2, 3, 4]
    assert hub.owner.call(load, repo) == [0, 1, 2, 3, 4]
    assert hub.owner.call(load, repo, streaming=True) == [0, 1, 2, 3, 4]


def test_a_second_push_replaces_the_rows_and_the_first_can_still_be_loaded(loopback: Loopback) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, repo, 5)
    first = loopback.refs(repo, "dataset")["refs/heads/main"]
    loopback.owner.call(push, repo, 2)
    assert loopback.owner.call(load, repo) == [0, 1]
    assert loopback.owner.call(load, repo, revision=first) == [0, 1, 2, 3, 4]


def test_a_stranger_does_not_load_a_private_dataset(loopback: Loopback) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, repo, 1)
    with pytest.raises(ClientError, match="DatasetNotFoundError"):
        loopback.stranger.call(load, repo)


def test_a_push_notices_that_somebody_else_was_faster(loopback: Loopback) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(create, repo, "dataset")
    loopback.fail("race")
    with pytest.raises(ClientError, match="412"):
        loopback.owner.call(push, repo, 3)
    assert loopback.commits(repo, "dataset") == ["Somebody else's commit", "initial commit"]
