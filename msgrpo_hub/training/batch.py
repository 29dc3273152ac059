"""From drawn episodes to token trees with weights: the batch of one update.

A step of an episode is a row: prompt tokens, then reply tokens. Rows that begin alike share nodes of a tree, and tokens
with the same context are merged by adding their weights, which changes neither the loss nor its gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from msgrpo_hub.episode import Completion, Episode, Group
from msgrpo_hub.models.token_tree import TokenTree, build_tree, common_prefix
from msgrpo_hub.msgrpo import Normalisation, Sampler, TokenWeights, composite_return, group_advantages


@dataclass(frozen=True, slots=True)
class Drawn:
    """An episode that takes part in the update, with its advantage A_j."""

    episode: Episode
    advantage: float


@dataclass(frozen=True, slots=True)
class Row:
    """One step to learn from; equal replies to one prompt are one row with their weights added."""

    completion: Completion
    gain: float
    loss: float
    mass: float

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.completion.prompt_ids + self.completion.token_ids


@dataclass(frozen=True, slots=True)
class Pack:
    """A prefix that all rows begin with, the trees that continue it, and their K generated tokens.

    Of each generated token: the slot (in the sequence of `prefix_inputs`) that predicts it, the token, log p_old, weights.
    """

    prefix: tuple[int, ...]
    trees: list[TokenTree]
    slots: Tensor
    targets: Tensor
    old_log_probs: Tensor
    weights: TokenWeights


def draw(
    groups: Sequence[Group], count: int, sampler: Sampler, format_penalty: float, generator: torch.Generator
) -> tuple[list[list[float]], list[Drawn]]:
    """The advantages of every group, and the drawn episodes of those groups whose returns differ."""
    advantages = [
        group_advantages(torch.tensor([composite_return(episode, format_penalty) for episode in group.episodes]))
        for group in groups
    ]
    drawn = [
        Drawn(group.episodes[i], float(a[i]))
        for group, a in zip(groups, advantages, strict=True)
        if bool(a.any())
        for i in sampler(a, count, generator).tolist()
    ]
    return [a.tolist() for a in advantages], drawn


def to_rows(drawn: Sequence[Drawn], normalisation: Normalisation) -> list[Row]:
    """The rows of an update, sorted by tokens, with equal rows merged."""
    lengths = [[len(step.completion.token_ids) for step in item.episode.steps] for item in drawn]
    merged: dict[tuple[tuple[int, ...], tuple[int, ...]], Row] = {}
    for item, masses in zip(drawn, normalisation(lengths), strict=True):
        for step, mass in zip(item.episode.steps, masses, strict=True):
            gain, loss = mass * max(item.advantage, 0.0), mass * max(-item.advantage, 0.0)
            key = (step.completion.prompt_ids, step.completion.token_ids)
            before = merged.get(key)
            merged[key] = (
                Row(step.completion, gain, loss, mass)
                if before is None
                else Row(before.completion, before.gain + gain, before.loss + loss, before.mass + mass)
            )
    return sorted(merged.values(), key=lambda row: row.token_ids)


def pack(rows: Sequence[Row], token_budget: int, tree_size: int = 96) -> list[Pack]:
    """Plants the rows, in their order, in small trees on a common prefix, at most `token_budget` tokens a pack.

    Attention is dense within a tree, so trees are small; a single row may exceed both sizes.
    """
    prefix = common_prefix(rows[0].token_ids, rows[-1].token_ids)  # the rows are sorted
    prefix = min(prefix, *(len(row.completion.prompt_ids) - 1 for row in rows))
    packs: list[list[list[Row]]] = []
    nodes = longest = 0
    before: tuple[int, ...] = ()
    for row in rows:
        tokens = row.token_ids[prefix:]
        grown = nodes + len(tokens) - common_prefix(before, tokens)
        before = tokens
        if packs and grown <= tree_size:
            packs[-1][-1].append(row)
            nodes = grown
        else:
            nodes = len(tokens)
            fits = packs and prefix + (len(packs[-1]) + 1) * max(longest, nodes, tree_size) <= token_budget
            if fits:
                packs[-1].append([row])
            else:
                packs.append([[row]])
                longest = 0
        longest = max(longest, nodes)
    return [_build_pack(prefix, bins) for bins in packs]


def _build_pack(prefix: int, bins: Sequence[Sequence[Row]]) -> Pack:
    """One pack; tokens that rows of one tree share (same context, same token) are one token with added weights."""
    trees = [build_tree([row.token_ids[prefix:] for row in rows]) for rows in bins]
    length = max(map(len, trees))
    rows = [row for rows in bins for row in rows]
    paths = [prefix + number * length + path for number, tree in enumerate(trees) for path in tree.paths]
    starts = [len(row.completion.prompt_ids) - prefix for row in rows]
    generated = np.concatenate([path[start:] for path, start in zip(paths, starts, strict=True)])
    _, first, inverse = np.unique(generated, return_index=True, return_inverse=True)
    counts = [len(row.completion.token_ids) for row in rows]

    def added(values: list[float]) -> Tensor:
        return torch.from_numpy(np.bincount(inverse, weights=np.repeat(values, counts))).float()

    predicting = np.concatenate([path[start - 1 : -1] for path, start in zip(paths, starts, strict=True)])
    targets = np.concatenate([row.completion.token_ids for row in rows])
    old = np.concatenate([row.completion.log_probs for row in rows])
    return Pack(
        prefix=rows[0].token_ids[:prefix],
        trees=trees,
        slots=torch.from_numpy(predicting[first]),
        targets=torch.from_numpy(targets[first]),
        old_log_probs=torch.from_numpy(old[first]).float(),
        weights=TokenWeights(
            gain=added([row.gain for row in rows]), loss=added([row.loss for row in rows]), mass=added([row.mass for row in rows])
        ),
    )
