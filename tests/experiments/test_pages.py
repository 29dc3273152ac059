"""Pages of the experiments that compare arms: answers, tables and figures."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes

from benchmark.experiments.arms import Comparison, unit_name
from benchmark.experiments.experiment import Values, load, names, read_rows, values_of
from benchmark.experiments.selection.experiment import EXPERIMENT as SELECTION
from benchmark.experiments.selection.experiment import in_equal_time
from benchmark.experiments.size.experiment import EXPERIMENT as SIZE
from tests.experiments.test_statistics import ran


def labels(axes: Axes) -> list[str]:
    """The labels of the lines, from the bottom."""
    return [label.get_text() for label in axes.get_yticklabels()]


def rows_of(experiment: Comparison, arms: dict[str, list[Values]]) -> dict[str, Values]:
    """Rows of the first case: arm → values, one per seed."""
    case = next(iter(experiment.config["updates"]))
    return {unit_name(case, arm, seed): values for arm, of in arms.items() for seed, values in enumerate(of)}


@pytest.mark.parametrize("name", names())
def test_every_experiment_says_nothing_before_it_has_run_and_whole_sentences_after(name: str) -> None:
    experiment = load(name)
    assert experiment.headline({}) == ""
    said = experiment.headline(values_of(read_rows(experiment)))
    assert not said or said.rstrip().endswith(".")


def test_the_table_has_intervals_over_seeds_and_the_answer_each_difference_seed_by_seed() -> None:
    found = {"all": (0.4, 0.5, 0.6), "AAW, a quarter": (0.5, 0.7, 0.9), "top, a quarter": (0.4, 0.5)}
    rows = rows_of(SELECTION, {arm: [ran(reward) for reward in rewards] for arm, rewards in found.items()})
    assert "| all | 3 | 0.500 | 0.500 [0.252, 0.748] | 0.100 | 0.400 |" in SELECTION.tables(rows)  # ± 4.303 · 0.1 / √3
    answer = SELECTION.answer(rows)
    assert "8 of 50 runs" in answer
    # the differences are 0.1, 0.2, 0.3
    assert "all: 0.500. Against it: AAW, a quarter +0.200 [-0.048, 0.448]; top, a quarter +0.000 (no interval)." in answer
    (axes,) = SELECTION.figure(rows).axes
    means = [list(line.get_ydata()) for line in axes.lines if line.get_linewidth() == 2]
    assert means == [[0.0, pytest.approx(0.5)], [0.0, pytest.approx(0.7)], [0.0, pytest.approx(0.45)]]


def test_an_untrained_arm_runs_once_and_serves_every_seed() -> None:
    assert [unit["seed"] for name, unit in SIZE.units.items() if "the-base" in name] == [0, 0, 0]
    bases = {"3 M, the base": [0.3, 0.4, 0.5], "0.3 M, the base": [0.2, 0.3, 0.4]}  # rewards of three episodes
    rows = rows_of(SIZE, {arm: [{**ran(0.0, 0), "test_rewards": rewards}] for arm, rewards in bases.items()})
    rows |= rows_of(SIZE, {"3 M": [ran(reward) for reward in (0.5, 0.6, 0.7)]})
    # ± 2.776 · 0.1 · √(2 / 3): with equal variances Welch's interval has 4 degrees of freedom
    assert "Against it: 3 M +0.200 [-0.027, 0.427]; 0.3 M, the base -0.100 [-0.327, 0.127]." in SIZE.answer(rows)


@pytest.mark.parametrize(
    ("small", "verdict"),
    [((0.6, 0.7, 0.8), "Yes."), ((0.2, 0.5, 0.8), "Unclear."), ((0.0, 0.1, 0.2), "No.")],
)
def test_a_small_trained_base_beats_a_large_one_if_its_interval_is_above(small: tuple[float, ...], verdict: str) -> None:
    # The intervals are the mean ± 2.48, 7.45 and 2.48 tenths
    rows = rows_of(SIZE, {"3 M, the base": [ran(0.4, 0)], "0.3 M": [ran(reward) for reward in small]})
    assert SIZE.headline(rows).startswith(verdict)
    assert "Before: 3 M 0.40: the" in SIZE.headline(rows)
    assert "| 3 M, the base | – | 0.000 | 0.400 | – | – |" in SIZE.tables(rows)
    assert labels(*SIZE.figure(rows).axes) == ["0.3 M (3)", "3 M, the base"]
    del rows[unit_name("quickstart", "0.3 M", 2)]
    assert SIZE.headline(rows) == ""


def test_equal_time_is_the_end_of_the_fastest_arm_of_a_seed() -> None:
    # After 20 of its 40 seconds a run of 10 updates is at its fifth, halfway from 1 to 2; an arm may lack a seed
    def took(seconds: float) -> Values:
        return {"curve": [[0, 1.0], [10, 2.0]], "seconds": seconds, "test_rewards": [7.0]}

    found = in_equal_time({"few": {0: took(20.0), 1: took(50.0)}, "all": {0: took(40.0), 1: took(25.0), 2: took(9.0)}})
    reached = {arm: {seed: values["test_rewards"] for seed, values in seeds.items()} for arm, seeds in found.items()}
    assert reached == {"few": {0: [2.0], 1: [1.5]}, "all": {0: [1.5], 1: [2.0], 2: [2.0]}}
