"""A critic as a credit: a linear value head over the base's last hidden state, trained by TD(λ).

msgrpo train --preset quickstart --credit benchmark.experiments.exact_gradient.critic:Critic --output-dir runs/critic
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from msgrpo_hub.credit import CreditContext, StepAdvantages
from msgrpo_hub.episode import Episode, Group
from msgrpo_hub.models.language_model import LanguageModel

# Shapes: S steps of an episode, F features, K situations.

Situation = tuple[tuple[int, ...], int]
"""(tokens of a prompt, turn): a prompt does not show the turn, and values depend on it."""

TURNS = 10.0
"""Turns are counted in tens, so that all features have about the same size."""


class Critic:
    """Advantages are those of GAE without discount: A_t = Σ_k λ^k δ_{t+k} with δ_t = r_t + V(s_{t+1}) − V(s_t).

    V(s, t) is linear in [h, h·t, 1, t], where h is the hidden state of the base, without adapter, at the end of the prompt.
    Its targets are the λ-returns A_t + V(s_t) (TD(λ), Sutton 1988; GAE, Schulman et al., arXiv 1506.02438), and its fit is the
    ridge regression on all targets so far, those of older updates counting less.

    Args:
        trace: λ; with 1, the return to go less a baseline, which has no bias whatever V is.
        memory: the weight of an update's targets falls by this factor with each further update.
        ridge: regularisation, counted in steps.
        base: the model whose hidden states are the features.
    """

    def __init__(self, trace: float = 0.9, memory: float = 0.9, ridge: float = 0.1, base: str = "pocket") -> None:
        self.trace, self.memory, self.ridge, self.base = trace, memory, ridge, base
        self._moments: Tensor | None = None
        self._hidden: dict[tuple[int, ...], Tensor] = {}
        self._features: dict[Situation, Tensor] = {}
        self._values: dict[Situation, float] = {}

    def advantages(self, groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:  # noqa: ARG002
        """The advantages of GAE; they are neither centred nor scaled over the group."""
        return [[self._errors(episode, context) for episode in group.episodes] for group in groups]

    def update(self, groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> Mapping[str, float]:  # noqa: ARG002
        """Fits V to the λ-returns of these episodes. Returns the mean squared advantage before the fit."""
        episodes = [episode for group in groups for episode in group.episodes]
        met = [situation for episode in episodes for situation in situations(episode)]
        errors = torch.cat([self._errors(episode, context) for episode in episodes]).double()
        targets = errors + torch.tensor([self.value(situation) for situation in met], dtype=torch.float64)
        rows = torch.cat([torch.stack([self._features[situation] for situation in met]), targets[:, None]], dim=1)
        before = 0.0 if self._moments is None else self._moments
        self.load_state_dict({"moments": self.memory * before + rows.T @ rows})
        return {"squared_advantage": float(errors.square().mean())}

    def state_dict(self) -> dict[str, Tensor]:
        """The second moments of features and targets, (F + 1, F + 1)."""
        return {} if self._moments is None else {"moments": self._moments}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restores the moments and solves for the head."""
        self._moments = state.get("moments")
        self._values.clear()
        vars(self).pop("_head", None)

    def value(self, situation: Situation) -> float:
        """V of a situation; 0 before the first update."""
        if situation not in self._values:
            self._values[situation] = float(self._features_of(situation) @ self._head)
        return self._values[situation]

    def _errors(self, episode: Episode, context: CreditContext) -> Tensor:
        """(S,) the advantages of an episode, backwards: A_t = δ_t + λ A_{t+1}."""
        values = [*map(self.value, situations(episode)), 0.0]
        advantages, later = list[float](), 0.0
        for turn, reward in reversed(list(enumerate(context.rewards(episode).tolist()))):
            later = reward + values[turn + 1] - values[turn] + self.trace * later
            advantages.append(later)
        return torch.tensor(advantages[::-1])

    @cached_property
    def _head(self) -> Tensor:
        """(F,) the weights of V."""
        if self._moments is None:
            return torch.zeros(2 * self._agent.model.config.hidden_size + 2, dtype=torch.float64)
        products, targets = self._moments[:-1, :-1], self._moments[:-1, -1]
        head: Tensor = torch.linalg.solve(products + self.ridge * torch.eye(len(products), dtype=products.dtype), targets)
        return head

    @cached_property
    def _agent(self) -> LanguageModel:
        return LanguageModel.from_pretrained(self.base)

    @torch.no_grad()
    def _features_of(self, situation: Situation) -> Tensor:
        """(F,) [h, h·t, 1, t]."""
        prompt, turn = situation
        if prompt not in self._hidden:
            body = self._agent.model.base_model
            self._hidden[prompt] = body(input_ids=torch.tensor([prompt])).last_hidden_state[0, -1].double()
        if situation not in self._features:
            one = torch.cat([self._hidden[prompt], torch.ones(1)])
            self._features[situation] = torch.cat([one, one * turn / TURNS])
        return self._features[situation]


def situations(episode: Episode) -> Iterable[Situation]:
    """The prompt and the turn of each step."""
    return [(step.completion.prompt_ids, turn) for turn, step in enumerate(episode.steps)]
