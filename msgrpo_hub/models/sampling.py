"""Samples one token per reply from the rows of logits, and assigns the replies to the rows of the next step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from msgrpo_hub.episode import NEAR, Finish
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.devices import has_float64

TokenIds = tuple[int, ...]


@dataclass
class Sample:
    """A reply under construction."""

    prompt_ids: TokenIds
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finish: Finish = "length"
    near_draws: int = 0
    """Its draws within `NEAR` of a boundary."""


@dataclass(frozen=True)
class Replies:
    """A batch of growing replies, each with its own random generator."""

    samples: list[Sample]
    rngs: Sequence[np.random.Generator]
    temperature: float
    max_new_tokens: int
    end_ids: frozenset[int]
    top_k: int = 0
    top_p: float = 1.0

    def append_tokens(self, live: Sequence[int], position: int, logits: Tensor, rows: Tensor) -> tuple[Tensor, list[int]]:
        """Samples the tokens at a position; a reply that already has a token there keeps it.

        Args:
            live: indices of the replies.
            position: from 0.
            logits: (rows, vocabulary) float32.
            rows: (live,) the row of each reply.

        Returns:
            The tokens, (live,), and the unfinished replies, as positions in `live`.
        """
        short = [k for k, i in enumerate(live) if len(self.samples[i].token_ids) == position]
        uniforms = [self.rngs[live[k]].random() for k in short]
        sampled = draw_tokens(logits, rows[short], uniforms, self.temperature, self.top_k, self.top_p)
        for k, token, log_prob, entropy, near in zip(short, *(values.tolist() for values in sampled), strict=True):
            sample = self.samples[live[k]]
            sample.token_ids.append(token)
            sample.log_probs.append(log_prob)
            sample.entropies.append(entropy)
            sample.near_draws += near
            sample.finish = "stop" if token in self.end_ids else "length"
        tokens = [self.samples[i].token_ids[position] for i in live]
        unfinished = [k for k, token in enumerate(tokens) if position + 1 < self.max_new_tokens and token not in self.end_ids]
        return torch.tensor(tokens, device=logits.device), unfinished


def draw_tokens(
    logits: Tensor, rows: Tensor, uniforms: Sequence[float], temperature: float, top_k: int = 0, top_p: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Samples one token per sample from the distribution of its row.

    The cumulative distribution is summed in float64. A device without float64 hands its logits to the CPU, so that equal
    logits give equal tokens everywhere.

    Args:
        logits: (rows, vocabulary) float32.
        rows: (samples,) the row of each sample.
        uniforms: one number in [0, 1) per sample.
        temperature: divides the logits; 0 selects the most likely token.
        top_k: number of tokens that are kept after the division by the temperature, as `keep_likely` says; 0 keeps all.
        top_p: the same by their probability; 1 keeps all.

    Returns:
        Tokens, their log-probabilities, the entropies of the distributions in nats, and whether the draw was within `NEAR` of a
        boundary of the cumulative distribution, or greedy between two tokens within `NEAR` nats; each (samples,).
    """
    if not has_float64(logits.device):
        logits, rows = logits.cpu(), rows.cpu()
    log_p = torch.log_softmax(keep_likely(logits / temperature, top_k, top_p) if temperature else logits, dim=-1)
    p = log_p.exp()
    entropies = -(p * log_p.clamp(min=-1e9)).sum(-1)
    if entropies.isnan().any():
        raise not_finite()
    if temperature:
        cumulative = p.double().cumsum(-1)
        u = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None] * cumulative[rows, -1:]
        tokens = torch.searchsorted(cumulative[rows], u, right=True).squeeze(1).clamp(max=logits.shape[1] - 1)
        near = _near_boundary(cumulative, rows, u, tokens)
    else:
        likely = log_p.topk(2)
        tokens = log_p.argmax(-1)[rows]
        near = (likely.values[:, 0] - likely.values[:, 1] < NEAR)[rows]
    return tokens, log_p[rows, tokens], entropies[rows], near


def _near_boundary(cumulative: Tensor, rows: Tensor, u: Tensor, tokens: Tensor) -> Tensor:
    """Whether each draw is within `NEAR` of an end of its token's interval, (samples,). No token lies below 0 or above the sum.

    Args:
        cumulative: (rows, vocabulary) float64.
        rows: (samples,) the row of each sample.
        u: (samples, 1) the draws.
        tokens: (samples,) the tokens drawn.
    """
    ends = cumulative[rows[:, None], torch.stack([tokens - 1, tokens], 1)]  # below the first token it takes the sum
    near = (ends - u).abs() < NEAR
    if near.any():
        near &= (ends > 0) & (ends < cumulative[rows, -1:])
    return near.any(1)


def keep_likely(logits: Tensor, top_k: int, top_p: float) -> Tensor:
    """The logits (rows, vocabulary), with -inf for unlikely tokens, as transformers' `TopKLogitsWarper` and `TopPLogitsWarper`.

    Args:
        logits: divided by the temperature.
        top_k: number of tokens to keep, and those equally likely as the last of them; 0 keeps all.
        top_p: keeps the fewest tokens whose probabilities add up to at least this; 1 keeps all.
    """
    if top_k:
        least = torch.topk(logits, min(top_k, logits.shape[-1])).values[..., -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if top_p < 1:
        ascending, tokens = torch.sort(logits)
        unlikely = ascending.softmax(-1).cumsum(-1) <= 1 - top_p
        unlikely[..., -1] = False  # the most likely token stays
        logits = logits.masked_fill(unlikely.scatter(-1, tokens, unlikely), -torch.inf)
    return logits


def not_finite() -> UserError:
    """The error for a model that returns NaN."""
    return UserError(
        "the model's log-probabilities are not finite, expected finite numbers: lower --learning-rate if it is being "
        "trained; otherwise its weights are damaged"
    )


def fork(rows: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Groups samples by (row, token): the parent row and the token of each new row, and the new row of every sample.

    >>> parents, tokens, rows = fork(torch.tensor([0, 0, 1]), torch.tensor([5, 7, 5]))
    >>> parents.tolist(), tokens.tolist(), rows.tolist()
    ([0, 0, 1], [5, 7, 5], [0, 1, 2])
    """
    width = int(tokens.max()) + 1
    keys, new_rows = torch.unique(rows * width + tokens, return_inverse=True)
    return keys // width, keys % width, new_rows
