"""Marks, axes, bars and boards of the report are where their figures are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.games import GAMES, VARIANTS, Game, make_game
from msgrpo_hub.games.variants import Variant
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rendering.board_svg import moves
from msgrpo_hub.rendering.replay_data import _kept, state_data
from msgrpo_hub.rendering.report_episodes import collect_replays, telling_seeds, worst_episodes
from msgrpo_hub.rendering.report_plots import _scale, endings, first_mistakes, forest, number, replies
from msgrpo_hub.rollout import play_episodes, replayed_states
from tests.rendering.pages import of
from tests.rendering.reported import ADAPTER, BASE, HOSTILE, LAKE, MIRRORED

# ---- plots


def test_marks_lie_where_their_figures_are(report_results: list[Result]) -> None:
    plot = forest([of(report_results, BASE), of(report_results, "optimal")], ["base", "optimal"])
    low, high = (float(plot.ticks[end][1].replace("−", "-")) for end in (0, -1))
    reward = of(report_results, BASE).summary["reward"]
    (_, mark, _), _ = plot.rows
    assert mark
    for at, key in ((mark.low, "low"), (mark.at, "mean"), (mark.high, "high")):
        assert at == pytest.approx(100 * (reward[key] - low) / (high - low), abs=0.01)
    assert [place for place, _ in plot.ticks][:: len(plot.ticks) - 1] == [0, 100]


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=9))
def test_an_axis_holds_all_values_between_a_few_ticks(values: list[float]) -> None:
    low, high, step = _scale(values)
    margin = 1e-6 * max(1.0, high - low)
    assert low - margin <= min(values)
    assert max(values) <= high + margin
    assert 2 <= round((high - low) / step) <= 12


@given(st.floats(-1e6, 1e6), st.integers(0, 6))
def test_numbers_have_true_minus_signs_and_no_negative_zero(value: float, decimals: int) -> None:
    text = number(value, decimals)
    assert float(text.replace("−", "-")) == pytest.approx(value, abs=10.0**-decimals)
    assert "-" not in text
    assert not text.startswith("−") or float(text[1:]) > 0


def test_stacked_bars_are_full_and_count_every_episode_and_every_reply(report_results: list[Result]) -> None:
    for result in report_results:
        for segments, total in ((endings(result), 30), (replies(result), result.summary["steps"])):
            assert sum(segment.count for segment in segments) == total
            assert sum(segment.width for segment in segments) == pytest.approx(100, abs=0.1)
            ends = [segment.start + segment.width for segment in segments]
            assert [segment.start for segment in segments[1:]] == pytest.approx(ends[:-1], abs=0.02)
    kinds = {segment.kind: segment.count for segment in replies(of(report_results, BASE))}
    steps = [step for episode in of(report_results, BASE).episodes for step in episode.steps]
    assert kinds["unparsed"] == sum(step.completion.text == HOSTILE for step in steps) > 0
    assert kinds["truncated"] == sum(step.completion.finish == "length" for step in steps) > 0
    assert kinds["illegal"] == sum(step.action is not None and not step.legal for step in steps) > 0


def test_first_mistakes_and_their_absence_are_all_episodes(report_results: list[Result]) -> None:
    base, optimal = first_mistakes([of(report_results, BASE), of(report_results, "optimal")], 15)
    assert base
    assert optimal
    assert optimal.without == "100 %"
    shares = [int(words.split(": ")[1].rstrip(" %")) for _, _, words in base.columns]
    assert sum(shares) + int(base.without.rstrip(" %")) == pytest.approx(100, abs=8)  # 16 rounded shares
    assert max(height for _, height, _ in base.columns) == 100
    assert first_mistakes([of(report_results, BASE, MIRRORED)], 20) == [None]


# ---- replays


def test_worst_episodes_are_those_of_largest_regret_or_of_lowest_reward(report_results: list[Result]) -> None:
    base, snake = of(report_results, BASE), of(report_results, BASE, MIRRORED)
    regrets = [score.regret or 0 for score in base.scores]
    assert [regrets[position] for position in worst_episodes(base)] == sorted(regrets, reverse=True)[:3]
    rewards = [score.reward for score in snake.scores]
    assert [rewards[position] for position in worst_episodes(snake)] == sorted(rewards)[:3]
    assert worst_episodes(of(report_results, "optimal")) == []


def test_the_first_seed_is_one_on_which_players_differ_most(report_results: list[Result]) -> None:
    players = [of(report_results, name, MIRRORED) for name in (BASE, ADAPTER, "random")]
    spread = {
        episode.seed: np.ptp([player.scores[position].reward for player in players])
        for position, episode in enumerate(players[0].episodes)
    }
    seeds = telling_seeds(players)
    assert spread[seeds[0]] == max(spread.values())
    assert len(seeds) == len(set(seeds)) == 20
    assert players[0].episodes[worst_episodes(players[0])[0]].seed in seeds


def test_replays_keep_to_their_budget_in_turn(report_results: list[Result]) -> None:
    tasks = [[r for r in report_results if r.task == task] for task in (LAKE, MIRRORED)]
    budget = 150_000
    some = collect_replays(tasks, [task[0] for task in tasks], lambda result: result.player, budget=budget)
    size = sum(len(json.dumps(seed, ensure_ascii=False).encode()) for task in some["tasks"] for seed in task["seeds"])
    assert budget / 2 < size <= budget
    lake, snake = (len(task["seeds"]) for task in some["tasks"])
    assert 0 <= lake - snake <= 1


def test_a_long_reply_keeps_its_beginning_and_its_end() -> None:
    kept = _kept("a" + "x" * 10_000 + "z")
    assert kept.startswith("ax")
    assert kept.endswith("xz")
    assert "[… 7002 characters left out …]" in kept
    assert _kept("x" * 3_000) == "x" * 3_000


def variants_of(game_id: str) -> list[str]:
    names = [game_id]
    for variant in VARIANTS:
        try:
            names.append(make_game(f"{game_id}:{variant}").id)
        except UserError:
            continue  # a variant that this game does not have
    return names


def drawn(game: Game, shown: dict[str, Any]) -> list[str]:
    """The grid that a drawing shows: pieces on empty ground, then those who move over it."""

    def glyph(symbol: str) -> str:
        return game.glyphs.get(symbol, symbol) if isinstance(game, Variant) else symbol

    cells = [glyph(".")] * game.rows * game.columns
    for symbol, places in shown["pieces"].items():
        for place in places:
            cells[place] = symbol
    for body, (head, rest) in reversed(list(zip(shown.get("bodies", []), ("@#", "Xx"), strict=False))):
        for place in body[1:]:
            cells[place] = glyph(rest)
        cells[body[0]] = glyph(head)
    if "walker" in shown:
        cells[shown["walker"]] = glyph("@")
    return ["".join(cells[row * game.columns : (row + 1) * game.columns]) for row in range(game.rows)]


@pytest.mark.parametrize("game_id", [variant for game_id in GAMES for variant in variants_of(game_id)])
def test_every_game_and_variant_is_drawn_as_it_was_shown_and_moves_go_where_they_point(game_id: str) -> None:
    game = make_game(game_id)
    (episode,) = play_episodes(game, ScriptedPolicy(choose_random), [(7, 0)])
    states = replayed_states(game, episode)
    shown = [state_data(game, state) for state in states]
    assert [drawn(game, state) for state in shown] == [game.grid(state) for state in states]
    for before, after, step in zip(shown, shown[1:], episode.steps, strict=False):
        if step.legal and "Slippery-v1" not in game_id.replace("NotSlippery", "") and after.get("alive", [True])[0]:
            here, there = (state["walker"] if "walker" in state else state["bodies"][0][0] for state in (before, after))
            rows, columns = moves(game)[step.action or ""]
            assert there - here == rows * game.columns + columns


def test_a_game_of_another_package_is_drawn_from_its_grid_alone(corridor: str, report_results: list[Result]) -> None:
    game = make_game(corridor)
    assert state_data(game, 1) == {"pieces": {"w": [0, 1, 2, 6, 8], "<": [4], "?": [7]}}
    assert moves(game) == {}
    assert of(report_results, BASE, corridor).summary["luck_adjusted"] is None
