"""What a player of a solved game can reach at most that leaves out some moves, by backward induction.

On slippery ice the best move is often one into a wall: it slips along the wall and never ahead. The base was made from moves
that are never into a wall, so what it explores is not all that there is to learn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from benchmark.experiments.experiment import Values
from msgrpo_hub.games import episode_seed, make_game, stream
from msgrpo_hub.games.game import Solvable, is_solvable

CEILING = "best "
"""How the name of a player begins that is the best of those that leave out some moves."""

AHEAD = ("Down", "Right")
"""The moves towards the goal, in the lower right corner."""

Moves = Callable[[Any], Sequence[str]]
"""State → the moves that are left."""


def moves_left(game: Solvable, player: str) -> Moves:
    """The moves of a player that `config.toml` names."""

    def off_walls(state: Any) -> Sequence[str]:
        return tuple(game.legal_actions(state))

    def ahead_off_walls(state: Any) -> Sequence[str]:
        return tuple(move for move in off_walls(state) if move in AHEAD) or off_walls(state)

    return {
        "best without moves into walls": off_walls,
        "best with Down and Right alone": lambda _: AHEAD,
        "best with Down and Right alone and without moves into walls": ahead_off_walls,
    }[player]


def best_value(game: Solvable, start: Any, moves: Moves) -> float:
    """The expected return from a state of the best player that only makes these moves."""

    @cache
    def value(state: Any) -> float:
        return max(
            sum(
                chance * (after.reward + (0.0 if after.terminated or after.truncated else value(after.state)))
                for chance, after in game.outcomes(state, move)
            )
            for move in moves(state)
        )

    return value(start)


def ceiling(player: str, game_id: str, episodes: int) -> Values:
    """The values of the starts of the test episodes, as rewards: exact expectations, in which luck has no part."""
    game = make_game(game_id)
    assert is_solvable(game)
    seeds = [episode_seed(game.id, "test", index) for index in range(episodes)]
    moves = moves_left(game, player)
    values = [round(best_value(game, game.initial_state(stream(seed, "initial_state")), moves), 6) for seed in seeds]
    return {"rewards": values, "luck_adjusted": values}
