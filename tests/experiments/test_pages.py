"""Pages of the experiments that compare arms: answers, tables and figures."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes

from benchmark.experiments.arms import Comparison, unit_name
from benchmark.experiments.experiment import Values, load, names, read_rows, values_of
from benchmark.experiments.figures import draw_ends, draw_games, two_lines
from benchmark.experiments.override.experiment import EXPERIMENT as OVERRIDE
from benchmark.experiments.override.experiment import POISON
from benchmark.experiments.override_lake.experiment import EXPERIMENT as OVERRIDE_LAKE
from benchmark.experiments.override_lake.experiment import TOLD
from benchmark.experiments.selection.experiment import EXPERIMENT as SELECTION
from benchmark.experiments.selection.experiment import in_equal_time
from benchmark.experiments.size.experiment import EXPERIMENT as SIZE
from tests.experiments.test_statistics import FIRST, arms, ran

GAMES = ("A-v1", "B-v1")
LONG = "an_arm_with_a_name_that_takes_two_lines"


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


@pytest.mark.parametrize(
    ("other_trap", "other_goal", "verdict"),
    [(-0.9, 0.9, "sentences"), (0.0, 0.1, "sentences"), (0.0, 0.9, "follows")],
    ids=["always walks to the goal", "always avoids the goal", "obeys"],
)
def test_an_adapter_that_obeys_only_familiar_words_does_not_read(other_trap: float, other_goal: float, verdict: str) -> None:
    (trap, untold), (goal, sought) = TOLD.values()
    rewards = dict.fromkeys(OVERRIDE_LAKE.config["also"], 0.0) | {untold: other_trap, goal: 0.9, sought: other_goal, trap: 0.0}
    also = {game: [reward] for game, reward in rewards.items()}
    rows = rows_of(OVERRIDE_LAKE, {"a trap": 3 * [ran(0.0, also=also)]})
    assert verdict in OVERRIDE_LAKE.headline(rows)
    assert OVERRIDE_LAKE.headline(dict(list(rows.items())[:2])) == ""


@pytest.mark.parametrize(
    ("new", "verdict"),
    [(0.0, "has not learned to read."), (1.0, "follows words that it has not trained on.")],
    ids=["only words it trained on", "new words too"],
)
def test_training_on_several_rules_is_compared_with_the_adapter_it_starts_from(new: float, verdict: str) -> None:
    def ended(gain: float, of_new: float, updates: int = 20) -> Values:
        also = {game: [of_new - 0.1, of_new, of_new + 0.1] for game in OVERRIDE.config["also"]}
        return ran(0.0, updates, also=also | {POISON: [gain - 4.1, gain - 4.0, gain - 3.9]})

    arms = {"before": [ended(0.0, 0.0, 0)], "the base": [ended(2.0, 0.0, 0)], "plain game": 3 * [ended(0.0, 0.0)]}
    assert OVERRIDE.headline(rows_of(OVERRIDE, arms)) == "", "the arm has not run"
    arms["several rules"] = [ended(3.0 + seed / 10, new + seed / 10) for seed in range(3)]
    said = OVERRIDE.headline(rows_of(OVERRIDE, arms))
    assert said.startswith(f"An adapter that trains on several rules {verdict}")
    assert "before -4.000" in said
    assert "has trained on these words, and is better than before" in said
    kept, of_poison = said.partition("Its skill on the plain game is ")[2].split(", and where apples are poison it gets ")
    assert kept.startswith("kept within 5 %")
    assert of_poison.startswith("more than the base (-0.90 and -2.00)")


@pytest.mark.parametrize(
    ("others", "best_first", "expected"),
    [
        ({LONG: (0.2, 0.6, 1.0)}, False, ["an arm with a name that takes two\nlines (3)", "the first (3)"]),
        ({"higher": (0.9, 0.9, 0.9)}, True, ["the first (3)", "higher (3)"]),
    ],
)
def test_many_arms_have_a_dot_per_seed_and_a_dotted_line_at_the_mean_of_the_first(
    others: dict[str, tuple[float, ...]], best_first: bool, expected: list[str]
) -> None:
    (axes,) = draw_ends([("a case", arms(**others))], best_first=best_first).axes
    assert labels(axes) == expected
    dots = [sorted(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"]
    assert dots == [list(FIRST) if "first" in name else list(*others.values()) for name in expected]
    [dotted] = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert list(dotted.get_xdata()) == pytest.approx([0.6, 0.6])


def test_games_have_a_dot_per_seed_and_one_for_their_mean_in_every_arm() -> None:
    two = arms(other=(0.25, 0.5, 0.0))
    (axis,) = draw_games([("a case", two)], GAMES).axes
    dots = [[round(float(x), 9) for x in line.get_xdata()] for line in axis.lines if line.get_linestyle() == "None"]
    first, other = [0.5, 0.6, 0.7], [0.25, 0.5, 0.0]
    assert dots == [first, [0.6], [-0.5, -0.6, -0.7], [-0.6], other, [0.25], [-0.25, -0.5, 0.0], [-0.25]]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == list(two)
    assert labels(axis) == [two_lines(game) for game in GAMES]


def test_a_game_whose_scale_would_hide_the_others_gets_its_own_axis() -> None:
    cliff = arms()
    for values in cliff["the first"].values():
        values["also"]["B-v1"] = [-1800.0]
    axes = draw_games([("a case", cliff)], GAMES).axes
    assert [labels(axis) for axis in axes] == [[two_lines(game)] for game in GAMES]
    assert axes[0].get_xlim()[0] > -1
    assert [axis.get_legend() is None for axis in axes] == [False, True]
