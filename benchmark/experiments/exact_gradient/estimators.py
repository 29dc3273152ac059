"""The estimators of the policy gradient: a credit, as training uses it, and a selection of episodes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmark.experiments.exact_gradient.exact import Floats
from benchmark.experiments.exact_gradient.hgpo import HierarchyOfGroups
from benchmark.experiments.exact_gradient.selection import Selection
from benchmark.experiments.exact_gradient.simulation import Simulator
from msgrpo_hub.credit import CREDITS, Credit, CreditContext, as_credit, step_advantages
from msgrpo_hub.episode import Group
from msgrpo_hub.msgrpo import composite_return, group_advantages, unscaled

# Shapes: G episodes of a group, E = N · O entries of the policy's table.


class Estimator(NamedTuple):
    """An estimator by the names of its parts."""

    credit: str
    selection: str = "all"

    @property
    def name(self) -> str:
        return self.credit if self.selection == "all" else f"{self.credit}; {self.selection}"


MS_GRPO = "whole episode / std"
"""The credit of the paper."""

EXACT = "exact advantage"

ESTIMATORS = [
    *(Estimator(MS_GRPO, selection) for selection in ("all", "AAW", "AAW, corrected", "uniform", "top", "max-variance")),
    *map(Estimator, ("whole episode", "reward-to-go / std", "reward-to-go", "anchor states / std", "anchor states")),
    *map(Estimator, ("critic, λ = 1", "critic, λ = 0.9", "critic, λ = 0.5", EXACT)),
]
"""What the first units measured."""

LATER = {"HGPO": [Estimator("HGPO / std"), Estimator("HGPO")]}
"""Estimators that came later, by the name under which they have units of their own."""


class ScaledCredit(NamedTuple):
    """A credit, and what it knows besides the episodes."""

    credit: Credit
    context: CreditContext


def built_in_credits(format_penalty: float) -> dict[str, ScaledCredit]:
    """The credits of the package, with the group's standard deviation and without."""
    found = {"whole episode": "whole-episode", "reward-to-go": "reward-to-go", "anchor states": "anchor-state"}
    return with_and_without_std({name: as_credit(CREDITS[built_in]) for name, built_in in found.items()}, format_penalty)


def hgpo(history: int, format_penalty: float) -> dict[str, ScaledCredit]:
    """HGPO with this many past observations, with the groups' standard deviation and without."""
    return with_and_without_std({"HGPO": HierarchyOfGroups(history=history)}, format_penalty)


def with_and_without_std(credits: Mapping[str, Credit], format_penalty: float) -> dict[str, ScaledCredit]:
    """Each credit twice, as `NAME / std` and as `NAME`."""
    std, none = CreditContext(format_penalty=format_penalty), CreditContext(format_penalty=format_penalty, scale=unscaled)
    return {
        **{f"{name} / std": ScaledCredit(credit, std) for name, credit in credits.items()},
        **{name: ScaledCredit(credit, none) for name, credit in credits.items()},
    }


@dataclass(kw_only=True)
class Estimation:
    """Turns the groups of an update into the gradient that each estimator makes of them."""

    simulator: Simulator
    credits: Mapping[str, ScaledCredit]
    selections: Mapping[str, Selection]
    count: int
    """G', the number of episodes that a selection keeps of each group."""
    generator: torch.Generator
    """Randomness of the selections."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Processor time that each credit has taken."""

    def weights(self, groups: Sequence[Group], estimators: Sequence[Estimator]) -> list[Floats]:
        """Per estimator (E,), the weight of each ∇log π(a | s) in its gradient, the mean over the groups.

        The gradient of a group is Σ_j c_j Σ_t A_{j,t} ∇log π(a_{j,t} | s_{j,t}), where c_j is the weight of episode j.
        """
        size = self.simulator.probabilities.size
        totals = [np.zeros(size) for _ in estimators]
        for group in groups:
            entries = self.simulator.entries(group.episodes)
            lengths = torch.tensor([len(episode.steps) for episode in group.episodes])
            credited = {name: self._credited(name, group) for name in dict.fromkeys(e.credit for e in estimators)}
            selected = self._selected(group, dict.fromkeys(e.selection for e in estimators))
            for total, estimator in zip(totals, estimators, strict=True):
                of_steps = credited[estimator.credit] * selected[estimator.selection].repeat_interleave(lengths)
                total += np.bincount(entries, of_steps.numpy(), size) / len(groups)
        return totals

    def _credited(self, name: str, group: Group) -> Tensor:
        """The advantages of a group's steps, step after step."""
        credit, context = self.credits[name]
        began = time.process_time()
        (of_group,) = step_advantages(credit, [group], [returns_of(group, context)], context)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began
        return torch.cat(of_group).double()

    def _selected(self, group: Group, names: Mapping[str, None]) -> dict[str, Tensor]:
        """Per selection (G,), the weights of the episodes. Episodes are selected by the paper's advantages."""
        advantages = group_advantages(returns_of(group, self.credits[MS_GRPO].context))
        return {name: self.selections[name](advantages, self.count, self.generator) for name in names}


def returns_of(group: Group, context: CreditContext) -> Tensor:
    """(G,) the composite returns."""
    return torch.tensor([composite_return(episode, context.format_penalty) for episode in group.episodes])
