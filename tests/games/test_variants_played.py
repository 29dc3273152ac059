"""A player that reads wins every variant, and one with a habit loses."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.games import VARIANTS, episode_seed, make_game
from msgrpo_hub.rollout import play_episodes
from tests.games.reading_player import LAKE, PLAIN_MOVES, SNAKE, Cell, read_board, read_moves


def first_step(start: Cell, wanted: set[Cell], blocked: set[Cell], size: int, moves: dict[str, Cell]) -> str:
    """The first action of a shortest way; among equally short ones by direction, whatever the directions are called."""
    ordered = sorted(moves, key=lambda name: moves[name])
    queue, seen = deque([(start, "")]), {start, *blocked}
    while queue:
        (r, c), first = queue.popleft()
        if (r, c) in wanted:
            return first
        for name in ordered:
            cell = (r + moves[name][0], c + moves[name][1])
            if 0 <= cell[0] < size and 0 <= cell[1] < size and cell not in seen:
                seen.add(cell)
                queue.append((cell, first or name))
    return ordered[0]


@dataclass(frozen=True)
class Reader:
    """Walks to the goal, or to the nearest apple, by what is written and drawn."""

    size: int

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        return [Completion(text=f"<action>{self.choose(prompt.system, prompt.observation)}</action>") for prompt in prompts]

    def choose(self, system: str, observation: str) -> str:
        board, moves = read_board(system, observation), read_moves(system)
        [me] = board.get("you") or board["your head"]
        blocked = {cell for name, cells in board.items() if name in ("hole", "your body") or "opponent" in name for cell in cells}
        return first_step(me, board.get("goal") or board["apple"], blocked, self.size, moves)


def held_out(game_id: str, count: int) -> list[tuple[int, int]]:
    return [(episode_seed(game_id, "test", index), 0) for index in range(count)]


def rewards(game_id: str, count: int) -> list[float]:
    game = make_game(game_id)
    return [episode.reward for episode in play_episodes(game, Reader(game.rows), held_out(game_id, count))]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_player_that_reads_wins_every_lake_however_it_is_told(variant: str) -> None:
    assert rewards(f"{LAKE}:{variant}", 40) == rewards(LAKE, 40) == [1.0] * 40


@pytest.mark.parametrize("game", [SNAKE, "FrozenLake-Slippery-v1"])
@pytest.mark.parametrize("variant", ["compass", "permuted-actions", "other-symbols", "coordinates", "grid"])
def test_where_only_words_change_a_player_that_reads_plays_the_very_same_episodes(game: str, variant: str) -> None:
    plain = rewards(game, 30)
    assert rewards(f"{game}:{variant}", 30) == plain
    assert np.ptp(plain) > 0  # luck and apples: equal rewards mean something


def test_a_player_with_a_habit_loses_where_the_words_change() -> None:
    """The control of the tests above: answering by the plain rules fails, so the variants do test reading."""

    class Habit(Reader):
        def choose(self, system: str, observation: str) -> str:
            return super().choose(re.sub("Here Down moves.*", PLAIN_MOVES, system), observation)

    game = make_game(f"{LAKE}:permuted-actions")
    assert sum(episode.reward for episode in play_episodes(game, Habit(game.rows), held_out(LAKE, 40))) <= 20
