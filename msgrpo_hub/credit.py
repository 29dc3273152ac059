"""Credit: how the return of an episode becomes an advantage of each of its steps.

The paper credits every step with the whole episode (`whole_episode`). A credit of your own is a function
`(groups, returns, context) → advantages`, or an object with that method. A credit that learns also has a state and an update
(`LearningCredit`). With any credit, episodes are selected by |A_j| of their returns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from msgrpo_hub.episode import Episode, Group, Step
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import stream
from msgrpo_hub.msgrpo import (
    Sampler,
    Scale,
    SelectedEpisode,
    composite_return,
    group_advantages,
    select_episodes,
    standard_deviation,
)

# Shapes: G episodes of a group, S steps of an episode.

StepAdvantages = list[list[Tensor]]
"""Per group and episode, one advantage per step: (S,)."""


@dataclass(frozen=True, kw_only=True)
class CreditContext:
    """What a credit may know besides the episodes and their returns."""

    format_penalty: float = 0.0
    """Taken from the reward of each unparsed reply [−Φ]."""
    scale: Scale = standard_deviation
    """What centred returns are divided by."""
    update: int = 1
    """Number of the update, from 1."""

    def rewards(self, episode: Episode) -> Tensor:
        """(S,) r_t + Φ_t of an episode; their sum is its composite return C."""
        return torch.tensor([step.reward - self.format_penalty * (step.action is None) for step in episode.steps])

    def returns_to_go(self, episode: Episode) -> Tensor:
        """(S,) Σ_{t' ≥ t} (r_{t'} + Φ_{t'}), undiscounted."""
        return self.rewards(episode).flip(0).cumsum(0).flip(0)


class Credit(Protocol):
    """Gives each step its advantage."""

    def advantages(self, groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:
        """One advantage per step of every episode.

        Args:
            groups: the groups of an update, all episodes of each.
            returns: per group (G,), the composite returns C.
            context: the rewards with their format penalty, and how advantages are scaled.

        Returns:
            Per group and episode (S,). A group in which all are 0 is left out of the update.
        """


@runtime_checkable
class LearningCredit(Credit, Protocol):
    """A credit that learns, such as a critic. Its state is kept in the checkpoint of a run."""

    def update(self, groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> Mapping[str, float]:
        """Learns from an update's episodes, after they were credited. Returns metrics, which are logged as `credit/NAME`.

        Every process of a run sees all episodes and must arrive at the same state.
        """

    def state_dict(self) -> dict[str, Tensor]:
        """The learned state."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Any:
        """Restores a state from `state_dict`."""


CreditFunction = Callable[[Sequence[Group], Sequence[Tensor], CreditContext], StepAdvantages]


@dataclass(frozen=True)
class FunctionCredit:
    """A plain function as a credit."""

    function: CreditFunction

    def advantages(self, groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:
        return self.function(groups, returns, context)


def as_credit(credit: Credit | CreditFunction) -> Credit:
    """A credit unchanged, or a plain function wrapped. Raises `UserError` for anything else."""
    if not (hasattr(credit, "advantages") or callable(credit)):
        raise UserError(f"the credit is of type {type(credit).__name__}: expected a function, or an object with `advantages`")
    return credit if hasattr(credit, "advantages") else FunctionCredit(credit)


def whole_episode(groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:
    """The paper's credit: every step of episode j gets A_j, the advantage of the episode's return."""
    return [
        [
            a.expand(len(episode.steps))
            for a, episode in zip(group_advantages(of_group, context.scale), group.episodes, strict=True)
        ]
        for group, of_group in zip(groups, returns, strict=True)
    ]


def reward_to_go(groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:
    """The return from step t on, minus its mean over the group at turn t, with the scale of A_j.

    An episode that has ended counts as 0 in the mean. Step 0 has the advantage A_j. All turns have the same scale, so late
    turns with little spread are not amplified. A group whose returns are all equal gets 0.
    """
    return [_to_go(group, of_group, context) for group, of_group in zip(groups, returns, strict=True)]


def _to_go(group: Group, returns: Tensor, context: CreditContext) -> list[Tensor]:
    to_go = torch.nn.utils.rnn.pad_sequence([context.returns_to_go(episode) for episode in group.episodes])  # (turns, G)
    centred = to_go - to_go.mean(1, keepdim=True)
    varies = bool(group_advantages(returns, context.scale).any())
    advantages = centred / context.scale(returns - returns.mean()) if varies else torch.zeros_like(centred)
    return [advantages[: len(episode.steps), j] for j, episode in enumerate(group.episodes)]


def observation_and_turn(step: Step, turn: int) -> Hashable:
    """Steps that show the same board on the same turn are compared."""
    return step.observation, turn


@dataclass(frozen=True, kw_only=True)
class AnchorState:
    """GiGPO (arXiv 2505.10978): A_E + ω·A_S, the episode's advantage plus that among the steps from the same state.

    A_S compares the undiscounted returns to go, including Φ, of all steps of the group with the same key. It is normalised
    like A_E. A step with a unique key has A_S = 0.
    """

    omega: float = 1.0
    """ω, the weight of the step's own advantage."""
    key: Callable[[Step, int], Hashable] = observation_and_turn
    """(step, turn) → key; two states of a group are the same if their keys are equal."""

    def advantages(self, groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:
        episodes = whole_episode(groups, returns, context)
        steps = [self._among_steps(group, context) for group in groups]
        return [
            [a + self.omega * b for a, b in zip(of_episodes, of_steps, strict=True)]
            for of_episodes, of_steps in zip(episodes, steps, strict=True)
        ]

    def _among_steps(self, group: Group, context: CreditContext) -> list[Tensor]:
        to_go = [context.returns_to_go(episode) for episode in group.episodes]
        advantages = [torch.zeros_like(returns) for returns in to_go]
        anchors: dict[Hashable, list[tuple[int, int]]] = {}
        for j, episode in enumerate(group.episodes):
            for turn, step in enumerate(episode.steps):
                anchors.setdefault(self.key(step, turn), []).append((j, turn))
        for indices in anchors.values():
            compared = group_advantages(torch.stack([to_go[j][turn] for j, turn in indices]), context.scale)
            for (j, turn), advantage in zip(indices, compared, strict=True):
                advantages[j][turn] = advantage
        return advantages


CREDITS: dict[str, Credit | CreditFunction] = {
    "whole-episode": whole_episode,
    "reward-to-go": reward_to_go,
    "anchor-state": AnchorState(),
}


def step_advantages(credit: Credit, groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:
    """The advantages of a credit, checked.

    Raises:
        UserError: the result is not one finite number per step of every episode.
    """
    result = credit.advantages(groups, returns, context)
    expected = [[len(episode.steps) for episode in group.episodes] for group in groups]
    try:
        tensors = [[torch.as_tensor(steps, dtype=torch.float32) for steps in of_group] for of_group in result]
    except (TypeError, ValueError) as error:
        raise UserError(f"the credit gave no numbers ({error}): expected one per step of every episode") from error
    if [[tuple(steps.shape) for steps in of_group] for of_group in tensors] != [[(n,) for n in row] for row in expected]:
        raise UserError("the credit gave advantages of another shape: expected one per step of every episode of every group")
    if not all(bool(torch.isfinite(steps).all()) for of_group in tensors for steps in of_group):
        raise UserError("the credit gave advantages that are not finite: expected one number per step of every episode")
    return tensors


class Selection(NamedTuple):
    """What comes between acting and learning."""

    returns: list[Tensor]
    """Per group (G,), the composite returns C."""
    context: CreditContext
    advantages: list[Tensor]
    """Per group (G,), A_j of the returns."""
    step_advantages: StepAdvantages
    selected: list[SelectedEpisode]


def select(groups: Sequence[Group], credit: Credit, sampler: Sampler, context: CreditContext, count: int, seed: int) -> Selection:
    """The advantages of an update's episodes, and the episodes that the update learns from.

    Args:
        groups: the groups of the update, in the order in which they were played.
        credit: gives each step its advantage.
        sampler: selects the episodes of a group.
        context: format penalty, scale and number of the update.
        count: G', the number of episodes per group.
        seed: seed of the run.
    """
    returns = [torch.tensor([composite_return(e, context.format_penalty) for e in group.episodes]) for group in groups]
    advantages = [group_advantages(of_group, context.scale) for of_group in returns]
    of_steps = step_advantages(credit, groups, returns, context)
    generator = torch.Generator().manual_seed(int(stream(seed, "drawing", context.update).integers(2**62)))
    selected = select_episodes(groups, advantages, of_steps, count, sampler, generator)
    return Selection(returns, context, advantages, of_steps, selected)
