"""Credits beside the paper's: how the return of an episode becomes an advantage of each of its steps.

A credit of your own is a function `(groups, returns, context) → advantages`, or an object that can be called so. A credit that
learns also has a state and an update (`LearningCredit`). The sampler always selects episodes by |A_j| of their returns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from msgrpo_hub.episode import Group, Step
from msgrpo_hub.msgrpo import Credit as Credit
from msgrpo_hub.msgrpo import CreditContext as CreditContext
from msgrpo_hub.msgrpo import StepAdvantages as StepAdvantages
from msgrpo_hub.msgrpo import group_advantages, whole_episode

# Shapes: G episodes of a group, S steps of an episode.


@runtime_checkable
class LearningCredit(Credit, Protocol):
    """A credit that learns, such as a critic. The checkpoint of a run stores its state."""

    def update(self, groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> Mapping[str, float]:
        """Learns from the episodes of an update, after it has credited them. Returns metrics, which are logged as `credit/NAME`.

        Every process of a run receives all episodes and must reach the same state.
        """

    def state_dict(self) -> dict[str, Tensor]:
        """The learned state."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Any:
        """Restores a state from `state_dict`."""


def reward_to_go(groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:
    """The return from step t on, minus its mean over the group at turn t, where a finished episode counts as 0.

    All turns have the scale of A_j, so late turns with little spread are not amplified. A group of equal returns gets 0.
    """
    result = []
    for group, of_group in zip(groups, returns, strict=True):
        to_go = torch.nn.utils.rnn.pad_sequence([context.returns_to_go(episode) for episode in group.episodes])  # (turns, G)
        centred = to_go - to_go.mean(1, keepdim=True)
        varies = bool(group_advantages(of_group, context.scale).any())
        advantages = centred / context.scale(of_group - of_group.mean()) if varies else torch.zeros_like(centred)
        result.append([advantages[: len(episode.steps), j] for j, episode in enumerate(group.episodes)])
    return result


def anchor_state(
    groups: Sequence[Group],
    returns: Sequence[Tensor],
    context: CreditContext,
    omega: float = 1.0,
    key: Callable[[Step, int], Hashable] = lambda step, turn: (step.observation, turn),
) -> StepAdvantages:
    """GiGPO (arXiv 2505.10978): A_E + ω·A_S, the episode's advantage plus the step's advantage among steps from the same state.

    A_S compares the undiscounted returns to go, including Φ, of all steps of the group with the same `key(step, turn)`, by
    default the board and the turn. It is normalised like A_E. A step with a unique key has A_S = 0.
    """
    result = []
    for group, of_episodes in zip(groups, whole_episode(groups, returns, context), strict=True):
        to_go = [context.returns_to_go(episode) for episode in group.episodes]
        of_steps = [torch.zeros_like(returns) for returns in to_go]
        anchors: dict[Hashable, list[tuple[int, int]]] = {}
        for j, episode in enumerate(group.episodes):
            for turn, step in enumerate(episode.steps):
                anchors.setdefault(key(step, turn), []).append((j, turn))
        for indices in anchors.values():
            compared = group_advantages(torch.stack([to_go[j][turn] for j, turn in indices]), context.scale)
            for (j, turn), advantage in zip(indices, compared, strict=True):
                of_steps[j][turn] = advantage
        result.append([a + omega * b for a, b in zip(of_episodes, of_steps, strict=True)])
    return result


CREDITS: dict[str, Credit] = {
    "whole-episode": whole_episode,
    "reward-to-go": reward_to_go,
    "anchor-state": anchor_state,
}
