"""MS-GRPO: multi-step group-relative policy optimisation, after Dilkes, Yazdanpanah and Stein (arXiv 2508.10839).

One update, in the order of this file: G episodes from one initial state s0 give composite returns C, and these give
advantages A. A credit turns them into one advantage per step. Absolute-advantage-weighted sampling (AAW) selects G' of
the G episodes. The clipped loss weights every generated token by the advantage of its step and adds a KL penalty.

From the paper
    - All G episodes of a group start in one s0. The undiscounted return of the whole episode credits every token of every
      step (Monte Carlo). A format penalty is part of the return.
    - Advantages are normalised over the group. AAW selects G' = 25 of G = 100 without replacement, by |A|.
    - LoRA adapts all linear layers. The reference is the base model, with the adapter disabled.

Our choices, where the paper is silent
    - Mean and standard deviation are over the episodes of the group, not over their steps, which would favour long episodes.
      The deviation is the population's (ddof 0), plus 1e-8.
    - A group whose step advantages are all 0 is left out of the update and counted.
    - The temperature of AAW is tau = 1. An unparsed reply costs 1 in training and 0 in evaluation.
    - p_old is the probability recorded while sampling, temperature included.
    - The loss is normalised once per optimiser step, over all its episodes on all processes, by default a mean over tokens.
    - KL uses the k3 estimator, with beta = 0.01 by default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from msgrpo_hub.episode import Episode, Group
from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import Count, checked
from msgrpo_hub.games import stream

# Shapes: G episodes of a group, S steps of an episode, K generated tokens.

Scale = Callable[[Tensor], Tensor]
"""Centred returns (G,) → the number that divides them, ()."""

Sampler = Callable[[Tensor, int, torch.Generator], Tensor]
"""(advantages (G,), G', generator) → the indices of the selected episodes (G',), ascending and distinct."""

LossNormalisation = Callable[[Sequence[int]], list[float]]
"""Reply lengths of an episode's steps → the relative weight of each token of these replies."""

StepAdvantages = list[list[Tensor]]
"""Per group and episode, one advantage per step: (S,)."""

# ---- 1) returns → advantages


def composite_return(episode: Episode, format_penalty: float) -> float:
    """C_j = Σ_t (r_{j,t} + Φ_{j,t}), with Φ = −`format_penalty` for an unparsed reply and 0 otherwise."""
    return episode.reward - format_penalty * episode.unreadable


ADVANTAGE_SCALES: dict[str, Scale] = {
    "std": lambda centred: centred.square().mean().sqrt() + 1e-8,  # of the population
    "none": lambda centred: torch.ones_like(centred[0]),  # groups of small spread then have small advantages (Dr. GRPO)
}


