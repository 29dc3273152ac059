"""The prompt: rules first and the same at every step, then the current observation, then the reply format."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.agent.prompt_formats import THINK_ACTION, request_text, system_text
from msgrpo_hub.games import GAMES, Game, make_game, stream

every_game = pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)


def first_state(game: Game, seed: int = 0) -> object:
    return game.initial_state(stream(seed, "initial_state"))


@every_game
def test_the_system_message_holds_instructions_actions_and_rules_in_this_order(game: Game) -> None:
    lines = build_prompt(game, first_state(game)).system.split("\n")
    assert lines[:5] == ["[Instructions]", game.instructions, "[Available Actions]", "Left, Down, Right, Up", "[Rules]"]
    assert tuple(lines[5:]) == game.rules


@every_game
def test_the_user_message_is_the_current_observation_and_then_the_reply_format(game: Game) -> None:
    state = first_state(game)
    request = request_text(THINK_ACTION.request, game.actions)
    assert build_prompt(game, state).user == f"Current Observation:\n{game.observe(state)}\n{request}"


@every_game
def test_the_prompt_s_beginning_is_the_same_for_every_state_of_a_game(game: Game) -> None:
    assert {build_prompt(game, first_state(game, seed)).system for seed in range(20)} == {system_text(game)}


@pytest.mark.parametrize("game", [game for game in GAMES.values() if not getattr(game, "exactly", False)], ids=lambda g: g.id)
def test_states_that_look_alike_give_equal_prompts_so_that_one_reply_can_serve_both(game: Game) -> None:
    state = first_state(game)
    later = replace(state, turn=3)  # type: ignore[type-var]
    assert state != later
    assert build_prompt(game, state) == build_prompt(game, later)
    assert hash(build_prompt(game, state)) == hash(build_prompt(game, later))


def test_the_history_is_nowhere_in_the_prompt() -> None:
    """Two ways round a square of firm ice end in the same place, and in the same prompt."""
    game = replace(make_game("FrozenLake-NotSlippery-v1"), frozen_probability=1.0)  # type: ignore[type-var]
    ends, rng = [], np.random.default_rng(0)
    for way in (("Right", "Down"), ("Down", "Right")):
        state = game.initial_state(stream(0, "initial_state"))
        for action in way:
            state = game.step(state, action, rng).state
        ends.append(build_prompt(game, state).messages)
    assert ends[0] == ends[1]
