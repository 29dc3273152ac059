"""Hashes and runs of harness 1, the first build's, lead to the suites of now."""

from __future__ import annotations

import tomllib
from pathlib import Path

from msgrpo_hub.evaluation import suites
from msgrpo_hub.games import GAMES
from tests.evaluation.frozen_suites import GOLDEN, LAKE, SNAKE, frozen

FIRST_BUILD = {
    "Snake-Standard-v1": "3e54e91afa754e67",
    "Snake-PoisonApple-v1": "228b165d870c64b9",
    "FrozenLake-NotSlippery-v1": "b8bf4cdae7658d0d",
    "FrozenLake-Slippery-v1": "00d5714eeda99492",
}
"""Their hashes in harness 1."""


# ---- harness 1


def test_the_hashes_of_harness_1_are_those_of_the_first_build_and_lead_to_the_suites_of_now() -> None:
    table = tomllib.loads(Path(str(suites.__file__)).with_name("harness_1.toml").read_text())["tasks"]
    assert {task: table[task] for task in FIRST_BUILD} == {task: [hash, frozen()[task]] for task, hash in FIRST_BUILD.items()}
    assert {task: now for task, (_, now) in table.items() if task in frozen()} == frozen()
    assert set(GAMES) <= set(table)


def test_a_run_of_harness_1_has_the_rules_of_now_and_a_forged_one_has_not() -> None:
    run = {"task": LAKE, "harness": 1, "task_hash": FIRST_BUILD[LAKE]}
    assert suites.same_rules(run) == {"task_hash": GOLDEN[LAKE], "harness": 2}
    for forged in ({"task_hash": "0" * 16}, {"task": SNAKE}, {"harness": 2}):
        assert suites.hash_now(run | forged) == (run | forged)["task_hash"] != GOLDEN[LAKE]
        assert suites.same_rules(run | forged)["harness"] == (run | forged)["harness"]
