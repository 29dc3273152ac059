"""MS-GRPO: multi-step group-relative policy optimisation, after Dilkes, Yazdanpanah and Stein (arXiv 2508.10839).

One update, in the order of this file: G episodes from one initial state s0 give composite returns C, these give
advantages A, absolute-advantage-weighted sampling (AAW) draws G' of the G episodes, and every generated token of every
step of a drawn episode j is pushed by A_j through the clipped ratio, with a KL penalty towards the reference.

What the paper says
    - all G episodes of a group start in one s0; the return of the whole episode, undiscounted, credits every token of
      every step (Monte-Carlo credit); a format penalty is part of the return;
    - advantages are normalised over the group; AAW draws G' = 25 of G = 100 without replacement, by |A|;
    - LoRA on all linear layers; the reference is the base, that is the model with the adapter switched off.

What we decided where it is silent
    - mean and standard deviation run over the episodes of the group, not over their steps (long episodes would bias
      them), with the population's standard deviation (ddof 0) and 1e-8 in the denominator;
    - a group whose returns are all equal teaches nothing: its episodes are left out of the update, and counted;
    - the temperature of AAW is tau = 1; the penalty of an unreadable reply is 1 in training and 0 in evaluation;
    - p_old is what the token was sampled with, recorded while acting (temperature included);
    - the loss is normalised once per update, over all drawn episodes of all groups and all processes: `token_mean`
      unless another of the three functions below is chosen;
    - KL by the k3 estimator, coefficient beta = 0.01 unless configured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from msgrpo_hub.episode import Episode

# Shapes: G episodes of a group, K generated tokens.

Sampler = Callable[[Tensor, int, torch.Generator], Tensor]
"""(advantages (G,), G', generator) → the indices of the drawn episodes (G',), ascending, none twice."""

Normalisation = Callable[[Sequence[Sequence[int]]], list[list[float]]]
"""Reply lengths, per step of each drawn episode → the weight of each token of that step."""


def composite_return(episode: Episode, format_penalty: float) -> float:
    """C_j = Σ_t (r_{j,t} + Φ_{j,t}), with Φ = −`format_penalty` for a reply that could not be read and 0 otherwise."""
    return episode.reward - format_penalty * episode.unreadable


def group_advantages(returns: Tensor) -> Tensor:
    """A_j = (C_j − mean(C)) / (std(C) + 1e-8), over the G episodes of one group.

    Args:
        returns: (G,) composite returns C.

    Returns:
        (G,) advantages; all zero where the returns are all equal.

    >>> group_advantages(torch.tensor([1.0, 0.0, 0.0, 1.0])).tolist()
    [1.0, -1.0, -1.0, 1.0]
    """
    centred = returns.double() - returns.double().mean()
    spread = centred.square().mean().sqrt()
    advantages = centred / (spread + 1e-8) * (spread > 1e-8)
    return advantages.to(returns.dtype if returns.is_floating_point() else torch.get_default_dtype())


def sample_episodes(advantages: Tensor, count: int, generator: torch.Generator, tau: float = 1.0) -> Tensor:
    """AAW: draws `count` = G' of G episodes without replacement, with p_j = softmax_j(|A_j| / τ).

    The draws are successive, the rest renormalised after each.

    >>> sample_episodes(torch.tensor([0.0, 9.0, -9.0, 0.0]), 2, torch.Generator().manual_seed(0)).tolist()
    [1, 2]
    """
    p = torch.softmax(advantages.double().abs() / tau, dim=0)
    return torch.multinomial(p, count, replacement=False, generator=generator).sort().values


def sample_uniform(advantages: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draws `count` episodes without replacement, all equally likely."""
    return torch.randperm(len(advantages), generator=generator)[:count].sort().values


def sample_top(advantages: Tensor, count: int, generator: torch.Generator) -> Tensor:  # noqa: ARG001
    """The `count` episodes of largest |A|; of equals the first."""
    return advantages.abs().argsort(descending=True, stable=True)[:count].sort().values


def sample_max_variance(advantages: Tensor, count: int, generator: torch.Generator) -> Tensor:  # noqa: ARG001
    """The `count` episodes whose advantages have the largest variance (PODS, arXiv 2504.13818).

    Such a subset is some number k of the highest and count − k of the lowest, so count + 1 candidates suffice.
    """
    order = advantages.argsort(stable=True)
    candidates = [torch.cat([order[: count - k], order[len(order) - k :]]) for k in range(count + 1)]
    variances = torch.stack([advantages[chosen].double().var(correction=0) for chosen in candidates])
    return candidates[int(variances.argmax())].sort().values


