"""Hashes and runs of harness 1, the first build's, and of harness 2 stay what they are beside those of now."""

from __future__ import annotations

import tomllib
from pathlib import Path

from msgrpo_hub.evaluation import suites
from msgrpo_hub.evaluation.suites import hash_of, load_suite
from msgrpo_hub.games import GAMES
from msgrpo_hub.games.seeds import candidate_seed
from tests.evaluation.frozen_suites import GOLDEN, LAKE, SNAKE, frozen

FIRST_BUILD = {
    "Snake-Standard-v1": "3e54e91afa754e67",
    "Snake-PoisonApple-v1": "228b165d870c64b9",
    "FrozenLake-NotSlippery-v1": "b8bf4cdae7658d0d",
    "FrozenLake-Slippery-v1": "00d5714eeda99492",
}
"""Their hashes in harness 1."""


# ---- harness 1


def test_the_hashes_of_harness_1_are_those_of_the_first_build_and_lead_to_harness_2() -> None:
    """Harness 2 had the rules of now on boards without splits, so its hashes still follow from the games."""
    table = tomllib.loads(Path(str(suites.__file__)).with_name("harness_1.toml").read_text())["tasks"]
    assert {task: table[task] for task in FIRST_BUILD} == {task: [first, hash_of(task, 2)] for task, first in FIRST_BUILD.items()}
    added = {task for task in frozen() if task.endswith(":irrelevant-sentence")}
    assert set(frozen()) - added | set(GAMES) <= set(table)


def test_a_run_of_harness_1_is_one_of_harness_2_and_a_forged_one_is_not() -> None:
    run = {"task": LAKE, "harness": 1, "task_hash": FIRST_BUILD[LAKE]}
    assert suites.same_rules(run) == {"task_hash": hash_of(LAKE, 2), "harness": 2}
    assert suites.is_current(run)
    for forged in ({"task_hash": "0" * 16}, {"task": SNAKE}, {"harness": 2}):
        assert suites.same_rules(run | forged) == {name: (run | forged)[name] for name in ("task_hash", "harness")}
        assert not suites.is_current(run | forged)


# ---- harness 3: boards have splits


def test_a_run_has_the_seeds_and_the_hash_of_its_harness() -> None:
    run = {"task": LAKE, "split": "test", "episodes": 30}
    by_seed = [candidate_seed(LAKE, "test", index) for index in range(30)]
    assert suites.run_seeds({**run, "harness": 1}) == suites.run_seeds({**run, "harness": 2}) == by_seed
    by_board = suites.run_seeds({**run, "harness": 3})
    assert by_board == load_suite("standard").seeds(LAKE)[:30] != by_seed
    assert suites.is_current({**run, "harness": 3, "task_hash": GOLDEN[LAKE]})
    assert not suites.is_current({**run, "harness": 2, "task_hash": GOLDEN[LAKE]})
    assert not suites.is_current({**run, "harness": 3, "task_hash": hash_of(LAKE, 2)})
