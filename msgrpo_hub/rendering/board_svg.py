"""Boards as SVG, in units of one cell: the ground, the pieces that appear and disappear, and the moving bodies.

Any game is drawn from its grid and its symbols alone. A grid does not have the order of a snake's cells, so bodies are
drawn from the game's scenes (see `games.game`): a dash that slides along the path of the head. Variants are drawn as players
see them: mirrored, turned, or with other symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import atan2, degrees
from typing import Any

from msgrpo_hub.games import Game
from msgrpo_hub.games.board import Cell
from msgrpo_hub.games.game import Posture, Scene, has_scene
from msgrpo_hub.games.variants import display_symbol
from msgrpo_hub.rendering.board_art import FACES, PENGUIN, shape
from msgrpo_hub.rendering.timeline import Timeline, spans

FREE, PLAYER = ".", "@"
"""The grid symbols of a free cell and of the player, in every game."""

_POSTURES: dict[Posture, str] = {
    "": "scale(1);opacity:1",
    "goal": "translateX(-.14px) scale(.9);opacity:1",
    "hole": "scale(.55);opacity:.8",
}
"""How a single player is drawn: it sinks in a hole, and stands beside the flag at the goal."""


def definitions(game: Game) -> str:
    """The shapes that `board` uses, shared by all boards of a game."""
    bare = {display_symbol(game, symbol) for symbol in (FREE, PLAYER)}
    named = {symbol: name for symbol, name in pictures(game).items() if symbol not in bare}
    shapes = "".join(f'<g id="{_id(symbol)}">{shape(name, symbol)}</g>' for symbol, name in named.items())
    field = f'<clipPath id="field"><rect width="{game.columns}" height="{game.rows}" rx=".3"/></clipPath>'
    return f"<defs>{shapes}{FACES}{field}</defs>"


def board(game: Game, states: Sequence[Any], actions: Sequence[str | None], timeline: Timeline) -> str:
    """One episode's board, `game.columns` units wide. `actions[t]` leads from `states[t]` to `states[t + 1]`."""
    scenes = [game.scene(state) for state in states] if has_scene(game) else []
    ground = _ground(game, icy(game)) + _pieces(game, states, timeline)
    if scenes and scenes[0].bodies:
        return ground + _snakes(game, scenes, actions, timeline)
    return ground + _walker(game, states, scenes, timeline)


def icy(game: Game) -> bool:
    """Whether the ground of a game's boards is ice."""
    return game.symbols.get(display_symbol(game, FREE)) == "ice"


def pictures(game: Game) -> Mapping[str, str]:
    """Symbol → name of its drawing."""
    return game.pictures if has_scene(game) else game.symbols


def moves(game: Game) -> Mapping[str, Cell]:
    """The direction of each action on the board, as (rows, columns); empty for a game without directions."""
    return game.directions if has_scene(game) else {}


def still_grid(game: Game, state: Any) -> list[str]:
    """The grid without the moving bodies: the cell under a single player, and free cells under a body."""
    grid = game.grid(state)
    if not has_scene(game):
        return grid
    scene, free = game.scene(state), display_symbol(game, FREE)
    under = {cell: free for body in scene.bodies for cell in body.cells} or {scene.player: scene.under}
    return ["".join(under.get((r, c), symbol) for c, symbol in enumerate(row)) for r, row in enumerate(grid)]


def _ground(game: Game, icy: bool) -> str:
    cells = [(row, column) for row in range(game.rows) for column in range(game.columns)]
    if icy:
        ice = "".join(
            f'<rect class="ice" x="{c + 0.04:.2f}" y="{r + 0.04:.2f}" width=".92" height=".92" rx=".14"/>' for r, c in cells
        )
        gleams = "".join(
            f"M{c + 0.18:.2f} {r + 0.34:.2f}l.16-.16m-.06.26l.26-.26" for r, c in cells if (3 * r + 5 * c) % 7 in (1, 4)
        )
        return f'{ice}<path class="gleam" d="{gleams}"/>'
    dark = "".join(f"M{c} {r}h1v1h-1z" for r, c in cells if (r + c) % 2)
    field = f'<rect class="field" width="{game.columns}" height="{game.rows}" rx=".3"/>'
    return f'{field}<path class="check" d="{dark}" clip-path="url(#field)"/>'


def _pieces(game: Game, states: Sequence[Any], timeline: Timeline) -> str:
    """The pieces on the ground."""
    grids = [still_grid(game, state) for state in states]
    free, player = display_symbol(game, FREE), display_symbol(game, PLAYER)
    drawn = []
    for row in range(game.rows):
        for column in range(game.columns):
            seen = [grid[row][column] for grid in grids]
            under = next((symbol for symbol in seen if symbol != player), free)  # what the grid shows at other times
            seen = [under if symbol == player else symbol for symbol in seen]
            for symbol in sorted(set(seen) - {free}):
                for span in spans([here == symbol for here in seen]):
                    drawn.append(_use(symbol, (row, column), timeline.shown(*span)))
    return "".join(drawn)