@checked
def group_advantages(returns: Tensor, scale: Scale = ADVANTAGE_SCALES["std"]) -> Tensor:
    """A_j = (C_j − mean(C)) / (std(C) + 1e-8), over the G episodes of one group; all zero if the returns C, (G,), are all equal.

    `scale` is the divisor. Raises `ValueError` if the returns are not a flat list of finite numbers.

    >>> group_advantages(torch.tensor([1.0, 0.0, 0.0, 1.0])).tolist()
    [1.0, -1.0, -1.0, 1.0]
    >>> group_advantages(torch.tensor([1.0, 0.0, 0.0, 1.0]), ADVANTAGE_SCALES["none"]).tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    if returns.ndim != 1 or not len(returns) or not bool(torch.isfinite(returns).all()):
        raise ValueError(f"returns of shape {tuple(returns.shape)}: expected a flat list of finite numbers, one per episode")
    centred = returns.double() - returns.double().mean()
    varies = bool(ADVANTAGE_SCALES["std"](centred) > 2e-8)  # smaller spreads are rounding
    advantages = centred / scale(centred) if varies else torch.zeros_like(centred)
    return advantages.to(returns.dtype if returns.is_floating_point() else torch.get_default_dtype())


# ---- 2) advantages → credit


@dataclass(frozen=True, kw_only=True)
class CreditContext:
    """The settings of an update that a credit may use."""

    format_penalty: float = 0.0
    """Subtracted from the reward of each unparsed reply [−Φ]."""
    scale: Scale = ADVANTAGE_SCALES["std"]
    """The divisor of centred returns."""
    update: int = 1
    """Number of the update, from 1."""

    def rewards(self, episode: Episode) -> Tensor:
        """(S,) r_t + Φ_t of an episode; their sum is its composite return C."""
        return torch.tensor([step.reward - self.format_penalty * (step.action is None) for step in episode.steps])

    def returns_to_go(self, episode: Episode) -> Tensor:
        """(S,) Σ_{t' ≥ t} (r_{t'} + Φ_{t'}), undiscounted."""
        return self.rewards(episode).flip(0).cumsum(0).flip(0)


class Credit(Protocol):
    """Gives each step its advantage: a function, or an object that can be called."""

    def __call__(self, groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext, /) -> StepAdvantages:
        """One advantage per step of every episode of an update's groups, whose composite returns C are `returns`, (G,) each.

        A group with zeros only is left out of the update.
        """


def whole_episode(groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:
    """The paper's credit: every step of episode j gets A_j, the advantage of the episode's return."""
    return [
        [a.expand(len(e.steps)) for a, e in zip(group_advantages(of_group, context.scale), group.episodes, strict=True)]
        for group, of_group in zip(groups, returns, strict=True)
    ]


def step_advantages(credit: Credit, groups: Sequence[Group], returns: Sequence[Tensor], context: CreditContext) -> StepAdvantages:
    """The advantages of a credit. Raises `UserError` unless they are one finite number per step of every episode."""
    result, expected = credit(groups, returns, context), "expected one number per step of every episode"
    try:
        tensors = [[torch.as_tensor(steps, dtype=torch.float32) for steps in of_group] for of_group in result]
    except (TypeError, ValueError) as error:
        raise UserError(f"the credit gave no numbers ({error}): {expected}") from error
    shapes = [[(len(episode.steps),) for episode in group.episodes] for group in groups]
    if [[tuple(steps.shape) for steps in of_group] for of_group in tensors] != shapes:
        raise UserError(f"the credit gave advantages of another shape: {expected} of every group")
    if not all(bool(torch.isfinite(steps).all()) for of_group in tensors for steps in of_group):
        raise UserError(f"the credit gave advantages that are not finite: {expected}")
    return tensors


# ---- 3) selection


def sample_by_absolute_advantage(advantages: Tensor, count: int, generator: torch.Generator, tau: float = 1.0) -> Tensor:
    """AAW: `count` = G' of G episodes without replacement, with p_j = softmax_j(|A_j| / τ).

    Successive sampling, renormalised after each selection, selects the first G' of independent exponential waiting times
    with these rates. The code compares their logarithms, which do not overflow.

    >>> sample_by_absolute_advantage(torch.tensor([0.0, 9.0, -9.0, 0.0]), 2, torch.Generator().manual_seed(0)).tolist()
    [1, 2]
    """
    log_rates = advantages.double().abs() / tau
    log_times = torch.empty_like(log_rates).exponential_(generator=generator).log() - log_rates
    return log_times.topk(count, largest=False).indices.sort().values


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
    "uniform": lambda advantages, count, generator: torch.randperm(len(advantages), generator=generator)[:count].sort().values,
    # the largest |A|, the first among equals
    "top": lambda advantages, count, _: advantages.abs().argsort(descending=True, stable=True)[:count].sort().values,
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
    """The episodes that an update learns from: `count` = G' of each group with any step advantage other than 0.

    The sampler selects by `advantages`, A_j of the episodes' returns, per group (G,). `step_advantages` come from the credit.
    """
    return [
        SelectedEpisode(group.episodes[j], tuple(of_steps[j].tolist()))
        for group, of_episodes, of_steps in zip(groups, advantages, step_advantages, strict=True)
        if any(bool(steps.any()) for steps in of_steps)
        for j in sampler(of_episodes, count, generator).tolist()
    ]


class Selection(NamedTuple):
    """An update between sampling and training."""

    returns: list[Tensor]
    """Per group (G,), the composite returns C."""
    context: CreditContext
    advantages: list[Tensor]
    """Per group (G,), A_j of the returns."""
    step_advantages: StepAdvantages
    selected: list[SelectedEpisode]


def select(groups: Sequence[Group], credit: Credit, sampler: Sampler, context: CreditContext, count: int, seed: int) -> Selection:
    """One update up to the loss: returns → advantages → credit → selection of `count` = G' episodes per group."""
    returns = [torch.tensor([composite_return(e, context.format_penalty) for e in group.episodes]) for group in groups]
    advantages = [group_advantages(of_group, context.scale) for of_group in returns]
    of_steps = step_advantages(credit, groups, returns, context)
    generator = torch.Generator().manual_seed(int(stream(seed, "drawing", context.update).integers(2**62)))
    selected = select_episodes(groups, advantages, of_steps, count, sampler, generator)
    return Selection(returns, context, advantages, of_steps, selected)


# ---- 4) loss


LOSS_NORMALISATIONS: dict[str, LossNormalisation] = {
    "token-mean": lambda lengths: [1.0] * len(lengths),
    "step-mean": lambda lengths: [1.0 / length for length in lengths],
    "episode-mean": lambda lengths: [1.0 / sum(lengths)] * len(lengths),
}
"""The unit of equal weight in the loss: token, step or episode."""


def token_weights(selected: Sequence[SelectedEpisode], normalisation: LossNormalisation) -> list[list[float]]:
    """Per episode and step, n: the weight of each token of the reply. All tokens of an optimiser step add up to 1."""
    lengths = [[len(step.completion.token_ids) for step in item.episode.steps] for item in selected]
    relative = [normalisation(of_episode) for of_episode in lengths]
    total = sum(weight * length for of in zip(relative, lengths, strict=True) for weight, length in zip(*of, strict=True))
    return [[weight / total for weight in of_episode] for of_episode in relative]


class LossTerms(NamedTuple):
    """The loss and its parts: sums over the given tokens, so micro-batches and processes add up exactly."""

    loss: Tensor
    kl: Tensor
    clipped: Tensor
    """The weight of the tokens whose gradient the clip stops."""


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
        old_log_probs: (K,) log p_old, recorded while sampling.
        reference_log_probs: (K,) log p_ref; None only if β = 0.
        advantages: (K,) A of each token's step.
        weights: (K,) n, the weight of each token (see `LOSS_NORMALISATIONS`).
        epsilon_low: clips the ratio w = p_θ / p_old from below.
        epsilon_up: clips it from above.
        beta: weight of the KL penalty.
        largest_ratio: truncates w before the clip; its gradient is the gradient of the truncated weight (ours, for sampling
            on servers).

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
    """The k3 estimate of KL(p_θ ‖ p_ref) from tokens sampled from p_θ: p_ref/p_θ − log(p_ref/p_θ) − 1, at least 0."""
    difference = reference_log_probs - log_probs
    return torch.exp(difference) - difference - 1.0
