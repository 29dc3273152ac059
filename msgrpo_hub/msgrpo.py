"""MS-GRPO: multi-step group-relative policy optimisation, after Dilkes, Yazdanpanah and Stein (arXiv 2508.10839).

One update, in the order of this file: G episodes from one initial state s0 give composite returns C, and these give
advantages A. A credit (`credit.py`) turns them into one advantage per step. Absolute-advantage-weighted sampling (AAW)
selects G' of the G episodes. The clipped loss pushes every generated token of every selected step by the step's
advantage, with a KL penalty towards the reference.

What the paper says
    - All G episodes of a group start in one s0. The return of the whole episode, undiscounted, credits every token of
      every step (Monte-Carlo credit). A format penalty is part of the return.
    - Advantages are normalised over the group. AAW selects G' = 25 of G = 100 without replacement, by |A|.
    - LoRA on all linear layers. The reference is the base, which is the model with the adapter switched off.

What we decided where it is silent
    - Mean and standard deviation run over the episodes of the group, not over their steps (long episodes would bias
      them), with the population's standard deviation (ddof 0) and 1e-8 in the denominator.
    - A group in which every step advantage is 0 teaches nothing. It is left out of the update, and counted.
    - The temperature of AAW is tau = 1. An unparsed reply costs 1 in training and 0 in evaluation.
    - p_old is the probability that the token was sampled with, recorded while acting (temperature included).
    - The loss is normalised once per optimiser step, over all its episodes on all processes: `token_mean`, unless
      another of the three functions below is chosen.
    - KL by the k3 estimator, with coefficient beta = 0.01 unless configured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from msgrpo_hub.episode import Episode, Group
from msgrpo_hub.fields import Count, checked

# Shapes: G episodes of a group, S steps of an episode, K generated tokens.

Scale = Callable[[Tensor], Tensor]
"""Centred returns (G,) → the number that they are divided by, ()."""

Sampler = Callable[[Tensor, int, torch.Generator], Tensor]
"""(advantages (G,), G', generator) → the indices of the selected episodes (G',), ascending, none twice."""

LossNormalisation = Callable[[Sequence[Sequence[int]]], list[list[float]]]
"""Reply lengths, per step of each selected episode → the weight of each token of that step."""


def composite_return(episode: Episode, format_penalty: float) -> float:
    """C_j = Σ_t (r_{j,t} + Φ_{j,t}), with Φ = −`format_penalty` for an unparsed reply and 0 otherwise."""
    return episode.reward - format_penalty * episode.unreadable


def standard_deviation(centred: Tensor) -> Tensor:
    """The population's standard deviation, and 1e-8 so that it is never 0."""
    return centred.square().mean().sqrt() + 1e-8


def unscaled(centred: Tensor) -> Tensor:
    """1: advantages keep the size of the returns, so groups of small spread count little (Dr. GRPO, arXiv 2503.20783)."""
    return torch.ones_like(centred[0])


ADVANTAGE_SCALES: dict[str, Scale] = {"std": standard_deviation, "none": unscaled}


@checked
def group_advantages(returns: Tensor, scale: Scale = standard_deviation) -> Tensor:
    """A_j = (C_j − mean(C)) / (std(C) + 1e-8), over the G episodes of one group.

    Args:
        returns: (G,) composite returns C.
        scale: what C_j − mean(C) is divided by; in the paper, the standard deviation.

    Returns:
        (G,) advantages; all zero if the returns are all equal.

    Raises:
        ValueError: the returns are not a flat list of finite numbers.

    >>> group_advantages(torch.tensor([1.0, 0.0, 0.0, 1.0])).tolist()
    [1.0, -1.0, -1.0, 1.0]
    >>> group_advantages(torch.tensor([1.0, 0.0, 0.0, 1.0]), unscaled).tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    if returns.ndim != 1 or not len(returns) or not bool(torch.isfinite(returns).all()):
        raise ValueError(f"returns of shape {tuple(returns.shape)}: expected a flat list of finite numbers, one per episode")
    centred = returns.double() - returns.double().mean()
    varies = bool(standard_deviation(centred) > 2e-8)  # rounding alone is no spread
    advantages = centred / scale(centred) if varies else torch.zeros_like(centred)
    return advantages.to(returns.dtype if returns.is_floating_point() else torch.get_default_dtype())


def sample_by_absolute_advantage(advantages: Tensor, count: int, generator: torch.Generator, tau: float = 1.0) -> Tensor:
    """AAW: `count` = G' of G episodes without replacement, with p_j = softmax_j(|A_j| / τ).

    Draws are successive, and the probabilities of the rest are renormalised after each: the first G' of independent exponential
    waiting times with these rates. Their logarithms are compared, which no difference of |A| is too large for.

    >>> sample_by_absolute_advantage(torch.tensor([0.0, 9.0, -9.0, 0.0]), 2, torch.Generator().manual_seed(0)).tolist()
    [1, 2]
    """
    log_rates = advantages.double().abs() / tau
    log_times = torch.empty_like(log_rates).exponential_(generator=generator).log() - log_rates
    return log_times.topk(count, largest=False).indices.sort().values


def sample_uniform(advantages: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` episodes without replacement, all equally likely."""
    return torch.randperm(len(advantages), generator=generator)[:count].sort().values


def sample_top(advantages: Tensor, count: int, generator: torch.Generator) -> Tensor:  # noqa: ARG001
    """The `count` episodes of largest |A|; the first among equals."""
    return advantages.abs().argsort(descending=True, stable=True)[:count].sort().values


