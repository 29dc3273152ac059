"""Training as a unit of an experiment."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmark.experiments.credit_curves import experiment as credit_curves
from benchmark.experiments.credit_curves.experiment import answer, arms, figure, tables, units


def values(reward: float) -> dict[str, object]:
    return {"curve": [[0.0, 0, 0.0], [5.0, 10, reward]], "updates": 10, "test_rewards": [reward, reward]}


def test_every_arm_runs_with_every_seed_for_equal_seconds() -> None:
    settings = list(units().values())
    assert {unit["seed"] for unit in settings} == set(range(8))
    assert len({unit["seconds"] for unit in settings}) == 1
    assert len(settings) == len({unit["arm"] for unit in settings}) * 8


def test_the_table_has_the_interval_over_seeds() -> None:
    names = [credit_curves.unit_name("whole episode", seed) for seed in range(3)]
    rows = {name: values(reward) for name, reward in zip(names, (0.4, 0.5, 0.6), strict=True)}
    assert "| whole episode | 3 | 0.500 [0.252, 0.748] | 0.100 | 0.400 | 10 |" in tables(rows)  # 0.5 ± 4.303 · 0.1 / √3
    assert "3 to 3 of 8 seeds" in answer(rows)
    assert figure(rows).axes
    assert list(arms(rows)) == ["whole episode"]


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["critic, λ = 0.9", "exact advantage"])
def test_a_run_gives_its_curve_and_its_test_rewards(tiny_model: Path, arm: str) -> None:
    [unit] = [unit for unit in units().values() if unit["arm"] == arm and unit["seed"] == 0]
    small = {
        "model": str(tiny_model),
        "groups": 2,
        "group_size": 4,
        "selected_per_group": 4,
        "eval_episodes": 4,
        "test_episodes": 4,
    }
    changed = {**unit, "seconds": 0.2, "evaluations": 2, "settings": {**unit["settings"], **small}}
    found = credit_curves.run(changed, tiny_model)
    assert [point[0] for point in found["curve"]] == sorted(point[0] for point in found["curve"])
    assert len(found["curve"]) == 3
    assert found["updates"] >= 1
    assert len(found["test_rewards"]) == 4
