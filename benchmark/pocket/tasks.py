"""The pretraining tasks of the built-in base: questions about a displayed board, and instructions to follow.

Every state is random; none is reached by play. Every answer is a fact in the displayed text or a uniform choice among the
moves that the text allows. No task shows goal-directed play: on a request to act, the legal moves (on the lake) or the safe
moves (in Snake) are equally likely, regardless of where they lead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from msgrpo_hub.agent.prompt_formats import THINK_ACTION, USER_TEXT
from msgrpo_hub.games.board import DIRECTIONS, Cell, cells_text, inside, neighbour
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.game import Game, HasScene
from msgrpo_hub.games.registry import GAMES
from msgrpo_hub.games.snake import APPLE, Snake
from msgrpo_hub.pocket.thoughts import direction_to, in_words, local_view, nearest, things, thought

_LAKE = GAMES["FrozenLake-NotSlippery-v1"]
PLAY_REQUEST = THINK_ACTION.render(_LAKE, "")[-1]["content"].removeprefix(USER_TEXT.format("", ""))
"""The request of think-action in the games with these directions; one token of the built-in base."""


@dataclass(frozen=True, slots=True)
class PretrainingTask:
    """A request about a state and its correct replies, each trained with equal probability."""

    kind: str
    request: str
    replies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GameVariant:
    """A game as the prompt describes it, optionally with fewer actions and one extra prohibition."""

    game: HasScene
    actions: tuple[str, ...]
    avoid: str = ""

    @property
    def system(self) -> str:
        rules = (*self.game.rules, *([f"Never move onto {self.avoid}."] if self.avoid else []))
        return "\n".join(
            ["[Instructions]", self.game.instructions, "[Available Actions]", ", ".join(self.actions), "[Rules]", *rules]
        )


# ---- the tasks on one state


def play(variant: GameVariant, state: Any) -> PretrainingTask:
    """The request that a player gets; all allowed moves are equally likely, regardless of where they lead."""
    view = local_view(variant.game, state)
    bad = {"wall", "body", "opponent"} | ({variant.avoid} if variant.avoid else set())
    moves = [a for a in variant.actions if view[a] not in bad] or list(variant.actions)
    think = thought(variant.game, state)
    return PretrainingTask("play", PLAY_REQUEST, tuple(f"<think>{think}</think><action>{move}</action>" for move in moves))


def about_the_board(variant: GameVariant, state: Any, rng: np.random.Generator) -> Iterator[PretrainingTask]:
    """Questions with one correct answer, which the observation contains."""
    game, here = variant.game, variant.game.scene(state).player
    what, view = things(game, state), local_view(game, state)
    yield PretrainingTask("each direction", "What lies in each direction?", (in_words(local_view(game, state)),))
    action = _pick(game.actions, rng)
    yield PretrainingTask("one direction", f"What lies {action}?", (view[action],))
    yield PretrainingTask("where", "Where are you?", (cells_text([here]),))
    cell = _pick(list(what), rng)
    yield PretrainingTask("bearing", f"How far is {cells_text([cell])}?", (direction_to(here, cell),))
    legal, safe = game.legal_actions(state), game.safe_actions(state)
    yield PretrainingTask("legal", "Which moves are legal?", (" ".join(legal) or "none",))
    yield PretrainingTask("safe", "Which moves are safe?", (" ".join(safe) or "none",))
    if isinstance(game, Snake):
        for item, cells in zip(game.items, state.items, strict=True):
            if cells:
                cell = nearest(here, cells)
                answer = f"{cells_text([cell])} {direction_to(here, cell)}"
                yield PretrainingTask("nearest", f"Which {item.name} is nearest?", (answer,))
        yield PretrainingTask("length", "How long are you?", (str(len(state.snake)),))
        if state.opponent:
            yield PretrainingTask("opponent", "Where is the opponent?", (cells_text(state.opponent[:1]),))
    else:
        yield PretrainingTask("goal", "How far is the goal?", (direction_to(here, state.goal),))


def lookups(variant: GameVariant, state: Any, rng: np.random.Generator) -> Iterator[PretrainingTask]:
    """Questions about the content of a cell: cells that the text lists, and arbitrary cells."""
    what = things(variant.game, state)
    listed = [cell for cell, name in what.items() if name not in ("ice", "free", "head")] or list(what)
    for kind, cells in (("what thing", listed), ("what cell", list(what))):
        for index in rng.permutation(len(cells))[:2].tolist():
            yield PretrainingTask(kind, f"What lies at {cells_text([cells[index]])}?", (what[cells[index]],))


def about_the_rules(variant: GameVariant, rng: np.random.Generator) -> Iterator[PretrainingTask]:
    """Questions whose answer the system message contains."""
    yield PretrainingTask("rules", "How many turns has the game?", (str(variant.game.horizon),))
    yield PretrainingTask("rules", "Which actions are available?", (" ".join(variant.actions),))
    if isinstance(variant.game, Snake):
        item = _pick(variant.game.items, rng)
        article = "an" if item.name[0] in "aeiou" else "a"
        yield PretrainingTask("rules", f"What does {article} {item.name} give?", (f"{item.reward:g}",))
        yield PretrainingTask("rules", "What does dying give?", (f"{variant.game.death_reward:g}",))


def instructions(variant: GameVariant, state: Any, rng: np.random.Generator) -> Iterator[PretrainingTask]:
    """Requests to choose; every choice that satisfies the request is equally likely."""
    view = local_view(variant.game, state)
    named = [variant.game.actions[i] for i in rng.permutation(4)[:2].tolist()]
    yield PretrainingTask("choose", f"Name one of {named[0]} or {named[1]}.", tuple(named))
    thing = _pick(list(view.values()), rng)
    others = tuple(a for a in view if view[a] != thing)
    yield PretrainingTask("avoid", f"Name a move that is not onto {thing}.", others or ("none",))
    way = direction_to((0, 0), (int(rng.integers(-3, 4)), int(rng.integers(-3, 4))))
    moves = [action for action in variant.game.actions if action in way.split()]
    if moves:
        think = f"{in_words(local_view(variant.game, state))} way {way}"
        replies = tuple(f"<think>{think}</think><action>{move}</action>" for move in moves)
        yield PretrainingTask("way", "Think of any way, then go it.", replies)


def pretraining_tasks(variant: GameVariant, state: Any, rng: np.random.Generator) -> list[PretrainingTask]:
    """The play request and a sample of questions of each kind."""
    board = list(about_the_board(variant, state, rng))
    chosen = [board[i] for i in rng.permutation(len(board))[:6].tolist()]
    rules = _pick(list(about_the_rules(variant, rng)), rng)
    return [play(variant, state), *chosen, *lookups(variant, state, rng), rules, *instructions(variant, state, rng)]


def _pick(options: Sequence[Any], rng: np.random.Generator) -> Any:
    return options[int(rng.integers(len(options)))]


# ---- random variants and random states


def random_variant(rng: np.random.Generator, lakes: float = 0.45) -> GameVariant:
    """A game with random parameters, a lake with probability `lakes`; sometimes with fewer actions or a prohibition."""
    game = random_lake(rng) if rng.random() < lakes else random_snake(rng)
    actions = game.actions
    if rng.random() < 0.15:
        available = sorted(rng.permutation(4)[: int(rng.integers(2, 4))].tolist())
        actions = tuple(actions[i] for i in available)
    avoidable = [item.name for item in game.items] if isinstance(game, Snake) else ["holes"]
    avoid = _pick(avoidable, rng) if rng.random() < 0.15 else ""
    return GameVariant(game, actions, "hole" if avoid == "holes" else avoid)


def random_lake(rng: np.random.Generator) -> FrozenLake:
    """A lake with random size, holes, slipperiness and horizon."""
    size = int(rng.choice([4, 6, 8], p=[0.7, 0.15, 0.15]))
    frozen = float(rng.uniform(0.65, 0.95)) if size == 4 else float(rng.uniform(0.8, 0.95))
    horizon = int(rng.integers(5, 41)) if rng.random() < 0.5 else int(_pick([8, 15, 20], rng))
    return FrozenLake("pretraining", size, frozen, bool(rng.random() < 0.3), horizon)


def random_snake(rng: np.random.Generator) -> Snake:
    """A registered Snake, unchanged or with other rewards, counts and horizon."""
    small = rng.random() < 0.55
    name = "Snake-Solo-v1" if small else _pick([i for i in GAMES if i.startswith("Snake") and "Solo" not in i], rng)
    game = GAMES[name]
    assert isinstance(game, Snake)
    if rng.random() < 0.5:
        counts = [(int(rng.integers(1, APPLE.count + 1)), float(rng.integers(-5, 11))) for _ in game.items]
        items = tuple(replace(item, count=count, reward=reward) for item, (count, reward) in zip(game.items, counts, strict=True))
        game = replace(game, items=items, horizon=int(rng.integers(5, 41)), death_reward=float(-rng.integers(1, 6)))
    return game


def random_state(game: Game, rng: np.random.Generator) -> Any:
    """A random state that no play produced: a random cell of the ice, or snakes of random shape."""
    start = game.initial_state(rng)
    if not isinstance(game, Snake):
        cells = [(r, c) for r in range(game.rows) for c in range(game.columns)]
        return replace(start, player=_pick([c for c in cells if c not in start.holes and c != start.goal], rng))
    taken = {cell for cells in start.items for cell in cells}
    snake = _random_body(start.snake[0], game.size, taken | set(start.opponent), rng)
    opponent = _random_body(start.opponent[0], game.size, taken | set(snake), rng) if start.opponent else ()
    return replace(start, snake=snake, opponent=opponent)


def _random_body(head: Cell, size: int, taken: set[Cell], rng: np.random.Generator) -> tuple[Cell, ...]:
    """A self-avoiding walk of random length from the head."""
    body = [head]
    for _ in range(int(rng.integers(0, 8))):
        cells = [neighbour(body[-1], action) for action in DIRECTIONS]
        free = [cell for cell in cells if inside(cell, size, size) and cell not in taken and cell not in body]
        if not free:
            break
        body.append(_pick(free, rng))
    return tuple(body)
