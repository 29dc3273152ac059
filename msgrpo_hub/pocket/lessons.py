"""What the built-in base is taught: to answer questions about a board it is shown, and to follow stated instructions.

Every state is random (no play leads to it), and every answer is a fact of the shown text or a uniform choice among the
moves that the shown text allows. There is no goal-directed play anywhere: where the base is asked to act, the legal
moves (on the lake) or the safe moves (in Snake) are equally likely, whatever they lead to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from msgrpo_hub.agent.prompt_formats import REPLY_FORMAT
from msgrpo_hub.games.board import DIRECTIONS, Cell, cells_text, inside, neighbour
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.game import Game
from msgrpo_hub.games.registry import GAMES
from msgrpo_hub.games.scene import has_scene
from msgrpo_hub.games.snake import APPLE, Item, Snake, SnakeState, is_snake


@dataclass(frozen=True, slots=True)
class Lesson:
    """A request about a state, and the replies that are right: each is taught with the same probability."""

    kind: str
    request: str
    replies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """A game as it is told in the prompt: perhaps with fewer actions and with one instruction more."""

    game: Game
    actions: tuple[str, ...]
    avoid: str = ""

    @property
    def system(self) -> str:
        rules = (*self.game.rules, *([f"Never move onto {self.avoid}."] if self.avoid else []))
        return "\n".join(
            ["[Instructions]", self.game.instructions, "[Available Actions]", ", ".join(self.actions), "[Rules]", *rules]
        )


# ---- what a board shows


def things(game: Game, state: Any) -> dict[Cell, str]:
    """Cell → the name of what lies there, as the grid shows it."""
    rows = game.grid(state)
    return {(r, c): _short(game.symbols[symbol]) for r, row in enumerate(rows) for c, symbol in enumerate(row)}


def _short(name: str) -> str:
    """`your body` is `body` in an answer, and every part of the opponent is `opponent`."""
    return "opponent" if name.startswith("opponent") else name.removeprefix("your ")


def player_cell(game: Game, state: Any) -> Cell:
    """Where the player, or its head, is."""
    assert has_scene(game)
    return game.scene(state).player


def around(game: Game, state: Any) -> dict[str, str]:
    """Direction → what lies there: the percepts."""
    here, what = player_cell(game, state), things(game, state)
    return {action: what.get(neighbour(here, action), "wall") for action in game.actions}


def percepts(game: Game, state: Any) -> str:
    """The percepts in words, such as `Left wall Down ice Right hole Up wall`."""
    return " ".join(f"{action} {thing}" for action, thing in around(game, state).items())


def bearing(here: Cell, there: Cell) -> str:
    """How to get from one cell to another.

    >>> bearing((3, 1), (1, 2)), bearing((0, 0), (0, 0))
    ('Right 1 Up 2', 'here')
    """
    down, right = there[0] - here[0], there[1] - here[1]
    parts = [f"{'Right' if right > 0 else 'Left'} {abs(right)}"] if right else []
    parts += [f"{'Down' if down > 0 else 'Up'} {abs(down)}"] if down else []
    return " ".join(parts) or "here"


def nearest(here: Cell, cells: Sequence[Cell]) -> Cell:
    """The nearest of some cells by steps on an empty board; of equals the first in reading order."""
    return min(cells, key=lambda cell: (abs(cell[0] - here[0]) + abs(cell[1] - here[1]), cell))


def thought(game: Game, state: Any) -> str:
    """What the base thinks before it acts: the percepts, and in Snake the nearest thing to eat with its bearing."""
    seen = percepts(game, state)
    if is_snake(game) and (found := _nearest_item(game, state)):
        name, cell = found
        return f"{seen} nearest {name} {cells_text([cell])} {bearing(player_cell(game, state), cell)}"
    return seen


def _nearest_item(game: Snake, state: SnakeState) -> tuple[str, Cell] | None:
    """The nearest item that can be eaten, of whatever kind and worth."""
    names = {cell: item.name for item, cells in zip(game.items, state.items, strict=True) for cell in cells if item.grows}
    if not names:
        return None
    cell = nearest(state.snake[0], list(names))
    return names[cell], cell


# ---- the lessons on one state


def play(task: Task, state: Any) -> Lesson:
    """The request that a player gets: allowed moves are equally likely, whatever they lead to."""
    seen = around(task.game, state)
    bad = {"wall", "body", "opponent"} | ({task.avoid} if task.avoid else set())
    moves = [a for a in task.actions if seen[a] not in bad] or list(task.actions)
    think = thought(task.game, state)
    return Lesson("play", REPLY_FORMAT, tuple(f"<think>{think}</think><action>{move}</action>" for move in moves))


def about_the_board(task: Task, state: Any, rng: np.random.Generator) -> Iterator[Lesson]:
    """Questions with one right answer, all of it in the observation."""
    game, here = task.game, player_cell(task.game, state)
    what, seen = things(game, state), around(game, state)
    yield Lesson("each direction", "What lies in each direction?", (percepts(game, state),))
    action = _pick(game.actions, rng)
    yield Lesson("one direction", f"What lies {action}?", (seen[action],))
    yield Lesson("where", "Where are you?", (cells_text([here]),))
    cell = _pick(list(what), rng)
    yield Lesson("bearing", f"How far is {cells_text([cell])}?", (bearing(here, cell),))
    legal, safe = game.legal_actions(state), game.safe_actions(state)
    yield Lesson("legal", "Which moves are legal?", (" ".join(legal) or "none",))
    yield Lesson("safe", "Which moves are safe?", (" ".join(safe) or "none",))
    if is_snake(game):
        yield from _about_the_snake(game, state)
    else:
        yield Lesson("goal", "How far is the goal?", (bearing(here, state.goal),))


def lookups(task: Task, state: Any, rng: np.random.Generator) -> Iterator[Lesson]:
    """What lies at some named cells: things, which the text lists, and any cell."""
    what = things(task.game, state)
    listed = [cell for cell, name in what.items() if name not in ("ice", "free", "head")] or list(what)
    for kind, cells in (("what thing", listed), ("what cell", list(what))):
        for index in rng.permutation(len(cells))[:2].tolist():
            yield Lesson(kind, f"What lies at {cells_text([cells[index]])}?", (what[cells[index]],))


def _about_the_snake(game: Snake, state: SnakeState) -> Iterator[Lesson]:
    here = state.snake[0]
    for item, cells in zip(game.items, state.items, strict=True):
        if cells:
            cell = nearest(here, cells)
            answer = f"{cells_text([cell])} {bearing(here, cell)}"
            yield Lesson("nearest", f"Which {item.name} is nearest?", (answer,))
    yield Lesson("length", "How long are you?", (str(len(state.snake)),))
    if state.opponent:
        yield Lesson("opponent", "Where is the opponent?", (cells_text(state.opponent[:1]),))


def about_the_rules(task: Task, rng: np.random.Generator) -> Iterator[Lesson]:
    """Questions whose answer stands in the system message."""
    yield Lesson("rules", "How many turns has the game?", (str(task.game.horizon),))
    yield Lesson("rules", "Which actions are available?", (" ".join(task.actions),))
    if is_snake(task.game):
        item = _pick(task.game.items, rng)
        yield Lesson("rules", f"What does {_article(item.name)} give?", (f"{item.reward:g}",))
        yield Lesson("rules", "What does dying give?", (f"{task.game.death_reward:g}",))


def instructions(task: Task, state: Any, rng: np.random.Generator) -> Iterator[Lesson]:
    """Requests to choose: every choice that fits the words is equally likely."""
    seen = around(task.game, state)
    named = [task.game.actions[i] for i in rng.permutation(4)[:2].tolist()]
    yield Lesson("choose", f"Name one of {named[0]} or {named[1]}.", tuple(named))
    thing = _pick(list(seen.values()), rng)
    others = tuple(a for a in seen if seen[a] != thing)
    yield Lesson("avoid", f"Name a move that is not onto {thing}.", others or ("none",))
    way = bearing((0, 0), (int(rng.integers(-3, 4)), int(rng.integers(-3, 4))))
    moves = [action for action in task.game.actions if action in way.split()]
    if moves:
        think = f"{percepts(task.game, state)} way {way}"
        taken = tuple(f"<think>{think}</think><action>{move}</action>" for move in moves)
        yield Lesson("way", "Think of any way, then go it.", taken)


def lessons(task: Task, state: Any, rng: np.random.Generator) -> list[Lesson]:
    """The play request, and some questions of each sort."""
    board = list(about_the_board(task, state, rng))
    chosen = [board[i] for i in rng.permutation(len(board))[:6].tolist()]
    rules = _pick(list(about_the_rules(task, rng)), rng)
    return [play(task, state), *chosen, *lookups(task, state, rng), rules, *instructions(task, state, rng)]


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _pick(options: Sequence[Any], rng: np.random.Generator) -> Any:
    return options[int(rng.integers(len(options)))]


# ---- random tasks and random states


def random_task(rng: np.random.Generator, lakes: float = 0.45) -> Task:
    """A game with random parameters, a share `lakes` of them lakes; now and then with fewer actions, or a prohibition."""
    game = random_lake(rng) if rng.random() < lakes else random_snake(rng)
    actions = game.actions
    if rng.random() < 0.15:
        kept = sorted(rng.permutation(4)[: int(rng.integers(2, 4))].tolist())
        actions = tuple(actions[i] for i in kept)
    avoidable = [item.name for item in game.items] if is_snake(game) else ["holes"]
    avoid = _pick(avoidable, rng) if rng.random() < 0.15 else ""
    return Task(game, actions, "hole" if avoid == "holes" else avoid)


def random_lake(rng: np.random.Generator) -> FrozenLake:
    size = int(rng.choice([4, 6, 8], p=[0.7, 0.15, 0.15]))
    frozen = float(rng.uniform(0.65, 0.95)) if size == 4 else float(rng.uniform(0.8, 0.95))
    horizon = int(rng.integers(5, 41)) if rng.random() < 0.5 else int(_pick([8, 15, 20], rng))
    return FrozenLake("lesson", size, frozen, bool(rng.random() < 0.3), horizon)


def random_snake(rng: np.random.Generator) -> Snake:
    """A registered Snake as it is, or with other rewards, counts and horizon."""
    small = rng.random() < 0.55
    name = "Snake-Solo-v1" if small else _pick([i for i in GAMES if i.startswith("Snake") and "Solo" not in i], rng)
    game = GAMES[name]
    assert is_snake(game)
    if rng.random() < 0.5:
        items = tuple(_random_item(item, rng) for item in game.items)
        game = replace(game, items=items, horizon=int(rng.integers(5, 41)), death_reward=float(-rng.integers(1, 6)))
    return game


def _random_item(item: Item, rng: np.random.Generator) -> Item:
    return replace(item, count=int(rng.integers(1, APPLE.count + 1)), reward=float(rng.integers(-5, 11)))


def random_state(game: Game, rng: np.random.Generator) -> Any:
    """Any state of a game, reached by no play: a random cell of the ice, or snakes of random shape."""
    start = game.initial_state(rng)
    if not is_snake(game):
        cells = [(r, c) for r in range(game.rows) for c in range(game.columns)]
        return replace(start, player=_pick([c for c in cells if c not in start.holes and c != start.goal], rng))
    taken = {cell for cells in start.items for cell in cells}
    snake = _random_body(start.snake[0], game.size, taken | set(start.opponent), rng)
    opponent = _random_body(start.opponent[0], game.size, taken | set(snake), rng) if start.opponent else ()
    return replace(start, snake=snake, opponent=opponent)


def _random_body(head: Cell, size: int, taken: set[Cell], rng: np.random.Generator) -> tuple[Cell, ...]:
    """A self-avoiding walk of random length that starts at the head."""
    body = [head]
    for _ in range(int(rng.integers(0, 8))):
        cells = [neighbour(body[-1], action) for action in DIRECTIONS]
        free = [cell for cell in cells if inside(cell, size, size) and cell not in taken and cell not in body]
        if not free:
            break
        body.append(_pick(free, rng))
    return tuple(body)
