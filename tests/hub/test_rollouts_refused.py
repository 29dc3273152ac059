"""A tampered or malformed data set is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.hub.conftest import msgrpo
from tests.hub.pushed_rollouts import EPISODES, LAKE, load, push, upload_all
from tests.hub_server.client import LOADS_DATASETS, LOADS_MODELS
from tests.hub_server.lanes import Loopback

warm = (*LOADS_MODELS, *LOADS_DATASETS, "msgrpo_hub.hub.rollouts")

# ---- verification


def download(repo: str, folder: str) -> None:
    from huggingface_hub import snapshot_download

    snapshot_download(repo, repo_type="dataset", local_dir=folder)


def test_a_downloaded_data_set_passes_verification_and_a_tampered_one_does_not(
    loopback: Loopback, saved: Path, tmp_path: Path
) -> None:
    repo, folder = loopback.repository("dataset"), tmp_path / "downloaded"
    loopback.owner.call(push, saved, repo)
    loopback.owner.call(download, repo, str(folder))
    for place in (saved, folder):
        done = loopback.nobody.attempt(msgrpo, "verify", place)
        assert (done.code, done.out) == (0, f"ok    {EPISODES:>6} episodes  training · {LAKE}\n"), done.err
    path = sorted(folder.glob("steps/*.parquet"))[1]
    table = pq.ParquetFile(path).read()
    rewards = table["reward"].to_pylist()
    rewards[-1] += 1
    pq.write_table(table.set_column(table.schema.get_field_index("reward"), "reward", [rewards]), path)
    done = loopback.nobody.attempt(msgrpo, "verify", folder)
    assert (done.code, done.out.startswith("WRONG")) == (2, True)
    assert re.search(r"train-\S+parquet, seed \d+, member \d: .*reward \d on turn \d+, where the rules give", done.out)


# ---- what is refused


def change(folder: Path, repo: str, name: str, content: bytes) -> None:
    for path in folder.glob(name):
        path.write_bytes(content)
    upload_all(str(folder), repo)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("steps/*.parquet", "cannot be read .*: expected Parquet in the format msgrpo-episodes-v2"),
        ("default/*.parquet", "cannot be read"),
    ],
)
def test_a_malformed_data_set_is_refused_in_one_line(
    loopback: Loopback, evaluated: Path, tmp_path: Path, name: str, words: str
) -> None:
    repo, folder = loopback.repository("dataset"), tmp_path / "dry"
    assert loopback.owner.attempt(msgrpo, "push", "rollouts", evaluated, repo, "--dry-run", folder).code == 0
    loopback.owner.call(change, folder, repo, name, b"import os")
    done = loopback.owner.attempt(load, repo)
    assert done.error == "UserError"
    assert re.search(words, done.message)
    assert "\n" not in done.message


def test_a_repository_without_rollouts_is_refused(loopback: Loopback, tmp_path: Path) -> None:
    repo = loopback.repository("dataset")
    (tmp_path / "code.py").write_text("raise SystemExit")
    loopback.owner.call(upload_all, str(tmp_path), repo)
    done = loopback.owner.attempt(load, repo)
    assert (done.error, "no rollouts in" in done.message) == ("UserError", True)
    assert not loopback.requests("GET .*/resolve/")
