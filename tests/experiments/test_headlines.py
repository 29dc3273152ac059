"""Answers in a sentence: what arms show beyond chance over seeds, and nothing while there are too few."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from benchmark.experiments import experiment
from benchmark.experiments.arms import unit_name
from benchmark.experiments.curves import Arms, after_holm, draw_ends
from benchmark.experiments.experiment import Values, configuration
from benchmark.experiments.exploration.experiment import headline as of_exploration
from benchmark.experiments.headlines import headline, headline_of_games
from benchmark.experiments.main_result.page import headline as of_main_result
from benchmark.experiments.override.experiment import POISON
from benchmark.experiments.override.experiment import headline as of_rules
from benchmark.experiments.override_lake.experiment import CONFIG, TOLD
from benchmark.experiments.override_lake.experiment import headline as of_override
from benchmark.experiments.rows import read_rows, values_of
from benchmark.experiments.selection.experiment import in_equal_time
from benchmark.experiments.size.experiment import EXPERIMENT as SIZE
from msgrpo_hub.evaluation.paired import holm

FIRST = (0.5, 0.6, 0.7)


def arms(**others: tuple[float, ...]) -> Arms:
    """Arms by their rewards, one per seed; the first is FIRST."""
    return {
        name.replace("_", " "): {
            seed: {"test_rewards": [x], "curve": [[0, 0.0], [60, x]], "also": {"A-v1": [x], "B-v1": [-x]}}
            for seed, x in enumerate(rewards)
        }
        for name, rewards in {"the first": FIRST, **others}.items()
    }


def test_arms_whose_interval_leaves_out_zero_are_better_or_worse() -> None:
    """Differences of 0.1, 0.11 and 0.12 have the interval 0.11 ± 4.303 · 0.01 / √3; those of -0.3, 0 and 0.3 hold zero.

    t = 19.05 with 2 degrees has p = 0.0027, below 0.05 / 3.
    """
    said = headline(arms(up=(0.6, 0.71, 0.82), down=(0.4, 0.49, 0.58), noisy=(0.2, 0.6, 1.0)))
    assert said == (
        "“the first” reaches 0.60 over 3 seeds. Better: “up” (+0.11 [0.085, 0.135]). Worse: “down” (-0.11 [-0.135, -0.085])."
        " After Holm's correction for 3 arms: “up”, “down”. Not told apart from it: “noisy” (+0.00 [-0.745, 0.745])."
    )


def test_holms_correction_is_that_of_p_values() -> None:
    """Against Holm's adjustment of scipy's p."""
    rng, seen = np.random.default_rng(0), set()
    for _ in range(100):
        others = {f"arm {k}": tuple(np.array(FIRST) + rng.normal(0.1 * k, 0.03, 3)) for k in range(4)}
        p = [float(scipy.stats.ttest_rel(rewards, FIRST).pvalue) for rewards in others.values()]
        expected = {arm for arm, adjusted in zip(others, holm(p), strict=True) if adjusted < 0.05}
        assert {*after_holm(arms(**others))} == expected
        seen.add(len(expected))
    assert len(seen) > 2


def test_of_many_arms_that_are_not_told_apart_only_the_number_is_said() -> None:
    many = {f"noisy_{number}": (0.2, 0.6, 1.0) for number in range(6)}
    assert headline(arms(**many)) == (
        "No difference is shown. “the first” reaches 0.60 over 3 seeds. Not told apart from it: 6 others, whose intervals span"
        " -0.75 to +0.75."
    )


def test_arms_with_fewer_than_three_seeds_are_counted_and_not_judged() -> None:
    assert headline(arms(two=(0.9, 0.9))) == ""
    said = headline(arms(noisy=(0.2, 0.6, 1.0), two=(0.9, 0.9), one=(0.9,)))
    assert said.endswith("“noisy” (+0.00 [-0.745, 0.745]). 2 more have fewer than three seeds.")


def test_games_are_listed_by_what_an_arm_does_on_them() -> None:
    said = headline_of_games(arms(up=(0.6, 0.71, 0.82), noisy=(0.2, 0.6, 1.0), two=(0.9, 0.9)), ["A-v1", "B-v1"])
    assert said == (
        "“up” against “the first”: better on A (+0.11); worse on B (-0.11). “noisy” against “the first”: not told apart on A, B."
    )


@pytest.mark.parametrize(
    ("other_trap", "other_goal", "verdict"),
    [(-0.9, 0.9, "sentences"), (0.0, 0.1, "sentences"), (0.0, 0.9, "follows")],
    ids=["walks to the goal whatever it is told", "keeps off it whatever it is told", "does as told"],
)
def test_an_adapter_that_obeys_in_words_it_knows_alone_does_not_read(other_trap: float, other_goal: float, verdict: str) -> None:
    (trap, untold), (goal, sought) = TOLD.values()
    also = {game: [0.0] for game in CONFIG["also"]} | {trap: [0.0], untold: [other_trap], goal: [0.9], sought: [other_goal]}
    case = next(iter(CONFIG["updates"]))
    rows: dict[str, Values] = {unit_name(case, "a trap", seed): {"also": also} for seed in range(3)}
    assert verdict in of_override(rows)
    assert of_override(dict(list(rows.items())[:2])) == ""


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        (0.0, "has not learned to read."),
        (1.0, "follows words that it has not trained on."),
    ],
    ids=["only words it trained on", "new words too"],
)
def test_training_on_several_rules_is_held_against_the_adapter_it_goes_on_from(new: float, verdict: str) -> None:
    """Where apples are poison it gains 3; on the games with new words, as much as is given."""
    games = configuration("override")["also"]

    def ended(gain: float, of_new: float, updates: int = 20) -> Values:
        also = {game: [of_new + chance for chance in (-0.1, 0.0, 0.1)] for game in games} | {
            POISON: [gain + chance - 4.0 for chance in (-0.1, 0.0, 0.1)]
        }
        return {"curve": [[0, 0.0], [updates, 0.0]][: 1 + bool(updates)], "also": also, "seconds": 1.0}

    def row(arm: str, seed: int) -> str:
        return unit_name("quickstart-snake", arm, seed)

    rows = {row("before", 0): ended(0.0, 0.0, 0), row("the base", 0): ended(2.0, 0.0, 0)}
    rows |= {row("plain game", seed): ended(0.0, 0.0) for seed in range(3)}
    assert of_rules(rows) == "", "the arm has not run"
    rows |= {row("several rules", seed): ended(3.0 + seed / 10, new + seed / 10) for seed in range(3)}
    said = of_rules(rows)
    assert said.startswith(f"An adapter that trains on several rules {verdict}")
    assert "before -4.000" in said
    assert "has trained on these words, and is better than before" in said
    kept, of_poison = said.partition("Its skill on the plain game is ")[2].split(", and where apples are poison it gets ")
    assert kept.startswith("kept within 5 %")
    assert of_poison.startswith("more than the base (-0.90 and -2.00)")


def test_the_main_result_is_told_as_shares_of_the_best_player() -> None:
    def played(player: str, *rewards: float, **more: int) -> Values:
        return {"player": player, "games": {"Snake-Solo-v1": {"rewards": list(rewards)}}, **more}

    rows = {f"run-seed{seed}": played("trained: x", mean, training_episodes=4_000) for seed, mean in enumerate((2.0, 3.0, 4.0))}
    rows |= {"planner": played("planner", 4.0), "greedy": played("greedy", 3.5)}
    rows |= {f"dqn-seed{seed}": played("DQN, 8 steps", 1.0, environment_steps=8) for seed in range(3)}
    rows |= {"taught-seed0": played("taught by planner", 4.0)}  # one seed is too few
    assert of_main_result(rows).splitlines()[2] == (
        "- **Snake-Solo**, of *planner*: greedy 88%; trained: x 75% (worst of 3 seeds 50%, from 4,000 episodes); "
        "DQN, 8 steps 25% (worst of 3 seeds 25%)."
    )
    assert of_main_result({"planner": played("planner", 4.0), "greedy": played("greedy", 3.5)}) == "", "nothing is trained"


def test_every_experiment_says_nothing_before_it_has_run_and_a_sentence_or_nothing_after() -> None:
    for name in experiment.names():
        one = experiment.load(name)
        assert one.headline({}) == ""
        said = one.headline(values_of(read_rows(one, experiment.HERE / name)))
        assert not said or said.rstrip().endswith("."), name


def test_the_figure_of_many_arms_shows_how_every_seed_ends_and_the_mean_of_the_first() -> None:
    (axes,) = draw_ends([("a case", arms(an_arm_with_a_name_that_takes_two_lines=(0.2, 0.6, 1.0)))]).axes
    dots = [sorted(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"]
    assert dots == [[0.2, 0.6, 1.0], list(FIRST)]  # from the bottom
    [dotted] = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert list(dotted.get_xdata()) == pytest.approx([0.6, 0.6])
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "an arm with a name that takes two\nlines (3)",
        "the first (3)",
    ]
    (sorted_axes,) = draw_ends([("a case", arms(higher=(0.9, 0.9, 0.9)))], best_first=True).axes
    assert [label.get_text() for label in sorted_axes.get_yticklabels()] == ["the first (3)", "higher (3)"]  # from the bottom
    [dotted] = [line for line in sorted_axes.lines if line.get_linestyle() == ":"]
    assert list(dotted.get_xdata()) == pytest.approx([0.6, 0.6])


def test_seeds_that_stagnate_are_counted_by_arm() -> None:
    def ended(validation: float) -> Values:
        return {"curve": [[0, 0.0], [60, validation]], "test_rewards": [validation], "seconds": 1.0}

    found = {"temperature 1": (0.8, 0.3, 0.1), "adaptive": (0.8, 0.4, 0.5)}
    rows = {unit_name("quickstart", arm, seed): ended(x) for arm, ends in found.items() for seed, x in enumerate(ends)}
    assert of_exploration(rows).endswith("best one of all: 2 of 3 with “temperature 1”, 0 of 3 with “adaptive”.")


@pytest.mark.parametrize(
    ("small", "verdict"),
    [((0.6, 0.7, 0.8), "Yes."), ((0.2, 0.5, 0.8), "Not told apart."), ((0.0, 0.1, 0.2), "No.")],
)
def test_a_small_trained_base_beats_a_large_one_if_its_interval_over_seeds_is_above(
    small: tuple[float, ...], verdict: str
) -> None:
    """The intervals are the mean ± 2.48, 7.45 and 2.48 tenths."""

    def ended(updates: int, reward: float) -> Values:
        return {"curve": [[0, 0.1], [updates, reward]][: 1 + bool(updates)], "test_rewards": [reward], "seconds": 1.0}

    rows = {unit_name("quickstart", "3 M, the base", 0): ended(0, 0.4)}
    rows |= {unit_name("quickstart", "0.3 M", seed): ended(60, reward) for seed, reward in enumerate(small)}
    assert SIZE.headline(rows).startswith(verdict)
    assert "Before: 3 M 0.40: the" in SIZE.headline(rows)
    assert "| 3 M, the base | – | 0.100 | 0.400 | – | – |" in SIZE.tables(rows)
    (axes,) = SIZE.figure(rows).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0.3 M (3)", "3 M, the base"]
    del rows[unit_name("quickstart", "0.3 M", 2)]
    assert SIZE.headline(rows) == ""


def test_an_arm_without_training_runs_once_and_stands_for_every_seed() -> None:
    """Then it can be compared seed by seed; the test episodes do not depend on the seed of a run."""
    bases = [unit for name, unit in SIZE.units.items() if "the-base" in name]
    assert [unit["seed"] for unit in bases] == [0, 0, 0]
    bases_rewards = {"3 M, the base": [0.3, 0.4, 0.5], "0.3 M, the base": [0.2, 0.3, 0.4]}  # of three episodes, once
    rows = {
        unit_name("quickstart", arm, 0): {"curve": [[0, 0.1]], "test_rewards": rewards, "seconds": 0.0}
        for arm, rewards in bases_rewards.items()
    }
    rows |= {
        unit_name("quickstart", "3 M", seed): {"curve": [[0, 0.1], [60, reward]], "test_rewards": [reward], "seconds": 1.0}
        for seed, reward in enumerate((0.5, 0.6, 0.7))
    }
    told = "Against it: 3 M +0.200 [-0.027, 0.427]; 0.3 M, the base -0.100 [-0.327, 0.127]."
    assert told in SIZE.answer(rows)  # ± 2.776 · 0.1 · √(2 / 3): Welch's interval has 4 degrees of freedom, with equal variances


def test_arms_are_compared_in_equal_time_at_the_end_of_the_fastest_arm_of_a_seed() -> None:
    """After 20 of its 40 seconds a run of 10 updates is at its fifth, half way from 1 to 2; an arm may lack a seed."""

    def ran(seconds: float) -> Values:
        return {"curve": [[0, 1.0], [10, 2.0]], "seconds": seconds, "test_rewards": [7.0]}

    found = in_equal_time({"few": {0: ran(20.0), 1: ran(50.0)}, "all": {0: ran(40.0), 1: ran(25.0), 2: ran(9.0)}})
    reached = {arm: {seed: values["test_rewards"] for seed, values in seeds.items()} for arm, seeds in found.items()}
    assert reached == {"few": {0: [2.0], 1: [1.5]}, "all": {0: [1.5], 1: [2.0], 2: [2.0]}}
