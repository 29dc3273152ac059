"""From selected episodes to token trees: the batch of one optimiser step.

A step of an episode is a sequence of prompt tokens, then reply tokens. Sequences with a common beginning share nodes of a
tree. Tokens with the same context and the same p_old are merged into at most two entries of the loss, one for each sign of
the advantage, which changes neither the loss nor its gradient:

    A = +2, n = 1 ─┐
    A = +1, n = 1 ─┼─→  A = +1.5, n = 2      (Σ n·A and Σ n of each sign stay the same)
    A = −3, n = 1 ───→  A = −3,   n = 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from msgrpo_hub.episode import Completion
from msgrpo_hub.models.log_probs import TokenBatch, token_batch
from msgrpo_hub.models.token_tree import common_prefix
from msgrpo_hub.msgrpo import LossNormalisation, SelectedEpisode, token_weights

# Shapes: K distinct generated tokens of a pack, E ≥ K entries of the loss.

LARGEST = 4
"""The largest tree, as a multiple of the longest sample after the prefix. Larger ones save few tokens and cost more attention."""

Sums = npt.NDArray[np.float64]
"""(5,): Σ n·A and Σ n where A > 0, Σ n·A and Σ n where A < 0, Σ n where A = 0."""


@dataclass(frozen=True, slots=True)
class StepSample:
    """One step to learn from. Equal steps with equal p_old are one sample with added weights."""

    completion: Completion
    sums: Sums

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.completion.prompt_ids + self.completion.token_ids


@dataclass(frozen=True)
class Pack(TokenBatch):
    """A token batch of K generated tokens with its E loss entries."""

    tokens: Tensor
    """(E,) for each entry, the index of its token among the K."""
    old_log_probs: Tensor
    """(E,) log p_old."""
    advantages: Tensor
    """(E,) A."""
    weights: Tensor
    """(E,) n."""


def to_samples(selected: Sequence[SelectedEpisode], normalisation: LossNormalisation) -> list[StepSample]:
    """The samples of an optimiser step, sorted by tokens, with equal ones merged."""
    merged: dict[tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]], StepSample] = {}
    for item, weights in zip(selected, token_weights(selected, normalisation), strict=True):
        for step, advantage, weight in zip(item.episode.steps, item.advantages, weights, strict=True):
            reply = step.completion
            key = (reply.prompt_ids, reply.token_ids, reply.log_probs)
            sums = signed_sums(advantage, weight)
            if key in merged:
                sums += merged[key].sums
            merged[key] = StepSample(reply, sums)
    return sorted(merged.values(), key=lambda sample: sample.token_ids)


def signed_sums(advantage: float, weight: float) -> Sums:
    """The sums of one token with advantage A and weight n."""
    up, down = advantage > 0, advantage < 0
    return np.array([up * weight * advantage, up * weight, down * weight * advantage, down * weight, (not (up or down)) * weight])


def pack(samples: Sequence[StepSample], token_budget: int, trees: bool = True) -> list[Pack]:
    """Builds trees of the sorted samples on a common prefix, and packs of at most `token_budget` tokens without the prefix.

    Samples of one prompt share a tree of at most four times the longest sample, and so do prompts if half of their tokens after
    the prefix are the same, as in a growing conversation: attention is dense within a tree. One sample may exceed the budget.
    Without `trees`, each sample is one whole sequence.
    """
    shared = common_prefix(samples[0].token_ids, samples[-1].token_ids)  # of all, since they are sorted
    prefix = min(shared, *(len(sample.completion.prompt_ids) - 1 for sample in samples)) if trees else 0
    bins, sizes = list[list[StepSample]](), list[int]()
    limit = min(token_budget, LARGEST * max(len(sample.token_ids) - prefix for sample in samples))
    before: tuple[int, ...] = ()
    for sample in samples:
        tokens, prompt = sample.token_ids[prefix:], len(sample.completion.prompt_ids) - prefix
        same = common_prefix(before, tokens)
        before = tokens
        if trees and bins and 2 * same >= prompt and sizes[-1] + len(tokens) - same <= limit:
            bins[-1].append(sample)
            sizes[-1] += len(tokens) - same
        else:
            bins.append([sample])
            sizes.append(len(tokens))
    packs, largest = list[list[list[StepSample]]](), 0
    for size, of_tree in sorted(zip(sizes, bins, strict=True), key=lambda pair: -pair[0]):  # a pack is padded to its largest tree
        if packs and (len(packs[-1]) + 1) * largest <= token_budget:
            packs[-1].append(of_tree)
        else:
            packs.append([of_tree])
            largest = size
    return [build_pack(prefix, bins) for bins in packs]


def build_pack(prefix: int, bins: Sequence[Sequence[StepSample]]) -> Pack:
    """One pack; each bin is a tree."""
    samples = [sample for of_tree in bins for sample in of_tree]
    pairs = [[(sample.completion.prompt_ids, sample.completion.token_ids) for sample in of_tree] for of_tree in bins]
    batch, token = token_batch(pairs, prefix)
    old = np.concatenate([sample.completion.log_probs for sample in samples])
    counts = [len(sample.completion.token_ids) for sample in samples]
    entries = loss_entries(token, old, np.repeat([sample.sums for sample in samples], counts, axis=0))
    tokens, *numbers = (torch.from_numpy(part) for part in entries)
    return Pack(batch.prefix, batch.trees, batch.slots, batch.targets, tokens, *(part.float() for part in numbers))


def loss_entries(token: npt.NDArray[np.int64], old: Sums, sums: Sums) -> tuple[npt.NDArray[np.int64], Sums, Sums, Sums]:
    """The entries of the loss, one per token, p_old and sign of the advantage: token, log p_old, advantage and weight, (E,) each.

    The weight of a token without advantage is for the KL penalty: it joins an entry of the same token, or is an entry (0, n).
    """
    order = np.lexsort((old, token))
    token, old = token[order], old[order]
    new = np.concatenate([[True], (token[1:] != token[:-1]) | (old[1:] != old[:-1])])
    gain, up, loss, down, idle = np.add.reduceat(sums[order], np.flatnonzero(new), axis=0).T
    token, old = token[new], old[new]
    up_weight, down_weight = np.where(up > 0, up + idle, 0.0), np.where(up > 0, down, np.where(down > 0, down + idle, 0.0))
    alone = np.where((up == 0) & (down == 0), idle, 0.0)
    signed = [(gain, up_weight), (loss, down_weight), (np.zeros_like(idle), alone)]
    kept = [(total, weight, weight > 0) for total, weight in signed]
    return (
        np.concatenate([token[there] for *_, there in kept]),
        np.concatenate([old[there] for *_, there in kept]),
        np.concatenate([total[there] / weight[there] for total, weight, there in kept]),
        np.concatenate([weight[there] for _, weight, there in kept]),
    )
