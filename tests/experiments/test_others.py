"""Games that arms play in the end: what is compared, and what is drawn."""

from __future__ import annotations

from benchmark.experiments.arms import unit_name
from benchmark.experiments.curves import with_interval
from benchmark.experiments.experiment import Values
from benchmark.experiments.others import draw_others, table_of_others, two_lines
from benchmark.experiments.override_lake.experiment import CONFIG, answer

GAMES = ("FrozenLake-NotSlippery-v1", "FrozenLake-Trap-v1")


def played(*means: float) -> Values:
    """An arm's values, with two episodes of each game around its mean."""
    also = {game: [mean - 0.1, mean + 0.1] for game, mean in zip(GAMES, means, strict=True)}
    return {"curve": [[0, 0.0], [60, means[0]]], "also": also}


ARMS = {"its own words": {0: played(0.5, -0.5), 1: played(0.75, -1.0)}, "a trap": {0: played(0.25, 0.0), 1: played(0.5, 0.0)}}


def test_the_figure_has_a_dot_per_seed_and_one_for_their_mean_in_every_game_of_every_arm() -> None:
    (axis,) = draw_others([("a case", ARMS)], GAMES).axes
    dots = [list(line.get_xdata()) for line in axis.lines if line.get_linestyle() == "None"]
    expected = [[0.5, 0.75], [0.625], [-0.5, -1.0], [-0.75], [0.25, 0.5], [0.375], [0.0, 0.0], [0.0]]
    assert [[round(float(x), 9) for x in of_one] for of_one in dots] == expected
    assert [text.get_text() for text in axis.get_legend().get_texts()] == list(ARMS)
    assert [label.get_text() for label in axis.get_yticklabels()] == [two_lines(game) for game in GAMES]


def test_a_game_whose_scale_would_hide_the_others_gets_each_an_axis_of_its_own() -> None:
    cliff = {arm: {seed: played(values["also"][GAMES[0]][0], -1800.0) for seed, values in of.items()} for arm, of in ARMS.items()}
    axes = draw_others([("a case", cliff)], GAMES).axes
    assert [[label.get_text() for label in axis.get_yticklabels()] for axis in axes] == [[two_lines(game)] for game in GAMES]
    assert axes[0].get_xlim()[0] > -1
    assert [axis.get_legend() is None for axis in axes] == [False, True]


def test_the_table_has_the_means_over_seeds() -> None:
    line = table_of_others(ARMS, GAMES).splitlines()[2]
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        "its own words",
        "2",
        "0.625 (no interval)",
        "-0.750 (no interval)",
    ]


def test_arms_that_train_on_different_games_are_compared_on_the_games_they_all_play() -> None:
    """Their own test rewards, here absurd ones, say nothing about each other."""
    found = {"its own words": (0.9, -0.8), "a trap": (0.7, 0.0), "many words": (0.6, 0.0)}
    case = next(iter(CONFIG["updates"]))
    rows: dict[str, Values] = {
        unit_name(case, arm, seed): {
            "curve": [[0, 0.0], [60, 77.0]],
            "test_rewards": [77.0],
            "also": {game: [trap if "Trap" in game or "KeepAway" in game else goal] for game in CONFIG["also"]},
        }
        for arm, (goal, trap) in found.items()
        for seed in CONFIG["seeds"]
    }
    told = answer(rows)
    first = next(line for line in told.splitlines() if line.startswith("- "))
    assert f"its own words {with_interval([-0.8] * 5)} and {with_interval([-0.8] * 5)}" in first
    assert "a trap 0.000 (no interval) and 0.000" in first
    assert "many words 0.600" in first
    assert "FrozenLake-Trap-v1.** its own words: -0.800. Against it: a trap +0.800 (no interval); many words +0.800" in told
    assert "77" not in told
