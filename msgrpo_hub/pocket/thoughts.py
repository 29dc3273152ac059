"""The built-in base's thoughts about a board, which it writes before an action.

`benchmark.pocket` trains the base on these texts; SFT on a scripted player's actions can use them as targets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgrpo_hub.games.board import Cell, cells_text, neighbour
from msgrpo_hub.games.game import HasScene
from msgrpo_hub.games.snake import Snake


def things(game: HasScene, state: Any) -> dict[Cell, str]:
    """Cell → the name of its content: `your body` becomes `body`, and every part of the opponent is `opponent`."""
    names = {s: "opponent" if name.startswith("opponent") else name.removeprefix("your ") for s, name in game.symbols.items()}
    return {(r, c): names[symbol] for r, row in enumerate(game.grid(state)) for c, symbol in enumerate(row)}


def local_view(game: HasScene, state: Any) -> dict[str, str]:
    """The local view: direction → content of the neighbouring cell."""
    here, what = game.scene(state).player, things(game, state)
    return {action: what.get(neighbour(here, action), "wall") for action in game.actions}


def in_words(view: Mapping[str, str]) -> str:
    """A local view as text, such as `Left wall Down ice Right hole Up wall`."""
    return " ".join(f"{action} {thing}" for action, thing in view.items())


def direction_to(here: Cell, there: Cell) -> str:
    """The direction and distance from one cell to another.

    >>> direction_to((3, 1), (1, 2)), direction_to((0, 0), (0, 0))
    ('Right 1 Up 2', 'here')
    """
    down, right = there[0] - here[0], there[1] - here[1]
    parts = [f"{'Right' if right > 0 else 'Left'} {abs(right)}"] if right else []
    parts += [f"{'Down' if down > 0 else 'Up'} {abs(down)}"] if down else []
    return " ".join(parts) or "here"


def nearest(here: Cell, cells: Sequence[Cell]) -> Cell:
    """The nearest cell by steps on an empty board; ties go to the first in reading order."""
    return min(cells, key=lambda cell: (abs(cell[0] - here[0]) + abs(cell[1] - here[1]), cell))


def thought(game: HasScene, state: Any, seen: Mapping[str, str] | None = None) -> str:
    """The thought before an action: the local view, or `seen` in its place, and in Snake the nearest food of any kind."""
    view = in_words(seen or local_view(game, state))
    if not isinstance(game, Snake):
        return view
    food = {cell: item.name for item, cells in zip(game.items, state.items, strict=True) for cell in cells if item.grows}
    if not food:
        return view
    cell = nearest(state.snake[0], list(food))
    return f"{view} nearest {food[cell]} {cells_text([cell])} {direction_to(state.snake[0], cell)}"
