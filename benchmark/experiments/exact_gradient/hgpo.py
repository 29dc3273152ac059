"""HGPO (arXiv 2602.22817) as a credit: a step is compared among the steps that came about alike, at several depths of history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from msgrpo_hub.credit import CreditContext, StepAdvantages
from msgrpo_hub.episode import Group
from msgrpo_hub.msgrpo import group_advantages


@dataclass(frozen=True, kw_only=True)
class HierarchyOfGroups:
    """A = Σ_k w_k A_k / Σ_k w_k with w_k = (k + 1)^α, over the depths k = 1 … K + 1 at which A_k is not 0.

    The group of depth k of a step has all steps of the group of episodes whose last k observations, their own included, are
    the same. A_k is the step's return to go less its mean over that group, divided by the context's scale. There is no term
    of the whole episode.

    That is the estimator as its authors published it in code (recipe/hgpo of verl-agent), with their α = 1, and K = 2 of the
    two that the paper has, 2 and 4. Theirs discounts returns by 0.95 a turn; these, like all returns here, are undiscounted.
    """

    history: int = 2
    """K, the number of past observations that may count."""
    alpha: float = 1.0
    """α; with 0, all depths weigh the same."""

    def advantages(self, groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:  # noqa: ARG002
        return [self._of_group(group, context) for group in groups]

    def _of_group(self, group: Group, context: CreditContext) -> list[Tensor]:
        lengths = [len(episode.steps) for episode in group.episodes]
        to_go = torch.cat([context.returns_to_go(episode) for episode in group.episodes])
        sums, weights = torch.zeros_like(to_go), torch.zeros_like(to_go)
        for depth in range(1, self.history + 2):
            for steps in _alike(group, depth):
                advantages = group_advantages(to_go[steps], context.scale)
                weight = (depth + 1) ** self.alpha * (advantages.abs() > 1e-6)  # beyond rounding
                sums[steps] += weight * advantages
                weights[steps] += weight
        return list((sums / weights.clamp(min=1e-9)).split(lengths))


def _alike(group: Group, depth: int) -> list[list[int]]:
    """The groups of two or more steps with the same last `depth` observations. Steps are counted over all episodes."""
    found: dict[tuple[str, ...], list[int]] = {}
    first = 0
    for episode in group.episodes:
        seen = [step.observation for step in episode.steps]
        for turn in range(depth - 1, len(seen)):
            found.setdefault(tuple(seen[turn - depth + 1 : turn + 1]), []).append(first + turn)
        first += len(seen)
    return [steps for steps in found.values() if len(steps) > 1]
