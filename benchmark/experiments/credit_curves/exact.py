"""The exact advantage of the policy in training, as the credit of a run: the ceiling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from benchmark.experiments.exact_gradient.exact import Solution, observations_of, solve_policy
from benchmark.experiments.exact_gradient.exact_credit import advantages_of, exact_advantages
from benchmark.experiments.exact_gradient.policy import FixedReplies
from msgrpo_hub.agent.policy import format_of
from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.credit import CreditContext, StepAdvantages
from msgrpo_hub.episode import Group
from msgrpo_hub.games import stream
from msgrpo_hub.training.trainer import Trainer


class OwnAdvantage:
    """Solves the start of every group for Q and V of the policy as it is, restricted to the replies that name an action, and ⊥.

    The run itself samples without restriction: the advantages are exact up to the probability of all other replies.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.agent, self.games = trainer.agent, trainer.starts.games

    def advantages(self, groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:  # noqa: ARG002
        return [of_group for group in groups for of_group in self._of_group(group, context)]

    def _of_group(self, group: Group, context: CreditContext) -> StepAdvantages:
        game: Any = self.games[group.game_id]
        solution = self._solved(game, game.initial_state(stream(group.seed, "initial_state")), context.format_penalty)
        return exact_advantages(advantages_of(game, [solution]), [group])

    def _solved(self, game: Any, start: Any, format_penalty: float) -> Solution:
        shown = observations_of(game, [start])
        prompts = [build_prompt(game, state, format_of(self.agent)) for state in shown.values()]
        with torch.no_grad():
            table = FixedReplies(self.agent, prompts).log_probabilities().double().exp().numpy()
        row_of = {observation: row for row, observation in enumerate(shown)}
        return solve_policy(game, start, lambda state: table[row_of[game.observe(state)]], format_penalty)
