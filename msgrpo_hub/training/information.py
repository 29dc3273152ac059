"""Mutual information between prompt and reply: how much the replies depend on what they answer.

Entropy does not show whether an agent reads its prompts: it is high also where every prompt gets the same distribution of replies
("template collapse", RAGEN-2, arXiv 2604.06268). Here a few replies of an update are scored after each other's prompts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from msgrpo_hub.episode import Completion, Group
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.token_tree import TokenTree, build_tree, common_prefix

# Shapes: n prompts, each with one reply; K tokens of replies.

PROMPTS = 8
"""Most n: the estimate is at most log n, and costs n² replies."""
SHARE = 4
"""n² is at most a quarter of the replies of an update, so that the estimate stays cheap in small updates."""


def mutual_information(log_probs: Tensor) -> float:
    """mean_i (log p(y_i | x_i) − log (1/n) Σ_j p(y_i | x_j)), in nats.

    An estimate of I(X; Y), where X is one of the n prompts, all equally likely, and Y its reply. It is 0 if replies do not
    depend on prompts, and at most log n, which it reaches if no reply is possible after another prompt. A reply that is less
    likely after its own prompt than after the others makes it smaller, so an estimate may be below 0.

    Args:
        log_probs: (n, n) log p(y_i | x_j), reply by prompt; reply i was sampled after prompt i.

    >>> round(mutual_information(torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]])), 6)
    0.693147
    """
    table = log_probs.double()
    return float((table.diagonal() - table.logsumexp(1)).mean()) + math.log(len(table))


def sampled_steps(groups: Sequence[Group], rng: np.random.Generator) -> list[Completion]:
    """Replies of an update to distinct prompts, as many as n may be. A prompt is the likelier the more steps have it."""
    replies = [step.completion for group in groups for episode in group.episodes for step in episode.steps]
    most = min(PROMPTS, max(1, math.isqrt(len(replies) // SHARE)))
    found: dict[TokenIds, Completion] = {}
    for index in rng.permutation(len(replies)):
        if len(found) == most:
            break
        found.setdefault(replies[index].prompt_ids, replies[index])
    return list(found.values())


@dataclass(frozen=True)
class Pairs:
    """Replies after prompts, as `Engine.log_probs` computes them: the replies to one prompt are a tree."""

    prefix: TokenIds
    trees: list[TokenTree]
    slots: Tensor
    """(K,) the position, in the sequence of `prefix_inputs`, whose output predicts each token, reply after reply."""
    targets: Tensor
    """(K,) the tokens."""


def pairs_of(prompts: Sequence[TokenIds], replies: Sequence[TokenIds], token_budget: int, trees: bool) -> Iterator[Pairs]:
    """Every reply after every prompt, in the order of the prompts, at most `token_budget` tokens at once.

    Args:
        prompts: n.
        replies: non-empty.
        token_budget: a single tree may exceed it.
        trees: whether prefixes are shared; otherwise each pair is a row of its own.
    """
    prefix = min(common_prefix(min(prompts), max(prompts)), *(len(prompt) - 1 for prompt in prompts)) if trees else 0
    together = [replies] if trees else [[reply] for reply in replies]
    bins = [
        (len(prompt) - prefix, some, build_tree([prompt[prefix:] + reply for reply in some]))
        for prompt in prompts
        for some in together
    ]
    length = max(len(tree) for *_, tree in bins)
    at_once = max(1, (token_budget - prefix) // length)
    for first in range(0, len(bins), at_once):
        chosen = bins[first : first + at_once]
        length = max(len(tree) for *_, tree in chosen)
        slots = [
            prefix + number * length + path[start - 1 : -1]
            for number, (start, _, tree) in enumerate(chosen)
            for path in tree.paths
        ]
        targets = [token for _, some, _ in chosen for reply in some for token in reply]
        own = [tree for *_, tree in chosen]
        yield Pairs(prompts[0][:prefix], own, torch.from_numpy(np.concatenate(slots)), torch.tensor(targets))


@torch.no_grad()
def information_of(
    engine: Engine, groups: Sequence[Group], temperature: float, token_budget: int, rng: np.random.Generator
) -> float:
    """The mutual information between the prompts of an update and their replies; 0 of fewer than two prompts.

    Args:
        engine: its model has the weights that the groups were played with, and drops nothing.
        groups: of the update.
        temperature: at which they were played.
        token_budget: most tokens in one forward pass.
        rng: decides which steps are taken.
    """
    steps = sampled_steps(groups, rng)
    if len(steps) < 2:
        return 0.0
    prompts, replies = [step.prompt_ids for step in steps], [step.token_ids for step in steps]
    trees = engine.shares_prefixes(max(prompts, key=len), max(map(len, replies)))
    of_tokens = torch.cat([engine.log_probs(pairs, temperature) for pairs in pairs_of(prompts, replies, token_budget, trees)])
    lengths = [len(reply) for reply in replies] * len(prompts)
    by_prompt = torch.stack([tokens.double().sum() for tokens in of_tokens.cpu().split(lengths)]).reshape(len(prompts), -1)
    return mutual_information(by_prompt.T)
