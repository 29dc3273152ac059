"""Boards as SVG, in units of one cell: the ground, what comes and goes on it, and who moves over it.

Any game is drawn from its grid and its symbols alone. A snake's body has an order that a grid does not tell, so the
snakes are drawn from their state: a dash that slides along the path of the head. Variants are drawn as they are shown to
players: mirrored, turned, or with other symbols.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import atan2, degrees
from typing import Any

from msgrpo_hub.games import Game, Variant, base_game, display_name
from msgrpo_hub.games.board import DIRECTIONS, Cell
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.games.snake import Snake, SnakeState
from msgrpo_hub.rendering.board_art import FACES, PENGUIN, shape
from msgrpo_hub.rendering.timeline import Timeline, spans

_PLAYER = "@"
_SNAKES = "@#Xx"


def definitions(game: Game) -> str:
    """The shapes that `board` uses, once for all boards of a game."""
    bare = {glyph(game, symbol) for symbol in f".{_PLAYER}"}
    named = {symbol: name for symbol, name in names(game).items() if symbol not in bare}
    shapes = "".join(f'<g id="{_id(symbol)}">{shape(name, symbol)}</g>' for symbol, name in named.items())
    field = f'<clipPath id="field"><rect width="{game.size}" height="{game.size}" rx=".3"/></clipPath>'
    return f"<defs>{shapes}{FACES}{field}</defs>"


def board(game: Game, states: Sequence[Any], actions: Sequence[str | None], timeline: Timeline) -> str:
    """One episode's board, `game.size` units wide. `actions[t]` leads from `states[t]` to `states[t + 1]`."""
    snakes = isinstance(states[0], SnakeState)
    ground = _ground(game, icy=game.symbols.get(glyph(game, ".")) == "ice")
    pieces = _pieces(game, states, _SNAKES if snakes else _PLAYER, timeline)
    return ground + pieces + (_snakes(game, states, actions, timeline) if snakes else _walker(game, states, timeline))


def glyph(game: Game, symbol: str) -> str:
    """The symbol that a game shows for one of the game underneath."""
    return game.glyphs.get(symbol, symbol) if isinstance(game, Variant) else symbol


def names(game: Game) -> dict[str, str]:
    """Symbol → what is drawn for it; an apple that takes reward is poisoned, whatever the rules call it."""
    core = base_game(game)
    items = core.items if isinstance(core, Snake) else ()
    poison = {glyph(game, item.symbol): "poison apple" for item in items if item.name == "apple" and item.reward < 0}
    return {**game.symbols, **poison}


def placed(game: Game, cells: Iterable[Cell]) -> list[Cell]:
    """Where cells of the game underneath are shown."""
    return [game.place(cell, game.size) if isinstance(game, Variant) else cell for cell in cells]


def moves(game: Game) -> dict[str, Cell]:
    """Action → where it leads on the board that is shown, as (rows, columns); of games of others nobody can tell."""
    if not isinstance(base_game(game), FrozenLake | Snake):
        return {}
    origin, *ends = placed(game, [(0, 0), *DIRECTIONS.values()])
    return {
        display_name(game, action): (end[0] - origin[0], end[1] - origin[1]) for action, end in zip(DIRECTIONS, ends, strict=True)
    }


def _ground(game: Game, icy: bool) -> str:
    cells = [(row, column) for row in range(game.size) for column in range(game.size)]
    if icy:
        ice = "".join(
            f'<rect class="ice" x="{c + 0.04:.2f}" y="{r + 0.04:.2f}" width=".92" height=".92" rx=".14"/>' for r, c in cells
        )
        gleams = "".join(
            f"M{c + 0.18:.2f} {r + 0.34:.2f}l.16-.16m-.06.26l.26-.26" for r, c in cells if (3 * r + 5 * c) % 7 in (1, 4)
        )
        return f'{ice}<path class="gleam" d="{gleams}"/>'
    dark = "".join(f"M{c} {r}h1v1h-1z" for r, c in cells if (r + c) % 2)
    field = f'<rect class="field" width="{game.size}" height="{game.size}" rx=".3"/>'
    return f'{field}<path class="check" d="{dark}" clip-path="url(#field)"/>'


