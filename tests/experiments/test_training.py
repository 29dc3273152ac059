"""Training as a unit of an experiment."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmark.experiments.arms import unit_name
from benchmark.experiments.experiment import configuration, load

CREDITS = load("credit_curves")


def values(reward: float) -> dict[str, object]:
    return {"curve": [[0.0, 0, 0.0], [5.0, 10, reward]], "updates": 10, "test_rewards": [reward, reward]}


@pytest.mark.parametrize("name", ["credit_curves", "selection"])
def test_every_arm_runs_with_every_seed_for_equal_seconds(name: str) -> None:
    units, config = list(load(name).units.values()), configuration(name)
    assert {unit["seed"] for unit in units} == set(range(8))
    assert len(units) == len(config["arm"]) * 8 * len(config["seconds"])
    assert {(unit["preset"], unit["seconds"]) for unit in units} == set(config["seconds"].items())


def test_the_table_has_the_interval_over_seeds_and_the_answer_each_difference_seed_by_seed() -> None:
    found = {"whole episode / std": (0.4, 0.5, 0.6), "whole episode": (0.5, 0.7, 0.9), "anchor states / std": (0.4, 0.5)}
    rows = {
        unit_name("quickstart", arm, seed): values(reward)
        for arm, rewards in found.items()
        for seed, reward in enumerate(rewards)
    }
    assert "| whole episode / std | 3 | 0.500 | 0.500 [0.252, 0.748] | 0.100 | 0.400 | 10 |" in CREDITS.tables(
        rows
    )  # ± 4.303 · 0.1 / √3
    answer = CREDITS.answer(rows)
    assert "8 of 48 runs" in answer
    told = "whole episode / std: 0.500. Against it: whole episode +0.200 [-0.048, 0.448]; anchor states / std +0.000 (n < 3)."
    assert told in answer  # the differences are 0.1, 0.2, 0.3
    assert CREDITS.figure(rows).subfigs


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["critic, λ = 0.9", "exact advantage"])
def test_a_run_gives_its_curve_and_its_test_rewards(tiny_model: Path, arm: str) -> None:
    [unit] = [unit for unit in CREDITS.units.values() if unit["arm"] == arm and unit["seed"] == 0]
    small = {
        "model": str(tiny_model),
        "groups": 2,
        "group_size": 4,
        "selected_per_group": 4,
        "eval_episodes": 4,
        "test_episodes": 4,
    }
    changed = {**unit, "seconds": 0.2, "evaluations": 2, "settings": {**unit["settings"], **small}}
    found = CREDITS.run(changed, tiny_model)
    assert [point[0] for point in found["curve"]] == sorted(point[0] for point in found["curve"])
    assert len(found["curve"]) == 3
    assert found["updates"] >= 1
    assert len(found["test_rewards"]) == 4
