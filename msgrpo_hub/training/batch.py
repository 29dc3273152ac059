"""From drawn episodes to token trees with weights: the batch of one update.

A step of an episode is a row: prompt tokens, then reply tokens. Rows that begin alike share nodes of a tree, and tokens
with the same context are merged by adding their weights, which changes neither the loss nor its gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from msgrpo_hub.episode import Completion, Episode, Group
from msgrpo_hub.msgrpo import Normalisation, Sampler, TokenWeights, composite_return, group_advantages
from msgrpo_hub.training.token_tree import TokenTree, common_prefix, plant, tree_inputs


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
    """A tree with its K distinct generated tokens: the node that predicts each, the token, p_old, and its weights."""

    tree: TokenTree
    nodes: Tensor
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
    merged: dict[tuple[int, ...], Row] = {}
    for item, masses in zip(drawn, normalisation(lengths), strict=True):
        for step, mass in zip(item.episode.steps, masses, strict=True):
            gain, loss = mass * max(item.advantage, 0.0), mass * max(-item.advantage, 0.0)
            key = step.completion.prompt_ids + step.completion.token_ids
            before = merged.get(key)
            merged[key] = (
                Row(step.completion, gain, loss, mass)
                if before is None
                else Row(before.completion, before.gain + gain, before.loss + loss, before.mass + mass)
            )
    return [merged[key] for key in sorted(merged)]


def pack(rows: Sequence[Row], token_budget: int) -> list[Pack]:
    """Plants the rows, in their order, in as few trees of at most `token_budget` nodes as that order allows."""
    bins: list[list[Row]] = []
    nodes = 0
    before: tuple[int, ...] = ()
    for row in rows:
        tokens = row.token_ids
        new = len(tokens) - common_prefix(before, tokens)
        if not bins or nodes + new > token_budget:
            bins.append([])
            nodes, new = 0, len(tokens)
        bins[-1].append(row)
        nodes, before = nodes + new, tokens
    return [_plant(rows) for rows in bins]


def _plant(rows: Sequence[Row]) -> Pack:
    """One tree; tokens that several rows share (same context, same token) are one token with added weights."""
    tree = plant([row.token_ids for row in rows])
    starts = [len(row.completion.prompt_ids) for row in rows]
    replies = [path[start:] for path, start in zip(tree.paths, starts, strict=True)]
    targets, first, inverse = np.unique(np.concatenate(replies), return_index=True, return_inverse=True)
    counts = [len(reply) for reply in replies]

    def added(values: list[float]) -> Tensor:
        return torch.from_numpy(np.bincount(inverse, weights=np.repeat(values, counts))).float()

    parents = np.concatenate([path[start - 1 : -1] for path, start in zip(tree.paths, starts, strict=True)])
    old = np.concatenate([row.completion.log_probs for row in rows])
    return Pack(
        tree=tree,
        nodes=torch.from_numpy(parents[first]),
        targets=torch.from_numpy(tree.token_ids[targets]),
        old_log_probs=torch.from_numpy(old[first]).float(),
        weights=TokenWeights(
            gain=added([row.gain for row in rows]), loss=added([row.loss for row in rows]), mass=added([row.mass for row in rows])
        ),
    )


def token_log_probs(model: PreTrainedModel | PeftModel, packed: Pack, temperature: float) -> Tensor:
    """(K,) log p(target | its context), in float32, under the distribution that acting samples from."""
    device = model.device
    inputs = tree_inputs([packed.tree], device)
    visible = inputs["attention_mask"]
    inputs["attention_mask"] = torch.zeros_like(visible, dtype=model.dtype).masked_fill_(~visible, torch.finfo(model.dtype).min)
    nodes, where = packed.nodes.unique(return_inverse=True)  # logits only where a reply token is predicted
    logits = model(**inputs, use_cache=False, logits_to_keep=nodes.to(device)).logits[0].float()
    log_p = torch.log_softmax(logits / temperature if temperature else logits, dim=-1)
    return log_p[where.to(device), packed.targets.to(device)]
