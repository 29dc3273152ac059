"""Other words for the same game: only the words change."""

from __future__ import annotations

import json
from typing import Any

import players
import pytest
import rules
from verdicts import pickups

from msgrpo_hub.agent import Prompt, build_prompt
from msgrpo_hub.errors import UserError
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
    for game_id in (SOLO, "Snake-DoubleApple-v1"):
        assert "An apple gives -1 and" in prompt(game_id, "poisoned").system
    [episode] = play_episodes(told, make_player("greedy"), [(episode_seed(SOLO, "test", 0), 0)])
    assert pickups(episode) > 0


@pytest.mark.parametrize("preset", ["new names", "swapped names"])
@pytest.mark.parametrize("game_id", [LAKE, SOLO])
def test_renamed_actions_do_what_the_rules_say(game_id: str, preset: str) -> None:
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


def control(instructions: str, lines: str, names: list[str]) -> Any:
    return rules.control_game(SOLO, rules.reworded_game(SOLO, instructions, lines, names))


def test_the_control_changes_as_much_in_the_same_places_and_says_nothing() -> None:
    own, weather = rules.words(SOLO), "The weather is nice today."
    poisoned = control(*[rules.words(SOLO, "poisoned")[name] for name in ("instructions", "rules", "names")])
    assert poisoned.instructions == f"You steer a snake. {weather} {weather}"
    assert poisoned.rules == make_game(SOLO).rules
    renamed = control(own["instructions"], own["rules"], ["West", "South", "East", "North"])
    assert (renamed.instructions, renamed.actions) == (own["instructions"], make_game(SOLO).actions)
    assert renamed.rules == make_game(f"{SOLO}:irrelevant-sentence").rules
    longer = control(own["instructions"], own["rules"] + "\n" + "x" * 80, [""] * 4)
    assert longer.rules.count(weather) == 3


def test_told_about_the_weather_an_agent_is_compared_with_the_weather() -> None:
    own, weather = rules.words(SOLO), "The weather is nice today."
    for told in (weather, f"{own['instructions']} {weather}"):
        assert control(told, own["rules"], own["names"]).instructions == told
        assert control(told, own["rules"], own["names"]).rules == make_game(SOLO).rules


def test_the_page_opens_with_an_adapter_that_reads_of_the_trap_beside_one_that_does_not() -> None:
    plain, reader = (players.bundled("rules")[name] for name in rules.OPENING_PLAYERS)
    assert plain["verdict"] != "follows the words" == reader["verdict"]


@pytest.mark.parametrize("preset", ["poisoned", "other words", "new names"])
def test_greedy_which_reads_nothing_gets_no_verdict_about_reading(preset: str) -> None:
    words = rules.words(LAKE, preset)
    given = (words["instructions"], words["rules"], words["names"], words["expected"])
    *_, found = rules.change_rules(LAKE, 0, "greedy", *given, episodes=30)
    assert found["verdict"] == "does not read"
    assert found["own"] == found["control"] == found["changed"]


@pytest.mark.parametrize("player", rules.OPENING_PLAYERS)
def test_a_bundled_result_is_the_answer_to_what_the_page_asks_first(player: str) -> None:
    asked, found = rules.asked_first(), players.bundled("rules")[player]
    assert found["episodes"] == found["wanted"] == asked["episodes"]
    assert found["film"]["players"][0]["game"]["title"] == asked["game"]
    assert all(line in found["told"] for line in [asked["instructions"], *asked["rules"].splitlines()])


def test_two_players_are_shown_in_the_same_new_words_and_one_with_and_without_them() -> None:
    answers = players.bundled("rules")
    pair, [name, *_] = rules.told_film(answers), rules.OPENING_PLAYERS
    assert [each["player"] for each in pair["players"]] == [*rules.OPENING_PLAYERS]
    assert {each["system"] for each in pair["players"]} == {answers[name]["told"]}
    assert rules.told_film({name: answers[name]}) == answers[name]["film"]


@pytest.mark.long
@pytest.mark.parametrize("player", rules.OPENING_PLAYERS)
def test_computed_anew_the_bundled_result_is_the_same(player: str) -> None:
    *_, found = rules.change_rules(player=player, **rules.asked_first())
    assert json.loads(json.dumps(found)) == players.bundled("rules")[player]
