"""Statistics over training seeds: differences between arms, sources of spread, and collapses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

from benchmark.experiments.collapse.experiment import RESAMPLES, Run, area, area_with_interval, collapse_of
from benchmark.experiments.differences import Arms, after_holm, headline
from benchmark.experiments.experiment import Values
from benchmark.experiments.spread import Causes, by_chance, causes
from msgrpo_hub.evaluation.paired import holm

FIRST = (0.5, 0.6, 0.7)
UP, DOWN, NOISY = (0.6, 0.71, 0.82), (0.4, 0.49, 0.58), (0.2, 0.6, 1.0)


def ran(reward: float, updates: int = 60, **more: Any) -> Values:
    """A run that ends with a reward in validation and test; without updates, the base."""
    curve = [[0, 0.0], [updates, reward]][: 1 + bool(updates)]
    return {"curve": curve, "test_rewards": [reward], "seconds": 1.0, **more}


def arms(**others: tuple[float, ...]) -> Arms:
    """Arms by their rewards, one per seed; the first is FIRST."""
    return {
        name.replace("_", " "): {seed: ran(x) for seed, x in enumerate(rewards)}
        for name, rewards in {"the first": FIRST, **others}.items()
    }


def test_arms_whose_interval_excludes_zero_are_better_or_worse() -> None:
    # Differences of 0.1, 0.11 and 0.12 have the interval 0.11 ± 4.303 · 0.01 / √3; the interval of -0.3, 0 and 0.3 contains zero.
    # t = 19.05 with 2 degrees of freedom has p = 0.0027, below 0.05 / 3.
    assert headline(arms(up=UP, down=DOWN, noisy=NOISY)) == (
        "“the first” reaches 0.60 over 3 seeds. Better: “up” (+0.11 [0.085, 0.135]). Worse: “down” (-0.11 [-0.135, -0.085])."
        " After Holm's correction for 3 arms: “up”, “down”. Not significant: “noisy” (+0.00 [-0.745, 0.745])."
    )


def test_holms_correction_equals_adjusted_p_values_of_scipy() -> None:
    rng, seen = np.random.default_rng(0), set()
    for _ in range(100):
        others = {f"arm {k}": tuple(np.array(FIRST) + rng.normal(0.1 * k, 0.03, 3)) for k in range(4)}
        p = [float(scipy.stats.ttest_rel(rewards, FIRST).pvalue) for rewards in others.values()]
        expected = {arm for arm, adjusted in zip(others, holm(p), strict=True) if adjusted < 0.05}
        assert {*after_holm(arms(**others))} == expected
        seen.add(len(expected))
    assert len(seen) > 2


def test_arms_with_fewer_than_three_seeds_are_counted_and_not_judged() -> None:
    assert headline(arms(two=(0.9, 0.9))) == ""
    said = headline(arms(noisy=NOISY, two=(0.9, 0.9), one=(0.9,)))
    assert said.endswith("“noisy” (+0.00 [-0.745, 0.745]). 2 more have fewer than three seeds.")


def test_chance_is_the_difference_between_episodes_on_one_board() -> None:
    # Variances 0.5 and 0 on boards with two episodes: (2 · 0.5 + 2 · 0) / 4² = 1 / 16; the second policy has none
    boards = ["a", "a", "b", "b"]
    assert by_chance([[1.0, 0.0, 1.0, 1.0]], boards) == pytest.approx(1 / 4)
    assert by_chance([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]], boards) == pytest.approx((1 / 32) ** 0.5)


def test_boards_with_one_episode_say_nothing() -> None:
    assert by_chance([[1.0, 0.0, 1.0]], ["a", "b", "c"]) is None
    assert by_chance([[1.0, 0.0, 1.0]], ["a", "a", "c"]) == pytest.approx((0.5 / 3) ** 0.5), "the third counts as the others"


def test_variance_is_split_into_setting_seed_and_rest() -> None:
    # Means 1 and 3 of the settings, 1, 2 and 3 of the seeds, no residual: components 2 and 1
    additive = np.array([[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]])
    assert causes(additive, 0.5) == pytest.approx(Causes(2.0, 1.0, 0.0, 0.0)), "chance is a part of the residuals, here none"
    assert causes(additive.T, 0.0)[:2] == pytest.approx((1.0, 2.0))
    crossed = np.array([[1.0, -1.0], [-1.0, 1.0]])  # MS_A = MS_S = 0, MS_E = 4
    assert causes(crossed, 1.0) == pytest.approx(Causes(0.0, 0.0, 3.0, 1.0))
    assert list(causes(crossed, 1.0).shares().items())[:2] == [("both", 0.75), ("chance", 0.25)]


def test_a_run_collapses_if_it_loses_half_of_what_it_had_learned() -> None:
    # It has learned 0.6; half is 0.3
    learned = [0.0, 0.0, 0.0, 0.6, 0.6, 0.6]
    assert collapse_of([*learned, 0.2, 0.2, 0.2]) == 6
    assert collapse_of([*learned, 0.31, 0.31, 0.31]) is None
    assert collapse_of([*learned, -8.0, -8.0, -8.0]) == 6, "not before it falls"
    assert collapse_of([*learned, -8.0, 0.5, 0.6]) is None, "it recovered"
    assert collapse_of([*learned, -8.0, 0.5, 0.2, 0.2]) == 6, "it did not recover"
    assert collapse_of([0.0, 0.0, 0.0, 0.19, 0.19, 0.19, 0.0, 0.0, 0.0]) is None, "it had learned nothing"
    assert collapse_of([0.5, 0.5, 0.5, -8.0, -8.0, -8.0]) is None, "nor here, beyond its beginning"


def test_the_area_counts_all_pairs_of_updates() -> None:
    # 1 and 5 come before the collapse, 1, 1 and 2 do not; of the six pairs three are higher and two are equal
    runs = [Run({"m": [1, 1, 5, 9]}, 3), Run({"m": [1, 2]}, None)]
    assert area(runs, "m", 1) == 1.0
    assert area(runs, "m", 2) == pytest.approx((3 + 2 / 2) / 6)
    lower = [Run({"m": [-value for value in run.metrics["m"]]}, run.collapse) for run in runs]
    assert area(lower, "m", 2) == pytest.approx(1 - 4 / 6)
    assert area(runs[1:], "m", 1) is None
    assert area_with_interval(runs[1:], "m", 1) == "–"


def test_the_interval_equals_a_bootstrap_that_builds_every_sample_of_runs() -> None:
    rng = np.random.default_rng(1)
    runs = [Run({"m": rng.normal(size=9).tolist()}, collapse) for collapse in (4, None, 7, 2)]
    draws = np.random.default_rng(0)
    samples = [[runs[k] for k in draws.integers(0, 4, 4)] for _ in range(RESAMPLES)]
    areas = [found for sample in samples if (found := area(sample, "m", 2)) is not None]
    low, high = np.quantile(areas, [0.025, 0.975])
    assert area_with_interval(runs, "m", 2) == f"{area(runs, 'm', 2):.2f} [{low:.2f}, {high:.2f}]"
