"""Tables and words of environments that are extras: three tasks of MiniGrid, and TextArena's Tower of Hanoi.

Both packages change one environment in place. Here an environment is set to a position, makes one step, and is read off again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from threading import Lock
from typing import Any, ClassVar, NamedTuple

import numpy as np

from msgrpo_hub.errors import UserError
from msgrpo_hub.games.board import Cell, cells_text

_IN_USE = Lock()
"""Whoever sets an environment to a position holds it until the position after the step is read off."""


NEEDS = "this game needs the package"


def _loaded(module: str) -> Any:
    """A module of an extra. Raises `UserError` where it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise UserError(f"{NEEDS} {package!r}, which is not installed: pip install 'msgrpo-hub[games]'") from error


class Room(NamedTuple):
    """A position of MiniGrid. Cells are (row, column); an object is (type, colour, state) in MiniGrid's numbers."""

    objects: tuple[tuple[tuple[int, int, int], ...], ...]
    you: Cell
    direction: int
    carrying: tuple[int, int, int] | None = None


@cache
def _minigrid(name: str, settings: tuple[tuple[str, Any], ...]) -> Any:
    return getattr(_loaded("minigrid.envs"), name)(**dict(settings))


def _read(env: Any) -> Room:
    column, row = map(int, env.agent_pos)
    rows = env.grid.encode().transpose(1, 0, 2).tolist()
    carrying = None if env.carrying is None else tuple(map(int, env.carrying.encode()))
    return Room(tuple(tuple(map(tuple, row)) for row in rows), (row, column), int(env.agent_dir), carrying)  # type: ignore[arg-type]


@lru_cache(maxsize=2**16)
def _moved(name: str, settings: tuple[tuple[str, Any], ...], room: Room, action: int) -> tuple[Room, bool, bool]:
    """The position after an action, whether that ends the episode, and whether the goal is reached."""
    with _IN_USE:
        env = _minigrid(name, settings)
        env.grid, _ = _loaded("minigrid.core.grid").Grid.decode(np.array(room.objects, np.uint8).transpose(1, 0, 2))
        env.agent_pos, env.agent_dir, env.step_count = (room.you[1], room.you[0]), room.direction, 0
        held = room.carrying
        env.carrying = None if held is None else _loaded("minigrid.core.world_object").WorldObj.decode(*held)
        _, reward, ended, _, _ = env.step(action)
        return _read(env), bool(ended), reward > 0


@dataclass(frozen=True)
class MiniGrid:
    """A task of MiniGrid, seen as a whole. Its goal gives 1 − 0.9 · turns / max_steps, as there."""

    name: str
    """The class in `minigrid.envs`."""
    settings: tuple[tuple[str, Any], ...]

    actions = ("Left", "Right", "Forward", "Pickup", "Drop", "Toggle", "Done")
    symbols: ClassVar[Mapping[str, str]] = {
        ".": "floor",
        "#": "a wall",
        "G": "the goal",
        "~": "lava",
        "K": "a key",
        "X": "a locked door",
        "D": "a closed door",
        "O": "an open door",
        ">": "you facing right",
        "v": "you facing down",
        "<": "you facing left",
        "^": "you facing up",
    }
    reward_range = (0.0, 1.0)
    danger = float("-inf")

    @property
    def rules(self) -> tuple[str, ...]:
        return (
            "A cell is (row, column); (0, 0) is the top left.",
            "Left and Right turn you on the spot. Forward moves you one cell ahead, but not into a wall, a key or a shut door.",
            "Pickup takes the key ahead of you. Drop puts what you carry on the floor ahead.",
            "Toggle opens or closes the door ahead; a locked one opens for the key of its colour. Done does nothing.",
            f"The goal gives 1 - 0.9 x turns / {self._max_steps} and ends the game. Lava gives 0 and ends it.",
        )

    @property
    def _max_steps(self) -> int:
        """MiniGrid's own horizon, by which it divides the turns."""
        return int(dict(self.settings)["max_steps"])

    @property
    def rows(self) -> int:
        return int(dict(self.settings)["size"])

    columns = rows

    @property
    def instructions(self) -> str:
        key = "Take the key, open the door with it, and reach the goal." if self.name == "DoorKeyEnv" else "Reach the goal."
        return f"You walk in a room. {key}"

    def start(self, rng: np.random.Generator) -> Room:
        with _IN_USE:
            env = _minigrid(self.name, self.settings)
            env.reset(seed=int(rng.integers(2**31)))
            return _read(env)

    def ways(self, position: Room, action: str | None, turn: int) -> Sequence[tuple[float, Room, float, bool]]:
        number = self.actions.index("Done" if action is None else action)
        after, ended, reached = _moved(self.name, self.settings, position, number)
        reward = 1 - 0.9 * ((turn + 1) / self._max_steps) if reached else 0.0
        return [(1.0, after, reward, ended)]

    def _named(self, thing: tuple[int, int, int]) -> tuple[str, str]:
        """The symbol and the name of an object."""
        constants = _loaded("minigrid.core.constants")
        kind, colour = constants.IDX_TO_OBJECT[thing[0]], constants.IDX_TO_COLOR[thing[1]]
        if kind == "door":
            return "OXD"[(0, 2, 1).index(thing[2])], f"{('open', 'closed', 'locked')[thing[2]]} {colour} door"
        symbols = {"empty": ".", "wall": "#", "goal": "G", "lava": "~", "key": "K"}
        return symbols[kind], f"{colour} key" if kind == "key" else kind

    def _at(self, position: Room) -> str:
        """What you stand on."""
        return self._named(position.objects[position.you[0]][position.you[1]])[1]

    def ended(self, position: Room) -> bool:
        return self._at(position) in ("goal", "lava")

    def won(self, position: Room) -> bool:
        return self._at(position) == "goal"

    def lines(self, position: Room) -> list[str]:
        found: dict[str, list[Cell]] = {}
        for row, in_row in enumerate(position.objects):
            for column, thing in enumerate(in_row):
                found.setdefault(self._named(thing)[1], []).append((row, column))
        facing = ("right", "down", "left", "up")[position.direction]
        carried = "nothing" if position.carrying is None else self._named(position.carrying)[1]
        things = [f"{name.capitalize()}: {cells_text(found[name])}" for name in sorted(found.keys() - {"wall", "empty"})]
        return [f"You: {cells_text([position.you])} facing {facing}", f"You carry: {carried}", *things]

    def grid(self, position: Room) -> list[str]:
        symbols = [[self._named(thing)[0] for thing in row] for row in position.objects]
        symbols[position.you[0]][position.you[1]] = ">v<^"[position.direction]
        return ["".join(row) for row in symbols]


