"""Boards as SVG, in units of one cell: the ground, what comes and goes on it, and who moves over it.

Any game is drawn from its grid and its symbols alone. A snake's body has an order that a grid does not tell, so the
snakes are drawn from their state: a dash that slides along the path of the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from math import atan2, degrees
from typing import Any

from msgrpo_hub.evaluation.timeline import Timeline, spans
from msgrpo_hub.games import Game
from msgrpo_hub.games.board import DIRECTIONS, Cell
from msgrpo_hub.games.snake import Snake, SnakeState

_PLAYER = "@"
_SNAKES = "@#Xx"

_APPLE = (
    '<path d="M0-.2C.13-.32.4-.28.4.02C.4.28.17.43 0 .36C-.17.43-.4.28-.4.02C-.4-.28-.13-.32 0-.2Z" fill="{}"/>'
    '<path d="M0-.19Q0-.33.06-.4" stroke="#8a5a2b" stroke-width=".06" stroke-linecap="round" fill="none"/>'
    '<path d="M.05-.3Q.15-.45.31-.36Q.2-.22.05-.3Z" fill="#46a758"/>'
)
_SHINE = '<path d="M-.26-.02Q-.25-.15-.14-.17" stroke="#fff" stroke-width=".06" stroke-linecap="round" fill="none" opacity=".7"/>'
_CROSS = '<path d="M-.07-.07L.07.07M.07-.07L-.07.07" stroke="#fff" stroke-width=".05" stroke-linecap="round"'

_ART = {
    "hole": '<ellipse rx=".4" ry=".38" fill="var(--rim)"/><ellipse cy=".03" rx=".33" ry=".3" fill="#12395c"/>'
    '<path d="M-.19.05Q-.1-.03 0 .05T.19.05" stroke="#5b9bd0" stroke-width=".045" stroke-linecap="round" fill="none"/>',
    "goal": '<ellipse cy=".36" rx=".27" ry=".07" fill="#1b4b73" opacity=".25"/>'
    '<path d="M-.17-.38V.36" stroke="#8a5a2b" stroke-width=".07" stroke-linecap="round"/>'
    '<path d="M-.14-.37Q.03-.46.16-.36T.4-.33L.33-.2L.4-.03Q.27-.1.14-.05T-.14-.03Z" fill="#e5484d"/>',
    "apple": _APPLE.format("#e5484d") + _SHINE,
    "poison apple": _APPLE.format("#8e4ec6") + f'{_CROSS} transform="translate(-.14 .05)"/>{_CROSS} transform="translate(.14 .05)"/>',
    "banana": '<path d="M-.33-.27C-.3.1-.02.34.34.25C.4.23.4.17.35.14C.1.08-.12-.08-.2-.32C-.23-.39-.34-.36-.33-.27Z" fill="#f5c518"/>'
    '<path d="M-.25-.22C-.18.02.02.18.3.2" stroke="#c99a06" stroke-width=".04" stroke-linecap="round" fill="none"/>'
    '<circle cx="-.27" cy="-.33" r=".05" fill="#7a5a12"/>',
    "fire": '<path d="M0-.43C.08-.2.33-.1.33.12C.33.32.17.42 0 .42S-.33.32-.33.12C-.33-.02-.25-.1-.19-.2C-.16-.1-.1-.08-.07-.1C-.1-.22-.08-.34 0-.43Z" '
    'fill="#f76b15"/><path d="M.01-.06C.05.05.17.1.17.22C.17.33.09.39 0 .39S-.17.33-.17.23C-.17.12-.03.1.01-.06Z" fill="#ffdc00"/>',
}

_PENGUIN = (
    '<ellipse cy=".4" rx=".26" ry=".05" fill="#0b2942" opacity=".25"/>'
    '<path d="M-.17.38L-.04.38L-.1.32ZM.17.38L.04.38L.1.32Z" fill="#f5a524" stroke="#f5a524" stroke-width=".06" stroke-linejoin="round"/>'
    '<path d="M0-.42C.2-.42.25-.25.27-.05Q.4.05.38.2Q.3.17.27.12C.27.3.17.37 0 .37S-.27.3-.27.12Q-.3.17-.38.2Q-.4.05-.27-.05C-.25-.25-.2-.42 0-.42Z" '
    'fill="#22303f"/><path d="M0-.12C.16-.3.24-.05.2.12C.18.27.1.32 0 .32S-.18.27-.2.12C-.24-.05-.16-.3 0-.12Z" fill="#fff"/>'
    '<circle cx="-.09" cy="-.2" r=".055" fill="#fff"/><circle cx=".09" cy="-.2" r=".055" fill="#fff"/>'
    '<circle cx="-.08" cy="-.2" r=".03" fill="#111"/><circle cx=".08" cy="-.2" r=".03" fill="#111"/>'
    '<path d="M-.06-.13L.06-.13L0-.05Z" fill="#f5a524" stroke="#f5a524" stroke-width=".03" stroke-linejoin="round"/>'
)


def definitions(game: Game) -> str:
    """The shapes of a game's symbols, for `<use>`."""
    return "".join(f'<g id="{_shape(symbol)}">{_art(game, symbol)}</g>' for symbol in game.symbols if symbol not in f".{_PLAYER}")