def sample_max_variance(advantages: Tensor, count: int, generator: torch.Generator) -> Tensor:  # noqa: ARG001
    """The `count` episodes whose advantages have the largest variance (PODS, arXiv 2504.13818).

    The best subset consists of the k highest and the count − k lowest for some k, so count + 1 candidates suffice.
    """
    order = advantages.argsort(stable=True)
    candidates = [torch.cat([order[: count - k], order[len(order) - k :]]) for k in range(count + 1)]
    variances = torch.stack([advantages[chosen].double().var(correction=0) for chosen in candidates])
    return candidates[int(variances.argmax())].sort().values


SAMPLERS: dict[str, Sampler] = {
    "absolute-advantage": sample_by_absolute_advantage,
    "uniform": sample_uniform,
    "top": sample_top,
    "max-variance": sample_max_variance,
}


@dataclass(frozen=True, slots=True)
class SelectedEpisode:
    """An episode that an update learns from, with one advantage per step."""

    episode: Episode
    advantages: tuple[float, ...]


@checked
def select_episodes(
    groups: Sequence[Group],
    advantages: Sequence[Tensor],
    step_advantages: Sequence[Sequence[Tensor]],
    count: Count,
    sampler: Sampler,
    generator: torch.Generator,
) -> list[SelectedEpisode]:
    """The episodes that an update learns from: G' of each group with any step advantage other than 0.

    Args:
        groups: groups of G episodes each.
        advantages: per group (G,), A_j of the episodes' returns, by which they are selected.
        step_advantages: per group and episode (S,), what the credit gives each step.
        count: G', the number of episodes per group.
        sampler: selects the episodes of a group.
        generator: randomness of the sampler.
    """
    return [
        SelectedEpisode(group.episodes[j], tuple(of_steps[j].tolist()))
        for group, of_episodes, of_steps in zip(groups, advantages, step_advantages, strict=True)
        if any(bool(steps.any()) for steps in of_steps)
        for j in sampler(of_episodes, count, generator).tolist()
    ]


def token_mean(lengths: Sequence[Sequence[int]]) -> list[list[float]]:
    """Every generated token counts the same.

    >>> token_mean([[1, 3], [4]])
    [[0.125, 0.125], [0.125]]
    """
    total = sum(map(sum, lengths))
    return [[1.0 / total for _ in steps] for steps in lengths]


def step_mean(lengths: Sequence[Sequence[int]]) -> list[list[float]]:
    """Every step counts the same, however long its reply."""
    total = sum(map(len, lengths))
    return [[1.0 / (total * length) for length in steps] for steps in lengths]


def episode_mean(lengths: Sequence[Sequence[int]]) -> list[list[float]]:
    """Every selected episode counts the same, however many tokens it has."""
    return [[1.0 / (len(lengths) * sum(steps)) for _ in steps] for steps in lengths]


LOSS_NORMALISATIONS: dict[str, LossNormalisation] = {
    "token-mean": token_mean,
    "step-mean": step_mean,
    "episode-mean": episode_mean,
}


@dataclass(frozen=True, slots=True)
class LossTerms:
    """The loss and its parts. They are sums over the given tokens, so micro-batches and processes add up exactly."""

    loss: Tensor
    kl: Tensor
    clipped: Tensor
    """The weight of the tokens whose gradient the clip stops."""


@checked
def policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    reference_log_probs: Tensor | None,
    advantages: Tensor,
    weights: Tensor,
    *,
    epsilon_low: float = 0.2,
    epsilon_up: float = 0.2,
    beta: float = 0.0,
    largest_ratio: float = math.inf,
) -> LossTerms:
    """The clipped surrogate with KL penalty: Σ_k n_k · −[ min(w·A, clip(w, 1−ε_low, 1+ε_up)·A) − β·KL(p_θ ‖ p_ref) ].

    Args:
        log_probs: (K,) log p_θ of the generated tokens, with gradient.
        old_log_probs: (K,) log p_old, from acting.
        reference_log_probs: (K,) log p_ref; None only if β = 0.
        advantages: (K,) A of the step that each token belongs to.
        weights: (K,) n, how much each token counts (see `LOSS_NORMALISATIONS`).
        epsilon_low: clips the ratio w = p_θ / p_old from below.
        epsilon_up: clips it from above.
        beta: weight of the KL penalty.
        largest_ratio: truncates w first; its gradient stays that of the truncated weight (ours, for servers that sample).

    Raises:
        ValueError: shapes differ, or there is a KL penalty without reference.
    """
    tensors = (log_probs, old_log_probs, advantages, weights, *(() if reference_log_probs is None else (reference_log_probs,)))
    if len({tensor.shape for tensor in tensors}) > 1 or log_probs.ndim != 1:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise ValueError(f"tensors of shapes {shapes}: expected one number per token in each, (K,)")
    if beta and reference_log_probs is None:
        raise ValueError(f"beta = {beta} without reference_log_probs: expected both, or beta = 0")
    log_ratio = log_probs - old_log_probs
    excess = (log_ratio.detach() - math.log(largest_ratio)).clamp(min=0.0)
    ratio = torch.exp(log_ratio - excess)
    clipped_ratio = ratio.clamp(1.0 - epsilon_low, 1.0 + epsilon_up)
    surrogate = torch.minimum(ratio * advantages, clipped_ratio * advantages)
    kl = torch.zeros_like(log_probs) if reference_log_probs is None else k3(log_probs, reference_log_probs)
    stopped = clipped_ratio * advantages < ratio * advantages
    return LossTerms(
        loss=(weights * -(surrogate - beta * kl)).sum(),
        kl=(weights * kl).sum().detach(),
        clipped=(weights * stopped).sum().detach(),
    )


def k3(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """The k3 estimate of KL(p_θ ‖ p_ref) from tokens sampled from p_θ: p_ref/p_θ − log(p_ref/p_θ) − 1, never negative."""
    difference = reference_log_probs - log_probs
    return torch.exp(difference) - difference - 1.0
