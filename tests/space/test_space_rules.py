"""Other words for the same game: only the words change."""

from __future__ import annotations

import json
from typing import Any

import players
import pytest
import rules
from verdicts import NEUTRAL

from msgrpo_hub.agent import Prompt, build_prompt
from msgrpo_hub.games import GAMES, Variant, episode_seed, make_game, stream
from msgrpo_hub.players import make_player
from msgrpo_hub.rollout import play_episodes

LAKE, SOLO = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"


def told(game_id: str, preset: str) -> Variant:
    words = rules.words(game_id, preset)
    return rules.reworded_game(game_id, words["instructions"], words["rules"], words["names"])


def prompt(game: Any) -> Prompt:
    return build_prompt(game, game.initial_state(stream(1, "initial_state")))


def test_as_written_is_to_the_letter_what_the_game_says() -> None:
    for game_id, game in GAMES.items():
        assert prompt(told(game_id, "as written")).messages == prompt(game).messages


def test_poisoned_apples_are_said_to_take_and_still_give() -> None:
    for game_id in (SOLO, "Snake-DoubleApple-v1"):
        assert "An apple gives -1 and" in prompt(told(game_id, "poisoned")).system
    [episode] = play_episodes(told(SOLO, "poisoned"), make_player("greedy"), [(episode_seed(SOLO, "test", 0), 0)])
    assert episode.reward > 0


@pytest.mark.parametrize("preset", ["new names", "swapped names"])
@pytest.mark.parametrize("game_id", [LAKE, SOLO])
def test_renamed_actions_do_what_the_rules_say(game_id: str, preset: str) -> None:
    own, other = make_game(game_id), told(game_id, preset)
    keys = [(episode_seed(game_id, "test", 0), 0)]
    [one], [two] = (play_episodes(game, make_player("greedy"), keys) for game in (own, other))
    names = dict(zip(own.actions, rules.words(game_id, preset)["names"], strict=True))
    assert [names[str(step.action)] for step in one.steps] == [step.action for step in two.steps]
    assert [step.reward for step in one.steps] == [step.reward for step in two.steps]
    ways = {"Left": "the column by -1", "Down": "the row by 1", "Right": "the column by 1", "Up": "the row by -1"}
    assert all(f"{name} changes {ways[action]}" in prompt(other).system for action, name in names.items())


def test_control_characters_are_left_out_and_lines_are_kept() -> None:
    game = rules.reworded_game(LAKE, "go\x00\x1b[2J on", "one\r\ntwo", ["", "", "", ""])
    assert (game.instructions, game.rules) == ("go[2J on", ("one", "two"))


def controls(instructions: str, lines: str, names: list[str]) -> list[Any]:
    return list(rules.control_games(SOLO, rules.reworded_game(SOLO, instructions, lines, names)))


def test_the_control_changes_as_much_in_the_same_places_and_says_nothing() -> None:
    own, solo = rules.words(SOLO), make_game(SOLO)
    poisoned = rules.control_games(SOLO, told(SOLO, "poisoned"))
    renamed = controls(own["instructions"], own["rules"], ["West", "South", "East", "North"])
    longer = controls(own["instructions"], own["rules"] + "\n" + "x" * 80, [""] * 4)
    for poison, names, lines, sentence in zip(poisoned, renamed, longer, NEUTRAL, strict=True):
        assert poison.instructions == f"You steer a snake. {sentence} {sentence}"
        assert poison.rules == solo.rules
        assert (names.instructions, names.actions) == (solo.instructions, solo.actions)
        assert names.rules == (*solo.rules[:-1], sentence, solo.rules[-1])
        assert lines.rules.count(sentence) in (2, 3)
    assert controls(NEUTRAL[0], own["rules"], own["names"])[0].instructions == NEUTRAL[0]  # a visitor's own words


MEANINGLESS = """
Bread is baked early. | Some birds sing before sunrise. | This sentence is short. | Seven is a prime number. | Blue is a colour.
The weather is nice today. | The tea is still warm. | Music was playing next door. | Cats sleep most of the day. | Rain fell.
"""


@pytest.mark.long
def test_a_meaningless_sentence_has_a_verdict_at_most_once_in_twenty() -> None:
    own, sentences = rules.words(LAKE), [each.strip() for each in MEANINGLESS.strip().replace("\n", "|").split("|")]
    places = [{"instructions": f"{own['instructions']} {each}"} for each in sentences]
    places += [{"rules": f"{own['rules']}\n{each}"} for each in sentences]
    asked = ({"game": LAKE, "seed": 0, "player": "lake", **own, **place, "episodes": 40} for place in places)
    found = [list(rules.change_rules(**each))[-1]["verdict"] for each in asked]
    assert found.count("no difference shown") >= 19, found


@pytest.mark.parametrize("player", rules.OPENING_PLAYERS)
def test_a_bundled_result_is_the_answer_to_what_the_page_asks_first(player: str) -> None:
    asked, found = rules.ASKED_FIRST, players.bundled("rules")[player]
    assert found["episodes"] == found["wanted"] == asked["episodes"]
    assert found["film"]["players"][0]["game"]["title"] == asked["game"]
    assert all(line in found["told"] for line in [asked["instructions"], *asked["rules"].splitlines()])
    assert not any(step["best"] for step in found["film"]["players"][1]["steps"])  # told that the goal is a trap
    assert (found["verdict"] == "follows the words") == (player == "lake-trap")


@pytest.mark.long
@pytest.mark.parametrize("player", rules.OPENING_PLAYERS)
def test_computed_anew_the_bundled_result_is_the_same(player: str) -> None:
    *_, found = rules.change_rules(player=player, **rules.ASKED_FIRST)
    assert json.loads(json.dumps(found)) == players.bundled("rules")[player]
