"""The display of a variant: its cells, symbols and moves agree with each other, and its prompt states the change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import ScriptedPolicy, build_prompt
from msgrpo_hub.games import GAMES, VARIANTS, Game, make_game, stream
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.rollout import play_episodes, replayed_states
from tests.games.reading_player import IDS, LAKE, SNAKE, read_board, read_coordinates, read_grid, read_legend, read_moves

WHOLE = [name for name in VARIANTS if name not in ("coordinates", "grid")]


def visited(game: Game, seed: int) -> Iterator[Any]:
    """The states before each turn of a random episode with some replies without action."""
    state, rng = game.initial_state(stream(seed, "initial_state")), stream(seed, "sampling", 0)
    dynamics = stream(seed, "dynamics", 0)
    while True:
        yield state
        actions = [*(game.safe_actions(state) or game.actions), None]
        after = game.step(state, actions[int(rng.integers(len(actions)))], dynamics)
        if after.terminated or after.truncated:
            return
        state = after.state


@pytest.mark.parametrize("id", [id for id in IDS if not id.endswith(("coordinates", "grid"))])
@given(seed=st.integers(0, 2**63 - 1))
@settings(max_examples=2)
def test_every_listed_cell_holds_its_symbol_in_the_grid_and_every_symbol_is_listed(id: str, seed: int) -> None:
    game = make_game(id)
    legend = read_legend(build_prompt(game, game.initial_state(stream(seed, "initial_state"))).system)
    assert legend == dict(game.symbols)
    symbols = {name: symbol for symbol, name in legend.items()}
    for state in visited(game, seed):
        text = game.observe(state)
        grid = read_grid(text)
        drawn = {}
        assert grid == [list(row) for row in game.grid(state)]
        for label, cells in read_coordinates(text).items():
            name = label.lower() if label.lower() in symbols else label.lower().rstrip("s")
            if label != "Turns left":
                drawn |= dict.fromkeys(cells, symbols[name])
        everything = {(r, c): s for r, row in enumerate(grid) for c, s in enumerate(row)}
        free = symbols.get("ice", symbols.get("free"))
        assert {cell: symbol for cell, symbol in everything.items() if symbol != free} == drawn


@pytest.mark.parametrize("variant", WHOLE)
@pytest.mark.parametrize("game_id", [LAKE, "FrozenLake-Exactly8-v1", "Snake-Solo-v1", "Snake-Standard-v1"])
def test_an_action_moves_the_player_on_the_shown_board_as_the_shown_rules_say(game_id: str, variant: str) -> None:
    game = make_game(f"{game_id}:{variant}")
    moved = 0
    for seed in range(4):
        for state in visited(game, seed):
            prompt = build_prompt(game, state)
            moves, board = read_moves(prompt.system), read_board(prompt.system, prompt.observation)
            assert set(moves) == set(game.actions)
            [(r, c)] = board.get("you") or board["your head"]
            for action, (down, right) in moves.items():
                after = game.step(state, action, np.random.default_rng(0))
                there = (r + down, c + right)
                alive = "Snake" not in game_id or after.state.alive
                inside = 0 <= there[0] < game.rows and 0 <= there[1] < game.rows
                seen = read_board(prompt.system, game.observe(after.state))
                [now] = seen.get("you") or seen["your head"]
                assert now == (there if inside and alive else (r, c))
                moved += now == there
    assert moved > 20


@pytest.mark.parametrize("game_id", [LAKE, SNAKE])
def test_a_reflected_board_is_a_mirror_image_and_a_rotated_one_a_quarter_turn(game_id: str) -> None:
    plain = make_game(game_id)
    for state in visited(plain, 11):
        board = np.array([list(row) for row in plain.grid(state)])
        for variant, image in (("reflected", np.fliplr(board)), ("rotated", np.rot90(board))):
            shown = np.array([list(row) for row in make_game(f"{game_id}:{variant}").grid(state)])
            assert (shown == image).all()


def test_the_body_of_a_snake_is_told_from_its_head_on_and_other_cells_in_reading_order() -> None:
    game, body, checked = make_game(f"{SNAKE}:reflected"), re.compile("Your body: (.*)"), 0
    for seed in range(12):
        for episode in play_episodes(game, ScriptedPolicy(SCRIPTED["greedy"]), [(seed, 0)]):
            for state in replayed_states(game, episode)[:-1]:
                told = read_coordinates(game.observe(state))
                assert told["Your body"] == [(r, game.rows - 1 - c) for r, c in state.snake[1:]]
                assert told["Apples"] == sorted(told["Apples"])
                checked += len(state.snake) > 3 and body.search(game.observe(state)) is not None
    assert checked > 20


def system_of(id: str) -> str:
    game = make_game(id)
    return build_prompt(game, game.initial_state(np.random.default_rng(0))).system


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("Snake-PoisonApple-v1", "An apple gives -1 and makes you one cell longer; then it appears elsewhere."),
        ("Snake-DoubleApple-v1", "An apple gives 2 and makes you one cell longer; then it appears elsewhere."),
        ("Snake-Fire-v1", "A fire gives -1; then it appears elsewhere."),
        ("Snake-Fire-v1", "F is fire"),
        ("FrozenLake-Exactly8-v1", "The goal gives 1 if you reach it in exactly 8 turns, else 0, and ends the game."),
        (f"{SNAKE}:compass", "North changes the row by -1, South by 1; West changes the column by -1, East by 1."),
        (f"{SNAKE}:compass", "[Available Actions]\nWest, South, East, North\n"),
        (f"{LAKE}:permuted-actions", "Here Down moves to the column on the left, Right to the row below"),
        (f"{LAKE}:other-symbols", "In the grid _ is ice, P is you, H is hole, E is goal."),
        ("Snake-PoisonApple-v1:compass", "An apple gives -1 and makes you one cell longer"),
    ],
)
def test_the_changed_instruction_really_stands_in_the_prompt(id: str, words: str) -> None:
    assert words in system_of(id)
    plain = LAKE if "Lake" in id else SNAKE
    assert words not in system_of(plain)


@pytest.mark.parametrize("game_id", [game_id for game_id in GAMES if game_id != "Snake-DownHill-v1"])
def test_no_word_of_the_plain_rules_is_left_where_it_would_be_false(game_id: str) -> None:
    assert not re.search(r"\b(Up|Down|Left|Right)\b", system_of(f"{game_id}:compass"))
    assert "change the row by one" not in system_of(f"{game_id}:permuted-actions")
    old = [f"{symbol} is {name}" for symbol, name in make_game(game_id).symbols.items()]
    assert not [legend for legend in old if legend in system_of(f"{game_id}:other-symbols")]
    assert system_of(f"{game_id}:reflected") == system_of(f"{game_id}:rotated") == system_of(game_id)
