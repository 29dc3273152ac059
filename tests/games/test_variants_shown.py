"""The display of a variant: its cells, symbols and moves agree with each other, and its prompt states the change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.games import VARIANTS, Game, make_game, stream
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
