"""The exact advantage as a credit: the ceiling that estimated advantages can reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from benchmark.experiments.exact_gradient.exact import Solution
from msgrpo_hub.credit import CreditContext, StepAdvantages
from msgrpo_hub.episode import Group
from msgrpo_hub.games.game import Solvable

Advantages = Mapping[tuple[str, int, str | None], float]
"""(observation, turn, action) → Q(s, a) − V(s)."""


def advantages_of(game: Solvable, solutions: Sequence[Solution]) -> Advantages:
    """The exact advantages of every state and action; the turn is that of the state."""
    return {
        (game.observe(state), state.turn, action): float(value) - solution.v[state]
        for solution in solutions
        for state, values in solution.q.items()
        for action, value in zip((*game.actions, None), values, strict=True)
    }


def exact_advantages(table: Advantages, groups: Sequence[Group]) -> StepAdvantages:
    """The advantage of each step, looked up."""
    return [
        [
            torch.tensor([table[step.observation, turn, step.action] for turn, step in enumerate(episode.steps)])
            for episode in group.episodes
        ]
        for group in groups
    ]


class ExactCredit:
    """The exact advantage, from Q and V of the policy. The game's states must have a `turn`."""

    def __init__(self, game: Solvable, solutions: Sequence[Solution]) -> None:
        self.table = advantages_of(game, solutions)

    def advantages(self, groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:  # noqa: ARG002
        return exact_advantages(self.table, groups)