def board(game: Game, states: Sequence[Any], actions: Sequence[str | None], timeline: Timeline) -> str:
    """One episode's board, `game.size` units wide. `actions[t]` leads from `states[t]` to `states[t + 1]`."""
    snakes = isinstance(states[0], SnakeState)
    ground = _ground(game, icy=game.symbols.get(".") == "ice")
    pieces = _pieces(game, states, _SNAKES if snakes else _PLAYER, timeline)
    return ground + pieces + (_snakes(states, actions, timeline) if snakes else _walker(game, states, timeline))


def _ground(game: Game, icy: bool) -> str:
    cells = [(row, column) for row in range(game.size) for column in range(game.size)]
    if icy:
        return "".join(f'<rect class="ice" x="{c + 0.04:.2f}" y="{r + 0.04:.2f}" width=".92" height=".92" rx=".14"/>' for r, c in cells)
    dark = "".join(f"M{c} {r}h1v1h-1z" for r, c in cells if (r + c) % 2)
    return f'<rect class="field" width="{game.size}" height="{game.size}" rx=".3"/><path class="check" d="{dark}" clip-path="url(#field)"/>'


def _pieces(game: Game, states: Sequence[Any], movers: str, timeline: Timeline) -> str:
    """Everything but the ground and those who move. What a lone player stands on is what the grid shows there at other times."""
    grids = [game.grid(state) for state in states]
    drawn = []
    for row in range(game.size):
        for column in range(game.size):
            seen = [grid[row][column] for grid in grids]
            if movers == _PLAYER:
                under = next((symbol for symbol in seen if symbol != _PLAYER), ".")
                seen = [under if symbol == _PLAYER else symbol for symbol in seen]
            for symbol in sorted(set(seen) - {".", *movers}):
                for span in spans([here == symbol for here in seen]):
                    drawn.append(_use(symbol, (row, column), timeline.shown(*span)))
    return "".join(drawn)


def _use(symbol: str, cell: Cell, name: str) -> str:
    return f'<use href="#{_shape(symbol)}" x="{cell[1] + 0.5}" y="{cell[0] + 0.5}"{_class(name)}/>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _shape(symbol: str) -> str:
    return f"s{ord(symbol)}"


def _art(game: Game, symbol: str) -> str:
    name = game.symbols[symbol]
    if isinstance(game, Snake) and any(item.symbol == symbol and item.reward < 0 and name == "apple" for item in game.items):
        name = "poison apple"
    letter = f'<rect class="tile" x="-.4" y="-.4" width=".8" height=".8" rx=".16"/><text class="letter" y=".2">{escape(symbol)}</text>'
    return _ART.get(name, letter)


