"""Sampled pretraining tasks, and facts about their states for an oracle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmark.pocket.tasks import GameVariant, random_state, random_variant
from msgrpo_hub.games import Game
from msgrpo_hub.games.frozen_lake import LakeState
from msgrpo_hub.games.snake import Snake

Cell = tuple[int, int]
MOVES: dict[str, Cell] = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}


def samples(count: int, seed: int = 0) -> Iterator[tuple[GameVariant, Any, np.random.Generator]]:
    for index in range(count):
        rng = np.random.default_rng((seed, index))
        variant = random_variant(rng)
        yield variant, random_state(variant.game, rng), rng


def after(cell: Cell, action: str) -> Cell:
    return cell[0] + MOVES[action][0], cell[1] + MOVES[action][1]


def me(state: Any) -> Cell:
    return state.player if isinstance(state, LakeState) else state.snake[0]


def at(game: Game, state: Any, cell: Cell) -> str:
    """The content of a cell."""
    if not (0 <= cell[0] < game.rows and 0 <= cell[1] < game.rows):
        return "wall"
    if isinstance(state, LakeState):
        names = {**dict.fromkeys(state.holes, "hole"), (game.rows - 1, game.rows - 1): "goal", state.player: "you"}
        return names.get(cell, "ice")
    assert isinstance(game, Snake)
    items = {c: item.name for item, cells in zip(game.items, state.items, strict=True) for c in cells}
    snakes = {**dict.fromkeys(state.opponent, "opponent"), **dict.fromkeys(state.snake, "body"), state.snake[0]: "head"}
    return {**items, **snakes}.get(cell, "free")


def steps_between(a: Cell, b: Cell) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])