def _use(symbol: str, cell: Cell, name: str) -> str:
    return f'<use href="#{_id(symbol)}" x="{cell[1] + 0.5}" y="{cell[0] + 0.5}"{_class(name)}/>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _id(symbol: str) -> str:
    return f"s{ord(symbol)}"


def _at(cell: Cell, more: str = "") -> str:
    return f"transform:translate({cell[1] + 0.5:g}px,{cell[0] + 0.5:g}px){more}"


def _walker(game: Game, states: Sequence[Any], scenes: Sequence[Scene], timeline: Timeline) -> str:
    """A single player that glides from cell to cell; empty for a game whose grid has no player."""
    symbol = display_symbol(game, PLAYER)
    places: list[Cell | None] = [scene.player for scene in scenes] or [_find(game.grid(state), symbol) for state in states]
    postures = [scene.posture for scene in scenes] or [""] * len(states)
    stands = [_at(place, f" {_POSTURES[posture]}") for place, posture in zip(places, postures, strict=True) if place]
    return f'<g class="{timeline.gliding(stands)}">{PENGUIN}</g>' if len(stands) == len(states) else ""


def _find(grid: Sequence[str], symbol: str) -> Cell | None:
    return next(((row, line.index(symbol)) for row, line in enumerate(grid) if symbol in line), None)


def _snakes(game: Game, scenes: Sequence[Scene], actions: Sequence[str | None], timeline: Timeline) -> str:
    """Every body, the player's on top."""
    drawn = ""
    for who, last in reversed(list(enumerate(scenes[-1].bodies))):
        hit = moves(game)[actions[-1]] if not (who or last.alive) and actions[-1] is not None else None
        bodies = [scene.bodies[who].cells for scene in scenes]
        drawn += _snake(bodies, "opponent" if who else "you", last.alive, hit, timeline)
    return drawn


def _snake(bodies: Sequence[Sequence[Cell]], who: str, alive: bool, final: Cell | None, timeline: Timeline) -> str:
    """A snake: its body is the last part of its head's path, and its head faces its last move.

    `final` is the move that killed the snake: the head leans towards what it hit.
    """
    path, heads = _path(bodies)
    tails = [head - (len(body) - 1) for head, body in zip(heads, bodies, strict=True)]
    windows = [
        f"stroke-dasharray:{len(b) - 1}px 999px;stroke-dashoffset:{-tail}px" for b, tail in zip(bodies, tails, strict=True)
    ]
    # One dash, then a gap longer than any path. A path of length zero is not drawn, hence the last .001.
    line = " ".join(f"{column + 0.5:g} {row + 0.5:g}" for row, column in path)
    sliding = timeline.gliding(windows)
    body = "".join(f'<path class="{part} {sliding}" d="M{line}h.001"/>' for part in (f"body {who}", "belly"))
    end = len(bodies) - 1
    awake = f'<g{_class(timeline.shown(0, None if alive else end))}><use href="#awake"/></g>'
    dead = "" if alive else f'<g{_class(timeline.shown(end, None))}><use href="#dead"/></g>'
    looks = timeline.gliding(_looks(bodies, final))
    return f'{body}<g class="{looks}"><circle class="head {who}" r=".43"/>{awake}{dead}</g>'


def _path(bodies: Sequence[Sequence[Cell]]) -> tuple[list[Cell], list[int]]:
    """The cells that the snake goes through, from the tail of the first state, and the index of the head in each state."""
    path = list(reversed(bodies[0]))
    heads = [len(path) - 1]
    for before, after in pairwise(bodies):
        if after[0] != before[0]:
            path.append(after[0])
        heads.append(len(path) - 1)
    return path, heads


def _looks(bodies: Sequence[Sequence[Cell]], final: Cell | None) -> list[str]:
    """The head's position and angle in each state; it turns the short way round."""
    ways = [(after[0][0] - before[0][0], after[0][1] - before[0][1]) for before, after in pairwise(bodies)]
    if final is not None:
        ways[-1] = final
    first = next((move for move in ways if move != (0, 0)), (0, 1))
    angle = degrees(atan2(*first))
    angles = [angle]
    for move in ways:
        if move != (0, 0):
            angle += (degrees(atan2(*move)) - angle + 180) % 360 - 180
        angles.append(angle)
    lean = [0.0] * len(ways) + [0.3 if final is not None else 0.0]
    return [
        _at(body[0], f" rotate({angle:g}deg) translateX({shift:g}px)")
        for body, angle, shift in zip(bodies, angles, lean, strict=True)
    ]
