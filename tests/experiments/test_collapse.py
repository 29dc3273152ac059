"""When a run collapsed, and how well a metric announces it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmark.experiments.collapse.experiment import EXPERIMENT, METRICS, figure
from benchmark.experiments.collapse.prediction import RESAMPLES, Run, area, area_with_interval, collapse_of
from benchmark.experiments.experiment import Values


def test_a_run_collapses_where_it_loses_half_of_what_it_had_learned() -> None:
    """By hand: it has learned 0.6, half of which is 0.3."""
    learned = [0.0, 0.0, 0.0, 0.6, 0.6, 0.6]
    assert collapse_of([*learned, 0.2, 0.2, 0.2]) == 6
    assert collapse_of([*learned, 0.31, 0.31, 0.31]) is None
    assert collapse_of([*learned, -8.0, -8.0, -8.0]) == 6, "not before it falls"
    assert collapse_of([*learned, -8.0, 0.5, 0.6]) is None, "it recovered"
    assert collapse_of([*learned, -8.0, 0.5, 0.2, 0.2]) == 6, "it did not"
    assert collapse_of([0.0, 0.0, 0.0, 0.19, 0.19, 0.19, 0.0, 0.0, 0.0]) is None, "it had learned nothing"
    assert collapse_of([0.5, 0.5, 0.5, -8.0, -8.0, -8.0]) is None, "nor here, beyond its beginning"


def test_the_area_is_that_of_all_pairs_of_updates() -> None:
    """By hand: 1 and 5 come before the collapse, 1, 1 and 2 do not; of the six pairs three are higher and two are equal."""
    runs = [Run({"m": [1, 1, 5, 9]}, 3), Run({"m": [1, 2]}, None)]
    assert area(runs, "m", 1) == 1.0
    assert area(runs, "m", 2) == pytest.approx((3 + 2 / 2) / 6)
    lower = [Run({"m": [-value for value in run.metrics["m"]]}, run.collapse) for run in runs]
    assert area(lower, "m", 2) == pytest.approx(1 - 4 / 6)
    assert area(runs[1:], "m", 1) is None
    assert area_with_interval(runs[1:], "m", 1) == "–"


def test_what_happens_after_a_collapse_does_not_count() -> None:
    short, long = Run({"m": [1, 2, 3]}, 2), Run({"m": [1, 2, 3, -50, 50]}, 2)
    assert area([short], "m", 1) == area([long], "m", 1) == 1.0


def test_the_page_counts_collapses_and_orders_metrics_by_what_they_say() -> None:
    def values(collapses: bool, recovers: bool = False) -> Values:
        returns = [0.0] * 3 + [0.6] * 5 + ([-8.0] * 4 if collapses else [0.6] * 4)
        flat = {name: [1.0] * len(returns) for name in METRICS}
        return {
            "metrics": {**flat, "composite_return": returns, "gradient_norm": [0.1] * 7 + [0.9] * 5 if collapses else [0.1] * 12},
            "test_rewards": [0.0, 1.0 if recovers else 0.0],
        }

    names = list(EXPERIMENT.units)
    rows = {names[0]: values(False), names[1]: values(True)}
    found = EXPERIMENT.answer(rows)
    assert "In 1 of 2 runs the return collapsed" in found
    assert "On the test boards 1 of them ended at 0." in found
    recovered = EXPERIMENT.answer(rows | {names[2]: values(True, recovers=True)})
    assert "On the test boards 1 of them ended at 0, and 1 between 0.50 and 0.50." in recovered
    assert "0.50" in found
    assert found.index("gradient norm") < found.index("entropy")
    assert "| none |" in EXPERIMENT.tables(rows)
    assert len(figure(rows).axes) == len(METRICS)


def test_the_interval_is_that_of_runs_drawn_again_and_again() -> None:
    """Against a bootstrap that builds every sample of runs."""
    rng = np.random.default_rng(1)
    runs = [Run({"m": rng.normal(size=9).tolist()}, collapse) for collapse in (4, None, 7, 2)]
    draws = np.random.default_rng(0)
    samples = [[runs[k] for k in draws.integers(0, 4, 4)] for _ in range(RESAMPLES)]
    areas = [found for sample in samples if (found := area(sample, "m", 2)) is not None]
    low, high = np.quantile(areas, [0.025, 0.975])
    assert area_with_interval(runs, "m", 2) == f"{area(runs, 'm', 2):.2f} [{low:.2f}, {high:.2f}]"
