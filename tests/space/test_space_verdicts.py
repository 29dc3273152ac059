"""Verdicts of the Rules tab on agents whose play under the three prompts is given."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import replay
from verdicts import Arms, Asked, Expected, judged

from msgrpo_hub.episode import Episode
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.players import make_player
from msgrpo_hub.rollout import play_episodes

LAKE, SOLO = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
READER = Asked(expected="less", reads=True, renamed=False, changed=True)
RENAMED = Asked(expected="same", reads=True, renamed=True, changed=True)


@cache
def played(player: str) -> list[Episode]:
    """The same 40 starts of a snake; `unparsed` only gives replies without an action."""
    game = make_game(SOLO)
    if player == "unparsed":
        return [replay.play_replies(game, number, [{"text": "North!"}] * 20) for number in range(40)]
    return play_episodes(game, make_player(player), [(episode_seed(SOLO, "test", n), 0) for n in range(40)])


def judge(asked: Asked, own: list[Episode], control: list[Episode], changed: list[Episode]) -> dict[str, Any]:
    return judged(asked, Arms(own=own, control=control, changed=changed))


def test_an_agent_that_loses_as_much_to_neutral_words_as_to_poison_has_no_verdict() -> None:
    found = judge(READER, played("greedy"), played("random-safe"), played("random-safe"))
    assert found["verdict"] == "no difference shown"
    assert found["disturbance"]["high"] < 0  # any sentence costs it apples
    assert found["difference"]["low"] < 0 < found["difference"]["high"]
    assert judge(READER, played("greedy"), played("greedy"), played("random"))["verdict"] == "follows the words"


@pytest.mark.parametrize("asked", [READER, RENAMED])
def test_unparsed_replies_are_no_habit(asked: Asked) -> None:
    found = judge(asked, played("greedy"), played("greedy"), played("unparsed"))
    assert (found["changed"]["unreadable"], found["verdict"]) == (1.0, "unparsed")
    assert judge(asked, *[played("unparsed")] * 3)["verdict"] == "does not play"


def test_unchanged_words_and_few_starts_have_no_verdict() -> None:
    same = Asked(expected="same", reads=True, renamed=False, changed=False)
    assert judge(same, *[played("greedy")] * 3)["verdict"] == "the same words"
    assert judge(READER, *[played("greedy")[:29]] * 3)["verdict"] == "too few"


@cache
def walk(reaches_the_goal: int) -> Episode:
    """An episode on a lake that ends on the goal, or runs out of turns."""
    game = make_game(LAKE)
    if not reaches_the_goal:
        return replay.play_replies(game, 3, [{"text": "<action>Up</action>"}] * 8)
    return play_episodes(game, make_player("optimal"), [(episode_seed(LAKE, "test", 3), 0)])[0]


def walks(goals: Sequence[int]) -> list[Episode]:
    return [walk(each) for each in goals]


@pytest.mark.parametrize(
    ("expected", "renamed", "own", "control", "changed", "word"),
    [
        ("less", False, [1] * 60, [1] * 60, [0] * 60, "follows the words"),
        ("less", False, [1] * 60, [1] * 60, [1] * 48 + [0] * 12, "follows in part"),
        ("less", False, [1] * 30, [1, 0] * 15, [0, 1, 0] * 10, "no difference shown"),
        ("less", False, [1] * 60, [1, 0] * 30, [1] * 60, "keeps its habit"),
        ("same", False, [1] * 60, [1] * 60, [1] * 60, "no difference shown"),
        ("same", True, [1] * 60, [1] * 60, [1] * 60, "follows the words"),
        ("same", True, [1] * 60, [1] * 60, [0] * 60, "keeps its habit"),
        ("same", True, [1] * 60, [1] * 60, [1, 0] * 30, "no difference shown"),
        ("same", False, [1] * 60, [1] * 60, [1] * 30 + [0] * 30, "disturbed by the words"),
        ("same", False, [1] * 60, [1, 0] * 30, [1] * 60, "no difference shown"),  # its own words do as well
        ("same", False, [1] * 60, [1] * 60, [1] * 40 + [1, 1, 1, 1, 0] * 4, "no difference shown"),  # worse than one sentence
        ("less", False, [1] * 60, [0] * 60, [0] * 60, "disturbed by any words"),
        ("same", False, [1, 0] * 30, [1, 0] * 30, [1] * 60, "helped by the words"),  # better than with its own or neutral words
        ("less", False, [0] * 60, [0] * 60, [0] * 60, "nothing to see"),  # it hardly ever collects
    ],
)
def test_the_verdict_says_what_the_interval_says(
    expected: Expected, renamed: bool, own: list[int], control: list[int], changed: list[int], word: str
) -> None:
    asked = Asked(expected=expected, reads=True, renamed=renamed, changed=True)
    assert judge(asked, walks(own), walks(control), walks(changed))["verdict"] == word
