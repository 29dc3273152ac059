"""The other ways to train of the main result: a DQN, and TRL's GRPO for as many seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmark.experiments.experiment import Values, load
from benchmark.experiments.main_result.page import answer
from benchmark.experiments.main_result.runs import dqn, with_trl

UNITS = load("main_result").units
LAKE = "FrozenLake-NotSlippery-v1"


def test_every_seed_of_every_other_way_to_train_is_a_unit_of_its_own() -> None:
    assert {f"dqn-{LAKE}-20000-seed{seed}" for seed in range(3)} <= set(UNITS)
    assert UNITS["trl-lake-seed4"]["stages"] == UNITS["lake-seed4"]["stages"]


@pytest.mark.parametrize(("name", "seeds"), [("lake", 8), ("slippery", 5), ("snake alone", 5), ("snake", 5)])
def test_a_run_is_trained_with_its_own_seeds_or_else_with_all(name: str, seeds: int) -> None:
    of_run = [unit for unit in UNITS.values() if unit.get("run") == name]
    assert [unit["seed"] for unit in of_run] == list(range(seeds))
    assert all("seeds" not in stage for unit in of_run for stage in unit["stages"])


@pytest.mark.slow
def test_a_dqn_plays_the_test_episodes_as_every_other_player(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra dqn is not installed")
    unit = {**UNITS[f"dqn-{LAKE}-20000-seed0"], "steps": 64, "episodes": 8}
    found = dqn(unit, tmp_path)
    assert found["player"] == "DQN, 64 steps"
    assert len(found["games"][LAKE]["rewards"]) == len(found["games"][LAKE]["luck_adjusted"]) == 8
    assert dqn(unit, tmp_path)["games"] == found["games"], "it is trained once"


@pytest.mark.slow
def test_trl_trains_for_the_seconds_of_our_run_and_its_adapter_plays_as_any_other(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra trl is not installed")
    small = {"updates": 2, "groups": 1, "group_size": 4, "selected_per_group": 2, "token_budget": 4096}
    unit = UNITS["trl-lake-seed0"]
    found = with_trl({**unit, "stages": [{**unit["stages"][0], **small}], "episodes": 4}, tmp_path)
    assert 1 <= found["updates"] <= 2, "it stops when the seconds are over"
    assert found["training_episodes"] == 4 * found["updates"]
    assert len(found["games"][LAKE]["rewards"]) == 4


def test_a_share_of_the_best_player_is_said_only_where_that_player_gains_something() -> None:
    def rows(whole: float) -> dict[str, Values]:
        played: Values = {"player": "trained: x", "games": {"Snake-PoisonApple-v1": {"rewards": [-1.0, -3.0]}}}
        best: Values = {"player": "planner", "games": {"Snake-PoisonApple-v1": {"rewards": [whole, whole]}}}
        return {"trained-seed0": played, "planner": best}

    assert "of planner" not in answer(rows(0.0))
    assert "-50% of planner" in answer(rows(4.0))
