"""Snake: walls kill, items give rewards, and one opponent moves at random. The rules follow the authors' published engine.

Both heads move at the same time. If they meet, both snakes die. A snake also dies on any cell that was occupied *before* the
move, tails included. With "no action" (⊥), the snake stays where it is and the opponent moves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from msgrpo_hub.games.board import CELL_RULES, Cell, View, cells_text, grid_rows, inside, neighbour, observation
from msgrpo_hub.games.game import Body, Scene, SquareBoard, Transition, check_turn


@dataclass(frozen=True, slots=True)
class Item:
    """A kind of object on the board: its reward, how many there are, and whether eating one makes the snake longer."""

    name: str
    symbol: str
    count: int
    reward: float
    grows: bool = True


APPLE = Item("apple", "A", 5, 1.0)
Items = tuple[tuple[Cell, ...], ...]
"""The cells of each kind of item."""


@dataclass(frozen=True, slots=True)
class SnakeState:
    """Both snakes (head first; an empty opponent means none), the cells of each kind of item, and the turn."""

    snake: tuple[Cell, ...]
    opponent: tuple[Cell, ...]
    items: Items
    turn: int = 0
    alive: bool = True
    opponent_alive: bool = True

    @property
    def terminal(self) -> bool:
        return not (self.alive and self.opponent_alive)


@dataclass(frozen=True)
class Snake(SquareBoard):
    """Collect items and stay alive. The episode ends when either snake is dead, or at the horizon."""

    id: str
    size: int = 10
    horizon: int = 20
    items: tuple[Item, ...] = (APPLE,)
    has_opponent: bool = True
    death_reward: float = -2.0
    down_hill: bool = False
    view: View = "full"

    instructions = "You steer a snake. Collect as much reward as you can and stay alive."

    def __post_init__(self) -> None:
        opponent = {"X": "opponent head", "x": "opponent body"} if self.has_opponent else {}
        symbols = {".": "free", "@": "your head", "#": "your body", **opponent, **{i.symbol: i.name for i in self.items}}
        poison = {item.symbol: "poison apple" for item in self.items if item.name == "apple" and item.reward < 0}
        # The worst or best item on every turn; the last turn may be a death instead, since a snake dies once.
        low, high = (bound([0.0, *(item.reward for item in self.items)]) for bound in (min, max))
        worst, best = min(low, self.death_reward), max(high, self.death_reward)
        rules = [
            *CELL_RULES,
            f"A wall, your body or another snake kills you: that gives {self.death_reward:g} and ends the game.",
        ]
        for item in self.items:
            grows = " and makes you one cell longer" if item.grows else ""
            article = "An" if item.name[0] in "aeiou" else "A"
            rules.append(f"{article} {item.name} gives {item.reward:g}{grows}; then it appears elsewhere.")
        if self.has_opponent:
            rules.append("An opponent snake moves at random. The game ends when it dies. If the heads meet, both die.")
        if self.down_hill:
            rules.append("Items roll one cell Down each turn.")
        legend = ", ".join(f"{symbol} is {name}" for symbol, name in symbols.items())
        rules += [f"The game ends after {self.horizon} turns.", f"In the grid {legend}."]
        vars(self).update(rows=self.size, columns=self.size, symbols=symbols, pictures=symbols | poison, rules=tuple(rules))
        turns = self.horizon - 1
        vars(self).update(reward_range=(worst, best), return_range=(turns * low + worst, turns * high + best))

    def initial_state(self, rng: np.random.Generator) -> SnakeState:
        total = 1 + self.has_opponent + sum(item.count for item in self.items)
        indices = rng.permutation(self.size * self.size)[:total].tolist()
        cells = [divmod(index, self.size) for index in indices]
        snake, opponent = (cells.pop(),), ((cells.pop(),) if self.has_opponent else ())
        items = tuple(tuple(sorted(cells.pop() for _ in range(item.count))) for item in self.items)
        return SnakeState(snake, opponent, items)

    def step(self, state: SnakeState, action: str | None, rng: np.random.Generator) -> Transition[SnakeState]:
        check_turn(self, action, state.terminal or state.turn >= self.horizon)
        head = neighbour(state.snake[0], action) if action else None
        other = self._opponent_head(state, rng)
        occupied = {*state.snake, *state.opponent}
        alive = head is None or (inside(head, self.size, self.size) and head not in occupied and head != other)
        opponent_alive = other is None or (inside(other, self.size, self.size) and other not in occupied and other != head)
        reward = 0.0 if alive else self.death_reward
        after = replace(state, turn=state.turn + 1, alive=alive, opponent_alive=opponent_alive)
        if self.down_hill:
            after = self._roll(after)
        if alive and head is not None:
            snake, items, reward = self._enter(head, after.snake, after.items)
            after = replace(after, snake=snake, items=items)
        if opponent_alive and other is not None:
            opponent, items, _ = self._enter(other, after.opponent, after.items)
            after = replace(after, opponent=opponent, items=items)
        after = self._replenish(after, rng)
        return Transition(after, reward, after.terminal, not after.terminal and after.turn >= self.horizon)

    def _opponent_head(self, state: SnakeState, rng: np.random.Generator) -> Cell | None:
        """The opponent moves uniformly among the moves that hit neither a wall nor itself (any move if none is left)."""
        if not state.opponent:
            return None
        cells = [neighbour(state.opponent[0], action) for action in self.actions]
        open_cells = [cell for cell in cells if inside(cell, self.size, self.size) and cell not in state.opponent] or cells
        return open_cells[int(rng.integers(len(open_cells)))]

    def _enter(self, head: Cell, body: tuple[Cell, ...], items: Items) -> tuple[tuple[Cell, ...], Items, float]:
        """The body and the items after a head enters a cell, and the reward of the item there."""
        eaten = next((item for item, cells in zip(self.items, items, strict=True) if head in cells), None)
        grows = eaten is not None and eaten.grows
        left = tuple(tuple(cell for cell in cells if cell != head) for cells in items)
        return (head, *(body if grows else body[:-1])), left, eaten.reward if eaten else 0.0

    def _roll(self, state: SnakeState) -> SnakeState:
        """Moves every item one cell down, except in the last row or above an occupied cell."""
        taken = {*state.snake, *state.opponent, *(c for cells in state.items for c in cells)}
        rolled: list[list[Cell]] = [[] for _ in state.items]
        kinds = {cell: kind for kind, cells in enumerate(state.items) for cell in cells}
        for cell in sorted(kinds, reverse=True):
            below = neighbour(cell, "Down")
            end = below if inside(below, self.size, self.size) and below not in taken else cell
            taken = taken - {cell} | {end}
            rolled[kinds[cell]].append(end)
        return replace(state, items=tuple(tuple(sorted(cells)) for cells in rolled))

    def _replenish(self, state: SnakeState, rng: np.random.Generator) -> SnakeState:
        """Eaten items reappear on uniformly random free cells, as long as there are any."""
        if all(len(cells) == item.count for item, cells in zip(self.items, state.items, strict=True)):
            return state
        taken = {*state.snake, *state.opponent, *(c for cells in state.items for c in cells)}
        items = []
        for item, cells in zip(self.items, state.items, strict=True):
            free = [(r, c) for r in range(self.size) for c in range(self.size) if (r, c) not in taken]
            missing = min(item.count - len(cells), len(free))
            new = [free[i] for i in rng.permutation(len(free))[:missing].tolist()]
            taken.update(new)
            items.append(tuple(sorted([*cells, *new])))
        return replace(state, items=tuple(items))

    def observe(self, state: SnakeState) -> str:
        lines = [f"Your head: {cells_text(state.snake[:1])}", f"Your body: {cells_text(state.snake[1:])}"]
        if self.has_opponent:
            lines += [f"Opponent head: {cells_text(state.opponent[:1])}", f"Opponent body: {cells_text(state.opponent[1:])}"]
        lines += [f"{item.name.capitalize()}s: {cells_text(cells)}" for item, cells in zip(self.items, state.items, strict=True)]
        return observation(lines, self.grid(state), self.view)

    def grid(self, state: SnakeState) -> list[str]:
        items = {cell: item.symbol for item, cells in zip(self.items, state.items, strict=True) for cell in cells}
        opponent = dict(zip(state.opponent, "X" + "x" * len(state.opponent), strict=False))
        snake = dict(zip(state.snake, "@" + "#" * len(state.snake), strict=False))
        return grid_rows(self.size, self.size, {**items, **opponent, **snake})

    def scene(self, state: SnakeState) -> Scene:
        bodies = (Body(cells=state.snake, alive=state.alive), Body(cells=state.opponent, alive=state.opponent_alive))
        return Scene(
            player=state.snake[0],
            bodies=tuple(body for body in bodies if body.cells),
            wanted=frozenset(cell for cells in state.items for cell in cells),
            blocked=frozenset((*state.snake, *state.opponent)),
            contested=frozenset(neighbour(head, action) for head in state.opponent[:1] for action in self.actions),
        )

    def succeeded(self, state: SnakeState) -> bool:
        return state.alive