def _pieces(game: Game, states: Sequence[Any], movers: str, timeline: Timeline) -> str:
    """Everything but the ground and those who move. What a lone player stands on is what the grid shows there at other times."""
    grids = [game.grid(state) for state in states]
    free, player, *shown = (glyph(game, symbol) for symbol in f".{_PLAYER}{movers}")
    drawn = []
    for row in range(game.size):
        for column in range(game.size):
            seen = [grid[row][column] for grid in grids]
            if movers == _PLAYER:
                under = next((symbol for symbol in seen if symbol != player), free)
                seen = [under if symbol == player else symbol for symbol in seen]
            for symbol in sorted(set(seen) - {free, *shown}):
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


def _walker(game: Game, states: Sequence[Any], timeline: Timeline) -> str:
    """A lone player gliding from cell to cell."""
    places = [_find(game.grid(state), glyph(game, _PLAYER)) for state in states]
    stands = [_at(place, f" {_posture(state)}") for place, state in zip(places, states, strict=True)]
    return f'<g class="{timeline.gliding(stands)}">{PENGUIN}</g>'


def _posture(state: Any) -> str:
    """In a hole the player goes under; at the goal it stands beside the flag."""
    if not (isinstance(state, LakeState) and state.terminal):
        return "scale(1);opacity:1"
    return "translateX(-.14px) scale(.9);opacity:1" if state.player == state.goal else "scale(.55);opacity:.8"


def _find(grid: Sequence[str], symbol: str) -> Cell:
    return next((row, line.index(symbol)) for row, line in enumerate(grid) if symbol in line)


def _snakes(game: Game, states: Sequence[SnakeState], actions: Sequence[str | None], timeline: Timeline) -> str:
    last = states[-1]
    drawn = ""
    if last.opponent:
        drawn += _snake([placed(game, state.opponent) for state in states], "opponent", last.opponent_alive, None, timeline)
    hit = moves(game)[actions[-1]] if actions[-1] is not None and not last.alive else None
    return drawn + _snake([placed(game, state.snake) for state in states], "you", last.alive, hit, timeline)


def _snake(bodies: Sequence[Sequence[Cell]], who: str, alive: bool, final: Cell | None, timeline: Timeline) -> str:
    """A snake: its body is the last stretch of its head's path, its head looks where it last went.

    `final` is the move that killed it: the head leans into what it hit.
    """
    path, heads = _path(bodies)
    tails = [head - (len(body) - 1) for head, body in zip(heads, bodies, strict=True)]
    windows = [
        f"stroke-dasharray:{len(b) - 1}px 999px;stroke-dashoffset:{-tail}px" for b, tail in zip(bodies, tails, strict=True)
    ]
    # One dash, then a gap longer than any path; a path of no length at all would not be drawn, hence its last .001.
    line = " ".join(f"{column + 0.5:g} {row + 0.5:g}" for row, column in path)
    sliding = timeline.gliding(windows)
    body = "".join(f'<path class="{part} {sliding}" d="M{line}h.001"/>' for part in (f"body {who}", "belly"))
    end = len(bodies) - 1
    awake = f'<g{_class(timeline.shown(0, None if alive else end))}><use href="#awake"/></g>'
    dead = "" if alive else f'<g{_class(timeline.shown(end, None))}><use href="#dead"/></g>'
    looks = timeline.gliding(_looks(bodies, final))
    return f'{body}<g class="{looks}"><circle class="head {who}" r=".43"/>{awake}{dead}</g>'


def _path(bodies: Sequence[Sequence[Cell]]) -> tuple[list[Cell], list[int]]:
    """All cells the snake goes through, tail of the first state first, and where on it the head is in each state."""
    path = list(reversed(bodies[0]))
    heads = [len(path) - 1]
    for before, after in pairwise(bodies):
        if after[0] != before[0]:
            path.append(after[0])
        heads.append(len(path) - 1)
    return path, heads


def _looks(bodies: Sequence[Sequence[Cell]], final: Cell | None) -> list[str]:
    """The head's place and angle in each state, turned the short way round."""
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