def _at(cell: Cell, more: str = "") -> str:
    return f"transform:translate({cell[1] + 0.5:g}px,{cell[0] + 0.5:g}px){more}"


def _walker(game: Game, states: Sequence[Any], timeline: Timeline) -> str:
    """A lone player gliding from cell to cell; one that ends in a hole goes under."""
    places = [_find(game.grid(state), _PLAYER) for state in states]
    transforms = [_at(place, " scale(1)") for place in places]
    last = states[-1]
    if getattr(last, "player", None) in getattr(last, "holes", ()):
        transforms[-1] = _at(places[-1], " scale(.55)") + ";opacity:.75"
        transforms[:-1] = [f"{transform};opacity:1" for transform in transforms[:-1]]
    return f'<g class="{timeline.gliding(transforms)}">{_PENGUIN}</g>'


def _find(grid: Sequence[str], symbol: str) -> Cell:
    return next((row, line.index(symbol)) for row, line in enumerate(grid) if symbol in line)


def _snakes(states: Sequence[SnakeState], actions: Sequence[str | None], timeline: Timeline) -> str:
    last = states[-1]
    drawn = ""
    if last.opponent:
        drawn += _snake([state.opponent for state in states], "opponent", last.opponent_alive, None, timeline)
    return drawn + _snake([state.snake for state in states], "you", last.alive, actions[-1], timeline)


def _snake(bodies: Sequence[Sequence[Cell]], who: str, alive: bool, final: str | None, timeline: Timeline) -> str:
    """A snake: its body is the last stretch of its head's path, its head looks where it last went.

    `final` is the action that killed it: the head leans into what it hit.
    """
    path, heads = _path(bodies)
    tails = [head - (len(body) - 1) for head, body in zip(heads, bodies, strict=True)]
    windows = [f"stroke-dasharray:{len(b) - 1}px 999px;stroke-dashoffset:{-tail}px" for b, tail in zip(bodies, tails, strict=True)]
    line = " ".join(f"{column + 0.5:g} {row + 0.5:g}" for row, column in path)
    sliding = timeline.gliding(windows)
    body = "".join(f'<path class="{part} {sliding}" d="M{line}h.001"/>' for part in (f"body {who}", "belly"))
    end = len(bodies) - 1
    eyes = f'<g{_class(timeline.shown(0, None if alive else end))}><use href="#eyes"/></g>'
    shut = "" if alive else f'<g{_class(timeline.shown(end, None))}><use href="#shut"/></g>'
    looks = timeline.gliding(_looks(bodies, None if alive else final))
    return f'{body}<g class="{looks}"><use href="#tongue"/><circle class="head {who}" r=".43"/>{eyes}{shut}</g>'


def _path(bodies: Sequence[Sequence[Cell]]) -> tuple[list[Cell], list[int]]:
    """All cells the snake goes through, tail of the first state first, and where on it the head is in each state."""
    path = list(reversed(bodies[0]))
    heads = [len(path) - 1]
    for before, after in pairwise(bodies):
        if after[0] != before[0]:
            path.append(after[0])
        heads.append(len(path) - 1)
    return path, heads


def _looks(bodies: Sequence[Sequence[Cell]], final: str | None) -> list[str]:
    """The head's place and angle in each state, turned the short way round."""
    moves = [(after[0][0] - before[0][0], after[0][1] - before[0][1]) for before, after in pairwise(bodies)]
    if final is not None:
        moves[-1] = DIRECTIONS[final]
    first = next((move for move in moves if move != (0, 0)), (0, 1))
    angle = degrees(atan2(*first))
    angles = [angle]
    for move in moves:
        if move != (0, 0):
            angle += (degrees(atan2(*move)) - angle + 180) % 360 - 180
        angles.append(angle)
    lean = [0.0] * len(moves) + [0.3 if final is not None else 0.0]
    return [
        _at(body[0], f" rotate({angle:g}deg) translateX({shift:g}px)") for body, angle, shift in zip(bodies, angles, lean, strict=True)
    ]
