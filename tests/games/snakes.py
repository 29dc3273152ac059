"""Snakes on hand-made boards, with dice that show what the test says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from msgrpo_hub.games import Transition
from msgrpo_hub.games.snake import APPLE, Item, Snake, SnakeState

ONE_APPLE = replace(APPLE, count=1)


class Dice:
    """A generator with known rolls: which of its open cells the opponent takes. Items reappear on the first free cells."""

    def __init__(self, *rolls: int) -> None:
        self.rolls, self.sides = list(rolls), list[int]()

    def integers(self, sides: int) -> int:
        self.sides.append(sides)
        return self.rolls.pop(0)

    def permutation(self, count: int) -> Any:
        return np.arange(count)


def play(game: Snake, state: SnakeState, action: str | None, *rolls: int) -> Transition[SnakeState]:
    return game.step(state, action, Dice(*rolls))  # type: ignore[arg-type]


def duel(**changes: Any) -> Snake:
    return replace(Snake("duel", size=5, items=(ONE_APPLE,)), **changes)


def solo(*items: Item, **changes: Any) -> Snake:
    return replace(Snake("solo", size=5, items=items or (ONE_APPLE,), has_opponent=False), **changes)
