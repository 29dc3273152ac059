"""Other words for the same game: only the words change, and the verdict says no more than the episodes do."""

from __future__ import annotations

import pytest
import rules
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.agent import Prompt, build_prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import compare_paired
from msgrpo_hub.games import GAMES, episode_seed, make_game, stream
from msgrpo_hub.players import make_player
from msgrpo_hub.rollout import play_episodes

LAKE, SOLO = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"


def prompt(game_id: str, preset: str) -> Prompt:
    words = rules.words(game_id, preset)
    told = rules.reworded_game(game_id, words["instructions"], words["rules"], words["names"])
    return build_prompt(told, told.initial_state(stream(1, "initial_state")))


@pytest.mark.parametrize("game_id", GAMES)
def test_as_written_is_to_the_letter_what_the_game_says(game_id: str) -> None:
    game = make_game(game_id)
    own = build_prompt(game, game.initial_state(stream(1, "initial_state")))
    assert prompt(game_id, "as written").messages == own.messages


def test_poisoned_apples_are_said_to_take_and_still_give() -> None:
    told = rules.reworded_game(SOLO, **{k: v for k, v in rules.words(SOLO, "poisoned").items() if k != "expected"})
    assert "An apple gives -1" in prompt(SOLO, "poisoned").system
    [episode] = play_episodes(told, make_player("greedy"), [(episode_seed(SOLO, "test", 0), 0)])
    assert rules.pickups(episode) > 0


@pytest.mark.parametrize("preset", ["new names", "swapped names"])
@pytest.mark.parametrize("game_id", [LAKE, SOLO])
def test_renamed_actions_do_what_the_rules_say(game_id: str, preset: str) -> None:
    """A player that takes the new names from the rules alone plays the very episode of the old ones."""
    words = rules.words(game_id, preset)
    told = rules.reworded_game(game_id, words["instructions"], words["rules"], words["names"])
    episode_keys = [(episode_seed(game_id, "test", 0), 0)]
    [one], [other] = (play_episodes(game, make_player("greedy"), episode_keys) for game in (make_game(game_id), told))
    names = dict(zip(make_game(game_id).actions, words["names"], strict=True))
    assert [names[str(step.action)] for step in one.steps] == [step.action for step in other.steps]
    assert [step.reward for step in one.steps] == [step.reward for step in other.steps]
    ways = {"Left": "the column by -1", "Down": "the row by 1", "Right": "the column by 1", "Up": "the row by -1"}
    for action, name in names.items():
        assert f"{name} changes {ways[action]}" in prompt(game_id, preset).system


@pytest.mark.parametrize(
    ("instructions", "text", "names", "said"),
    [
        ("x" * 4_001, "", [""] * 4, "expected at most 4,000"),
        ("", " \n ", [""] * 4, "empty instructions and rules"),
        ("a", "", ["North"], "expected 4 names"),
        ("a", "", "West", "expected 4 names"),
        ("a", "", ["Up", "Up", "b", "c"], "four different"),
        ("a", "", ["up", "", "", ""], "four different"),
        ("a", "", ["<b>", "", "", ""], "expected a letter"),
        ("a", "", ["x" * 21, "", "", ""], "expected a letter"),
    ],
)
def test_words_that_cannot_be_told_are_refused(instructions: str, text: str, names: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        rules.reworded_game(LAKE, instructions, text, names)


def test_control_characters_are_left_out_and_lines_are_kept() -> None:
    told = rules.reworded_game(LAKE, "go\x00\x1b[2J on", "one\r\ntwo", ["", "", "", ""])
    assert (told.instructions, told.rules) == ("go[2J on", ("one", "two"))


def judge(expected: rules.Expected, control: list[int], changed: list[int]) -> str:
    return rules.verdict(expected, sum(control) / len(control), compare_paired(control, changed, seed=0))[0]


@pytest.mark.parametrize(
    ("expected", "control", "changed", "word"),
    [
        ("less", [1] * 29, [0] * 29, "too few"),
        ("less", [0] * 60, [0] * 60, "nothing to see"),
        ("less", [1] * 60, [0] * 60, "follows the words"),
        ("less", [1] * 60, [1] * 60, "keeps its habit"),
        ("same", [1] * 60, [1] * 60, "follows the words"),
        ("same", [1] * 60, [0] * 60, "keeps its habit"),
        ("less", [1] * 60, [1] * 48 + [0] * 12, "mostly habit"),
        ("same", [1] * 60, [1] * 48 + [0] * 12, "mostly follows"),
        ("less", [1] * 60, [1, 0] * 30, "follows in part"),
        ("same", [1] * 60, [1, 0] * 30, "follows in part"),
        ("less", [1, 0] * 15, [0, 1, 0] * 10, "cannot tell"),
    ],
)
def test_the_verdict_says_what_the_interval_says(
    expected: rules.Expected, control: list[int], changed: list[int], word: str
) -> None:
    assert judge(expected, control, changed) == word


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=30, max_size=60), st.sampled_from(["less", "same"]))
@settings(deadline=None)
def test_every_outcome_has_a_verdict(pairs: list[tuple[int, int]], expected: rules.Expected) -> None:
    control, changed = [list(each) for each in zip(*pairs, strict=True)]
    assert judge(expected, control, changed)


def test_an_agent_that_reads_is_told_from_one_that_has_a_habit() -> None:
    """Both ways of the same starts are played with the same chance: a player who does not read does just the same."""
    words = rules.words(LAKE, "poisoned")
    given = (words["instructions"], words["rules"], words["names"], words["expected"])
    *_, found = rules.change_rules(LAKE, 0, "optimal", *given, episodes=40)
    assert (found["episodes"], found["verdict"]) == (40, "keeps its habit")
    assert found["film"]["divergence"] is None
    assert "trap" in found["told"]
