"""Results that do not replay, or that would replace another's, are not pushed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.agent import ScriptedPolicy
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.players.registry import Player
from msgrpo_hub.players.scripted import choose_random, choose_random_safe
from tests.hub.conftest import msgrpo, refused
from tests.hub.pushed_results import TASKS, push
from tests.hub_server.lanes import Loopback
from tests.hub_server.operations import put
from tests.identities import served

# ---- what is refused


def change_json(own: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    for path in own.rglob(name):
        value = json.loads(path.read_text())
        change(value)
        path.write_text(json.dumps(value))


def raise_rewards(own: Path) -> None:
    """As a cheater would."""
    for path in own.rglob("*.parquet"):
        table = pq.read_table(path)
        column = table.column_names.index("reward")
        pq.write_table(table.set_column(column, "reward", pa.array([1.0] * len(table))), path)


def leave_open(own: Path) -> None:
    change_json(own, "results.json", lambda summary: summary.update(complete=False))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (raise_rewards, "where the rules give 0"),
        (lambda own: change_json(own, "results.json", lambda s: s["reward"].update(mean=0.9)), "summary does not follow"),
        (lambda own: change_json(own, "config.lock.json", lambda c: c.update(player="me")), "the run hash of its configuration"),
        (leave_open, "it is not complete"),
        (lambda own: [path.unlink() for path in own.rglob("steps.parquet")], "it has no steps.parquet"),
        (lambda own: [path.write_bytes(b"") for path in own.rglob("steps.parquet")], "its steps.parquet cannot be read"),
        (lambda own: (own / "random").rename(own / "ra ndom"), "is not named <player>"),
    ],
)
def test_a_run_that_does_not_replay_is_not_pushed(
    loopback: Loopback, own: Path, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(own)
    said = refused(loopback.owner.attempt(msgrpo, "push", "results", own, loopback.repository("dataset")))
    assert words in said
    assert "is not pushed" in said
    assert not loopback.hub.repositories


def test_another_run_of_the_same_hash_does_not_replace_the_first(loopback: Loopback, own: Path) -> None:
    """Who may not choose: of a player who is not pinned, the run that went well could be pushed over the one that did not."""
    repo, mine = loopback.repository("dataset"), own / "mine"
    game = Suite(name="tiny", tasks=TASKS[:1], episodes=30)
    for attempt in (0, 1):
        run_task(unpinned(attempt), game, TASKS[0], mine / str(attempt))
    loopback.owner.call(push, mine / "0", repo)
    said = refused(loopback.owner.attempt(msgrpo, "push", "results", mine / "1", repo))
    assert "has a different run at 'served/unpinned/FrozenLake-NotSlippery-v1/" in said
    assert len(loopback.commits(repo, "dataset")) == 2


def unpinned(attempt: int) -> Player:
    """A player behind a server: its replies are not decided by its identity."""
    choose = [choose_random, choose_random_safe][attempt]
    name = "endpoint:https://example.org/v1#m"
    return Player(name=name, policy=ScriptedPolicy(choose), identity=served(name), folder="served/unpinned")


def test_another_s_results_are_left_alone(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(put, repo, {"README.md": b"# Ours\n", "results/2024/scores.csv": b"1"}, "dataset")
    before = loopback.files(repo, "dataset")
    assert "holds something else (2024/scores.csv)" in refused(loopback.owner.attempt(msgrpo, "push", "results", played, repo))
    assert loopback.files(repo, "dataset") == before
