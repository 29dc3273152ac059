"""How an estimator weights the episodes of a group: all of them, a selection, or a selection corrected for its bias."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor

from msgrpo_hub.msgrpo import Sampler, sample_by_absolute_advantage, sample_max_variance, sample_top, sample_uniform

# Shapes: G episodes of a group.

Selection = Callable[[Tensor, int, torch.Generator], Tensor]
"""(advantages (G,), G', generator) → the weight of each episode in the sum over the group (G,)."""


def every(advantages: Tensor, count: int, generator: torch.Generator) -> Tensor:  # noqa: ARG001
    """All G episodes, 1 / G each."""
    return torch.full((len(advantages),), 1 / len(advantages), dtype=torch.float64)


def of_sampler(sampler: Sampler, advantages: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """1 / G' for each selected episode."""
    weights = torch.zeros(len(advantages), dtype=torch.float64)
    weights[sampler(advantages, count, generator)] = 1 / count
    return weights


def corrected(draws: int, advantages: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """AAW with inverse inclusion probabilities: 1 / (G π_j) for each selected episode (Horvitz and Thompson, 1952).

    Its expectation over the selection is the mean over the whole group.
    """
    weights = torch.zeros(len(advantages), dtype=torch.float64)
    selected = sample_by_absolute_advantage(advantages, count, generator)
    weights[selected] = 1 / (len(advantages) * inclusion_probabilities(advantages, count, draws)[selected])
    return weights


def inclusion_probabilities(advantages: Tensor, count: int, draws: int, tau: float = 1.0) -> Tensor:
    """(G,) the probability π_j that AAW selects each episode, simulated with a fixed generator.

    Drawing successively without replacement, with renormalised probabilities, is the same as taking the largest of
    log p_j + Gumbel noise (Yellott, 1977). Episodes with equal |A| are equally likely, so their frequencies are averaged.

    Args:
        advantages: (G,) of the group.
        count: G', the number selected.
        draws: number of simulated selections.
        tau: temperature of AAW.
    """
    distinct, group, members = advantages.abs().round(decimals=9).unique(return_inverse=True, return_counts=True)
    return _simulated(tuple(distinct.tolist()), tuple(members.tolist()), count, draws, tau)[group]


@cache
def _simulated(distinct: tuple[float, ...], members: tuple[int, ...], count: int, draws: int, tau: float) -> Tensor:
    """The inclusion probability of each distinct |A|; many groups of binary returns ask for the same."""
    of = torch.arange(len(members)).repeat_interleave(torch.tensor(members))
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(draws, len(of), generator=generator, dtype=torch.float64)
    keys = torch.tensor(distinct, dtype=torch.float64)[of] / tau - (-uniform.log()).log()
    selected = of[keys.topk(count, dim=1).indices]
    return torch.bincount(selected.flatten(), minlength=len(members)) / (draws * torch.tensor(members, dtype=torch.float64))


def selections(inclusion_draws: int) -> dict[str, Selection]:
    """The selections by name."""
    return {
        "all": every,
        "AAW": partial(of_sampler, sample_by_absolute_advantage),
        "AAW, corrected": partial(corrected, inclusion_draws),
        "uniform": partial(of_sampler, sample_uniform),
        "top": partial(of_sampler, sample_top),
        "max-variance": partial(of_sampler, sample_max_variance),
    }