class Towers(NamedTuple):
    """A position of the Tower of Hanoi: each tower from the bottom up, moves made, and whether the last one was invalid."""

    towers: tuple[tuple[int, ...], ...] = ((3, 2, 1), (), ())
    moves: int = 0
    invalid: bool = False
    over: bool = False


@cache
def _hanoi() -> Any:
    return _loaded("textarena.envs.TowerOfHanoi.env").TowerOfHanoiEnv(num_disks=3, max_turns=14)


@dataclass(frozen=True)
class TowerOfHanoi:
    """TextArena's `TowerOfHanoi-v0`: three disks; a tower that is not complete gives the share that is right.

    Its limit of 14 moves is looked at before a move is counted, so there are 15.
    """

    rows = 3
    columns = 3
    actions = ("A B", "A C", "B A", "B C", "C A", "C B")
    instructions = "Move the three disks from tower A to tower C, one at a time."
    symbols: ClassVar[Mapping[str, str]] = {
        "1": "the smallest disk",
        "2": "the middle disk",
        "3": "the largest disk",
        ".": "no disk",
    }
    reward_range = (0.0, 1.0)
    danger = float("-inf")
    rules = (
        "The action A B moves the top disk of tower A to tower B, and so on. A disk never lies on a smaller one.",
        "A move that is not possible changes nothing and takes no move, but the second in a row ends the game.",
        "All disks on C give 1. A game that ends otherwise gives the share of the disks that lie on C as they should.",
        "The game ends after 15 moves.",
    )

    def start(self, rng: np.random.Generator) -> Towers:  # noqa: ARG002
        return Towers()

    def ways(self, position: Towers, action: str | None, turn: int) -> Sequence[tuple[float, Towers, float, bool]]:  # noqa: ARG002
        """Saying nothing is an invalid move there."""
        with _IN_USE:
            env = _hanoi()
            env.reset(num_players=1, seed=0)
            env.state.game_state["towers"] = {name: list(disks) for name, disks in zip("ABC", position.towers, strict=True)}
            env.state.turn, env.state.error_count = position.moves, int(position.invalid)
            over, _ = env.step(f"[{action}]" if action else "")
            towers = tuple(map(tuple, env.state.game_state["towers"].values()))
            reward = float(env.state.rewards[0]) if over else 0.0
            after = Towers(towers, int(env.state.turn), env.state.error_count > 0, bool(over))
        return [(1.0, after, reward, bool(over))]

    def ended(self, position: Towers) -> bool:
        return position.over

    def won(self, position: Towers) -> bool:
        return position.towers[2] == (3, 2, 1)

    def lines(self, position: Towers) -> list[str]:
        disks = [f"{name}: {' '.join(map(str, tower)) or 'empty'}" for name, tower in zip("ABC", position.towers, strict=True)]
        return [*disks, f"Moves made: {position.moves}", f"Last move: {'invalid' if position.invalid else 'valid'}"]

    def grid(self, position: Towers) -> list[str]:
        tops = [[*map(str, tower), *"..."][:3] for tower in position.towers]
        return ["".join(tops[column][height] for column in range(3)) for height in (2, 1, 0)]
