"""Pushed episodes are a data set that common tools read, that grows without rewriting, and that loads back equal."""

from __future__ import annotations

import itertools
import os
import re
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from msgrpo_hub.evaluation.results import find_results
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.hub.rollouts import load_rollouts
from msgrpo_hub.storage.schema import EPISODE_COLUMNS, FORMAT, STEP_COLUMNS
from tests.hub.conftest import msgrpo, refused
from tests.hub.pushed_rollouts import EPISODES, LAKE, RUN, load, push, rows, upload_all
from tests.hub_server.client import LOADS_DATASETS, LOADS_MODELS
from tests.hub_server.lanes import Lane, Loopback

CARD = {"README.md", "replay.svg"}

warm = (*LOADS_MODELS, *LOADS_DATASETS, "msgrpo_hub.hub.rollouts")


def load_table(repo: str, *config: str, **options: Any) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows and features, as the `datasets` library reads them."""
    from datasets import load_dataset  # type: ignore[import-untyped]

    table = load_dataset(repo, *config, **options)
    return list(table), {name: str(feature) for name, feature in table.features.items()}


def train_until(update: int, *arguments: object) -> None:
    """`msgrpo train`, killed when it begins to learn from an update: its episodes are played and not yet kept."""

    from msgrpo_hub.training.trainer import Trainer

    gradient, updates = Trainer.gradient, itertools.count(1)

    def learn_or_die(*given: Any) -> Any:
        if next(updates) == update:
            os.kill(os.getpid(), signal.SIGKILL)
        return gradient(*given)

    Trainer.gradient = learn_or_die  # type: ignore[method-assign]
    msgrpo("train", *arguments)


# ---- what arrives


def test_a_run_is_one_private_commit_with_a_shard_of_each_table_per_block(hub: Lane, saved: Path) -> None:
    repo = hub.repository("dataset")
    pushed = hub.owner.call(push, saved, repo)
    assert pushed.private
    files = hub.files(repo, "dataset")
    assert set(files) == set(pushed.changed)
    shards = {config: {name.partition("/")[2] for name in files if name.startswith(config)} for config in ("default", "steps")}
    assert shards["default"] == shards["steps"]
    assert [re.sub("[0-9a-f]{8,}", "…", name) for name in sorted(shards["steps"])] == [
        f"train-…-{n:05d}-{n:05d}-….parquet" for n in (1, 2, 3)
    ]
    assert hub.commits(repo, "dataset") == [f"{EPISODES} episodes of {LAKE}", "initial commit"]
    assert hub.refs(repo, "dataset") == dict.fromkeys(("refs/heads/main", f"refs/tags/{FORMAT}"), pushed.commit)


def test_datasets_loads_and_streams_both_tables_with_the_columns_of_the_card(loopback: Loopback, saved: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, saved, repo)
    files = loopback.files(repo, "dataset")
    for config, columns in (("default", EPISODE_COLUMNS), ("steps", STEP_COLUMNS)):
        named = [] if config == "default" else [config]
        expected = rows(files, config)
        for streaming in (False, True):
            found, features = loopback.owner.call(load_table, repo, *named, split="train", streaming=streaming)
            assert found == expected
            assert list(features) == list(columns)
            assert features["seed"] == "Value('int64')"
        assert len(expected) == EPISODES or config == "steps"
    assert features["log_probs"] == "List(Value('float64'))"
    assert features["prompt"] == "List({'role': Value('string'), 'content': Value('string')})"


def test_the_episodes_come_back_equal_and_are_of_one_commit(loopback: Loopback, saved: Path) -> None:
    repo = loopback.repository("dataset")
    pushed = loopback.owner.call(push, saved, repo)
    played = load_rollouts(saved)
    assert len(played) == EPISODES
    assert all(step.completion.log_probs and step.completion.entropies for episode in played for step in episode.steps)
    assert len({(episode.seed, episode.member) for episode in played}) == EPISODES
    assert loopback.stranger.attempt(load, repo).error == "UserError"  # it is private
    assert loopback.owner.call(load, repo) == played
    assert loopback.owner.call(load, repo, split="train", revision=pushed.commit) == played
    asked = loopback.requests("GET .*/resolve/.*parquet")
    assert asked
    assert all(f"/resolve/{pushed.commit}/" in line for line in asked)


def test_a_row_has_the_advantage_and_selection_of_its_episode(loopback: Loopback, saved: Path) -> None:
    """Advantages are recomputed from the rewards and the penalties; as many are selected as the configuration says."""
    repo = loopback.repository("dataset")
    loopback.owner.call(push, saved, repo)
    files = loopback.files(repo, "dataset")
    heads = rows(files, "default")
    groups: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for head in heads:
        groups.setdefault((head["update"], head["seed"]), []).append(head)
    assert sorted(update for update, _ in groups) == [1, 1, 2, 2, 3, 3]
    varied = 0
    for group in groups.values():
        assert [head["member"] for head in group] == list(range(8))
        returns = [head["reward"] - head["unreadable"] - head["truncated_replies"] for head in group]
        mean = sum(returns) / 8
        spread = (sum((value - mean) ** 2 for value in returns) / 8) ** 0.5
        expected = [(value - mean) / (spread + 1e-8) if spread else 0.0 for value in returns]
        assert [head["advantage"] for head in group] == pytest.approx(expected, abs=1e-5)
        assert sum(head["selected"] for head in group) == (4 if spread else 0)
        varied += spread > 0
    assert varied
    for step in rows(files, "steps"):
        assert step["prompt"][1]["content"].startswith(f"Current Observation:\n{step['observation']}\n")
        assert set(step["optimal_actions"]) <= set(make_game(LAKE).actions)
        assert (step["regret"] == 0) == (step["action"] in step["optimal_actions"]) or step["action"] is None


# ---- growing


def test_more_training_adds_files_in_one_commit_and_rewrites_none(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    run, repo = tmp_path / "run", loopback.repository("dataset")
    assert loopback.owner.attempt(train_until, 3, *RUN.split(), "--output-dir", run).code == -signal.SIGKILL
    first = loopback.owner.call(push, run, repo)
    before = loopback.files(repo, "dataset")
    assert len(before) == len(CARD) + 2 * 2
    assert len(loopback.owner.call(load, repo)) == 2 * 2 * 8

    assert loopback.owner.attempt(msgrpo, "train", "--resume", "--output-dir", run).code == 0
    second = loopback.owner.call(push, run, repo)
    after = loopback.files(repo, "dataset")
    changed = {name for name in before if before[name] != after[name]}
    assert "README.md" in changed
    assert changed <= CARD
    assert set(second.changed) == changed | (after.keys() - before.keys())
    assert len(after) == len(CARD) + 3 * 2
    assert len(loopback.commits(repo, "dataset")) == 3  # with the one that made the repository
    assert not set(first.changed) - set(after)
    assert loopback.owner.call(load, repo) == load_rollouts(saved)  # not one lost, not one twice
    found, _ = loopback.owner.call(load_table, repo, split="train")
    assert len(found) == EPISODES


def test_published_shards_are_never_rewritten(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    """Another version of pyarrow writes other bytes for the same rows."""
    repo, folder = loopback.repository("dataset"), tmp_path / "dry"
    assert loopback.owner.attempt(msgrpo, "push", "rollouts", saved, repo, "--dry-run", folder).code == 0
    for path in folder.rglob("*.parquet"):
        pq.write_table(pq.read_table(path), path, compression="snappy")
    loopback.owner.call(upload_all, str(folder), repo)
    old = loopback.files(repo, "dataset")
    assert loopback.owner.call(push, saved, repo).changed == ()
    assert loopback.files(repo, "dataset") == old


def test_a_repository_with_other_episodes_or_anything_else_is_left_alone(
    loopback: Loopback, saved: Path, evaluated: Path, tmp_path: Path
) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, evaluated, repo)
    words = refused(loopback.owner.attempt(msgrpo, "push", "rollouts", saved, repo))
    assert f"{repo!r} holds episodes of another run" in words
    (tmp_path / "notes.txt").write_text("mine")
    other = loopback.repository("dataset")
    loopback.owner.call(upload_all, str(tmp_path), other)
    assert "holds something else (notes.txt)" in refused(loopback.owner.attempt(msgrpo, "push", "rollouts", saved, other))
    assert set(loopback.files(other, "dataset")) == {"notes.txt"}


# ---- evaluations


def test_an_evaluation_becomes_its_splits_with_advantage_and_selection_left_empty(loopback: Loopback, evaluated: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, evaluated, repo)
    files = loopback.files(repo, "dataset")
    assert [len(rows(files, "default", split)) for split in ("train", "validation", "test")] == [0, 6, 8]
    for config in ("default", "steps"):
        assert {(row["advantage"], row["selected"], row["update"]) for row in rows(files, config)} == {(None, None, None)}
    assert {row["player"] for row in rows(files, "default")} == {"random", "optimal"}
    played = [episode for result in find_results(evaluated) for episode in result.episodes]
    loaded = loopback.owner.call(load, repo)
    assert sorted(loaded, key=str) == sorted(played, key=str)
    assert [episode.seed for episode in loopback.owner.call(load, repo, split="validation")] == [
        episode_seed(LAKE, "validation", index) for _ in ("optimal", "random") for index in range(3)
    ]
    found, _ = loopback.owner.call(load_table, repo, "steps", split="test")
    assert found == rows(files, "steps", "test")