SAMPLERS: dict[str, Sampler] = {
    "absolute-advantage": sample_episodes,
    "uniform": sample_uniform,
    "top": sample_top,
    "max-variance": sample_max_variance,
}


def token_mean(lengths: Sequence[Sequence[int]]) -> list[list[float]]:
    """Every generated token of the update counts the same.

    >>> token_mean([[1, 3], [4]])
    [[0.125, 0.125], [0.125]]
    """
    total = sum(map(sum, lengths))
    return [[1.0 / total for _ in steps] for steps in lengths]


def step_mean(lengths: Sequence[Sequence[int]]) -> list[list[float]]:
    """Every step of the update counts the same, however long its reply."""
    total = sum(map(len, lengths))
    return [[1.0 / (total * length) for length in steps] for steps in lengths]


def episode_mean(lengths: Sequence[Sequence[int]]) -> list[list[float]]:
    """Every drawn episode counts the same, however many tokens it has."""
    return [[1.0 / (len(lengths) * sum(steps)) for _ in steps] for steps in lengths]


NORMALISATIONS: dict[str, Normalisation] = {
    "token-mean": token_mean,
    "step-mean": step_mean,
    "episode-mean": episode_mean,
}


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """How much each of K tokens counts. Tokens with the same context are merged by adding their weights.

    A token of an episode with advantage A and normalising weight n has gain = n·max(A, 0), loss = n·max(−A, 0) and
    mass = n. Gain and loss are kept apart, because the clip depends on the sign: with ε_low = ε_up they do not cancel.
    """

    gain: Tensor
    loss: Tensor
    mass: Tensor

    def to(self, device: torch.device) -> TokenWeights:
        return TokenWeights(self.gain.to(device), self.loss.to(device), self.mass.to(device))


@dataclass(frozen=True, slots=True)
class LossTerms:
    """The loss and its parts; sums over the given tokens, so that micro-batches and processes add up exactly."""

    loss: Tensor
    kl: Tensor
    clipped: Tensor


def policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    reference_log_probs: Tensor | None,
    weights: TokenWeights,
    *,
    epsilon_low: float = 0.2,
    epsilon_up: float = 0.2,
    beta: float = 0.0,
) -> LossTerms:
    """The clipped surrogate with KL penalty: Σ_k n_k · −[ min(w·A, clip(w, 1−ε_low, 1+ε_up)·A) − β·KL(p_θ ‖ p_ref) ].

    With w = p_θ / p_old, min(w·A, clip(w)·A) is A·min(w, 1+ε_up) for A ≥ 0 and A·max(w, 1−ε_low) for A < 0.

    Args:
        log_probs: (K,) log p_θ of the generated tokens, with gradient.
        old_log_probs: (K,) log p_old, from acting.
        reference_log_probs: (K,) log p_ref; None means no KL term.
        weights: (K,) each.
        epsilon_low: clips the ratio from below where the advantage is negative.
        epsilon_up: clips it from above where the advantage is positive.
        beta: weight of the KL penalty.
    """
    ratio = torch.exp(log_probs - old_log_probs)
    upper, lower = 1.0 + epsilon_up, 1.0 - epsilon_low
    surrogate = weights.gain * ratio.clamp(max=upper) - weights.loss * ratio.clamp(min=lower)
    kl = log_probs.new_zeros(())
    if reference_log_probs is not None:
        kl = (weights.mass * k3(log_probs, reference_log_probs)).sum()
    stopped = ((ratio > upper) & (weights.gain > 0)) | ((ratio < lower) & (weights.loss > 0))
    clipped = (weights.mass * stopped).sum()
    return LossTerms(loss=beta * kl - surrogate.sum(), kl=kl.detach(), clipped=clipped.detach())


def k3(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """The k3 estimate of KL(p_θ ‖ p_ref) from tokens drawn from p_θ: p_ref/p_θ − log(p_ref/p_θ) − 1, never negative."""
    difference = reference_log_probs - log_probs
    return torch.exp(difference) - difference - 1.0
