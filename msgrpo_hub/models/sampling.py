"""Samples one token per reply from rows of logits, and assigns the replies to the rows of the next step.

A token is the inverse of the cumulative distribution at one uniform number from the generator of its reply.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import TopKLogitsWarper, TopPLogitsWarper

from msgrpo_hub.episode import NEAR, Finish
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.devices import to_device

TokenIds = tuple[int, ...]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

Followers = dict[tuple[int, ...], int]
"""Two tokens → the token that last followed them."""

AT_ONCE = 2**20
"""Number of logits that are processed at once on the CPU; larger tables would leave its caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A reply."""

    prompt_ids: TokenIds
    token_ids: TokenIds
    log_probs: tuple[float, ...]
    entropies: tuple[float, ...]
    finish: Finish
    near_draws: int
    """Number of samples within `NEAR` of a rounding boundary."""


@dataclass
class Replies:
    """A batch of growing replies.

    The samples of a position are one column over all replies, so that a step costs no Python per reply beyond its random number.
    """

    prompts: Sequence[TokenIds]
    rngs: Sequence[np.random.Generator]
    """The generator of each reply; a token takes one number."""
    temperature: float
    max_new_tokens: int
    """The length at which a reply is truncated."""
    end_ids: frozenset[int]
    top_k: int = 0
    top_p: float = 1.0
    drawn: FloatArray = field(init=False)
    """(4, replies, positions) token, log p, entropy, near; -1 if not sampled. It grows with the positions."""

    def __post_init__(self) -> None:
        self.drawn = np.full((4, len(self.rngs), 8), -1.0)

    def append_tokens(self, live: IntArray, positions: IntArray, logits: Tensor, rows: Tensor) -> tuple[IntArray, IntArray]:
        """Samples the tokens at these positions, from 0.

        `live` holds the indices of the replies, and `rows` the row of each in the logits, (rows, vocabulary). Returns the tokens,
        (live,), and the unfinished replies, as positions in `live`.
        """
        while positions.max() >= self.drawn.shape[2]:
            self.drawn = np.concatenate([self.drawn, np.full_like(self.drawn, -1.0)], 2)
        uniforms = [self.rngs[i].random() for i in live.tolist()]
        sampled = draw_tokens(logits, rows, uniforms, self.temperature, self.top_k, self.top_p)
        found = torch.stack([values.double() for values in sampled]).cpu().numpy()  # the one transfer of a pass from a GPU
        if np.isnan(found[1:3]).any():
            raise not_finite()
        self.drawn[:, live, positions] = found
        tokens = found[0].astype(np.int64)
        ended = np.isin(tokens, [*self.end_ids]) | (positions + 1 == self.max_new_tokens)
        return tokens, np.flatnonzero(~ended)

    def draft(self, reply: int, length: int, most: int, followers: Followers) -> list[int]:
        """The next tokens of a partial reply of this length, if each is the one that last followed the two before it."""
        known, tokens = self.prompts[reply][-2:], self.drawn[0, reply, max(0, length - 2) : length].astype(np.int64).tolist()
        last, draft = (*known, *tokens)[-2:], list[int]()
        while len(draft) < min(most, self.max_new_tokens - 1 - length) and last in followers:
            draft.append(followers[last])
            last = (*last, draft[-1])[-2:]
        return draft

    def record(self, followers: Followers) -> None:
        """Records what followed every two tokens, as drafts of later replies."""
        for prompt, tokens in zip(self.prompts, self.drawn[0].astype(np.int64).tolist(), strict=True):
            whole = [*prompt[-2:], *(token for token in tokens if token >= 0)]
            followers.update(zip(itertools.pairwise(whole), whole[2:], strict=False))

    def samples(self) -> list[Sample]:
        """The replies. All of them have ended."""
        tokens, log_probs, entropies, near = self.drawn  # each (replies, positions)
        samples = []
        for prompt, *row, draws in zip(self.prompts, tokens, log_probs, entropies, near, strict=True):
            ids, log_p, spread = (values[row[0] >= 0].tolist() for values in row)
            samples.append(
                Sample(
                    prompt_ids=prompt,
                    token_ids=tuple(map(int, ids)),
                    log_probs=tuple(log_p),
                    entropies=tuple(spread),
                    finish="stop" if ids[-1] in self.end_ids else "length",
                    near_draws=int((draws > 0).sum()),
                )
            )
        return samples


@dataclass
class GivenReplies:
    """Replies with given tokens."""

    prompts: Sequence[TokenIds]
    tokens: Sequence[TokenIds]
    log_probs: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Of each reply, the log-probabilities of its tokens at temperature 1, in nats."""

    def append_tokens(self, live: IntArray, positions: IntArray, logits: Tensor, rows: Tensor) -> tuple[IntArray, IntArray]:
        """Records the tokens at these positions, as `Replies.append_tokens` samples them."""
        tokens = np.array([self.tokens[i][position] for i, position in zip(live, positions, strict=True)], np.int64)
        log_p = torch.log_softmax(logits.float(), -1)[rows, to_device(tokens, logits.device)]
        if log_p.isnan().any():
            raise not_finite()
        for i, value in zip(live.tolist(), log_p.tolist(), strict=True):
            self.log_probs[i].append(value)
        return tokens, np.flatnonzero([p + 1 < len(self.tokens[i]) for i, p in zip(live, positions, strict=True)])

    def draft(self, reply: int, length: int, most: int, _: Followers) -> Sequence[int]:
        """The tokens after this length, without the last, after which nothing is scored."""
        return self.tokens[reply][length:-1][:most]


def not_finite() -> UserError:
    """The error for a model that returns NaN."""
    return UserError(
        "the model's log-probabilities are not finite, expected finite numbers: lower --learning-rate if it is being "
        "trained; use --dtype bfloat16 or float32 if it is in float16; otherwise its weights are damaged"
    )


def distinct(prompts: Sequence[TokenIds]) -> tuple[list[TokenIds], IntArray]:
    """The distinct prompts, in the order of their first occurrence, and the row of every prompt among them.

    >>> distinct([(5,), (3,), (5,)])
    ([(5,), (3,)], array([0, 1, 0]))
    """
    row_of = {prompt: row for row, prompt in enumerate(dict.fromkeys(prompts))}
    return list(row_of), np.array([row_of[prompt] for prompt in prompts], np.int64)


def fork(rows: IntArray, tokens: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Groups samples by (row, token): the parent row and the token of each new row, and the new row of every sample.

    >>> parents, tokens, rows = fork(np.array([0, 0, 1]), np.array([5, 7, 5]))
    >>> parents.tolist(), tokens.tolist(), rows.tolist()
    ([0, 0, 1], [5, 7, 5], [0, 1, 2])
    """
    width = int(tokens.max(initial=0)) + 1
    keys, new_rows = np.unique(rows * width + tokens, return_inverse=True)
    return keys // width, keys % width, new_rows


def draw_tokens(
    logits: Tensor, rows: Tensor, uniforms: Sequence[float], temperature: float, top_k: int = 0, top_p: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Samples one token per sample from the distribution of its row.

    Probabilities are computed in float32 and summed in float64, on the CPU where a device may lack float64.

    Args:
        logits: (rows, vocabulary), in any floating type.
        rows: (samples,) the row of each sample.
        uniforms: one number in [0, 1) per sample.
        temperature: divides the logits; 0 selects the most likely token.
        top_k: number of tokens to keep, and all that are as likely as the last of them; 0 keeps all.
        top_p: keeps the fewest tokens whose probabilities add up to at least this; 1 keeps all.

    Returns:
        Tokens, their log-probabilities, the entropies of the distributions in nats, and whether the sample was within `NEAR` of a
        boundary of the cumulative distribution, or greedy between two tokens within `NEAR` nats; each (samples,).
    """
    if logits.device.type not in ("cpu", "cuda"):
        logits, rows = logits.cpu(), rows.cpu()
    u = to_device(np.array(uniforms, np.float64), logits.device)
    size = max(1, AT_ONCE // logits.shape[1]) if logits.device.type == "cpu" else len(logits)
    if size >= len(logits):
        return _draw(logits, rows, u, temperature, top_k, top_p)
    samples = [(rows // size == part).nonzero()[:, 0] for part in range(-(-len(logits) // size))]
    parts = [
        _draw(logits[part * size :][:size], rows[own] - part * size, u[own], temperature, top_k, top_p)
        for part, own in enumerate(samples)
        if len(own)
    ]
    place = torch.cat(samples).argsort()
    tokens, log_probs, entropies, near = (torch.cat(values)[place] for values in zip(*parts, strict=True))
    return tokens, log_probs, entropies, near


def _draw(
    logits: Tensor, rows: Tensor, uniforms: Tensor, temperature: float, top_k: int, top_p: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`draw_tokens` of some rows, with all their tables in memory; the uniforms are (samples,)."""
    logits = logits.float()
    if temperature:
        logits = logits if temperature == 1 else logits / temperature
        unused: Any = None  # the tokens so far
        logits = TopKLogitsWarper(top_k)(unused, logits) if top_k else logits
        logits = TopPLogitsWarper(top_p)(unused, logits) if top_p < 1 else logits
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    if temperature:
        tokens, near = _inverse(p, rows, uniforms)
    else:
        likely = log_p.topk(2)
        tokens = log_p.argmax(-1)[rows]
        near = (likely.values[:, 0] - likely.values[:, 1] < NEAR)[rows]
    of_tokens = log_p[rows, tokens]
    entropies = -log_p.clamp_(min=-1e9).mul_(p).sum(-1)  # 0·log 0 is 0; log p is not used below
    return tokens, of_tokens, entropies[rows], near


def _inverse(p: Tensor, rows: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of the cumulative distributions of p, (rows, vocabulary), at the uniforms, (samples,) in float64.

    Returns each sample's token, and whether the sample is within `NEAR` of an end of the token's interval. 0 and the sum of all
    are no such ends, since no token lies beyond them.
    """
    cumulative = p.double().cumsum(-1)
    total = cumulative[rows, -1]
    u = uniforms * total
    # 1) one search per row: its samples side by side in a table, so that no row of the distribution is copied
    ascending, order = rows.sort()
    place = torch.empty_like(rows)
    place[order] = torch.arange(len(rows), device=rows.device) - torch.searchsorted(ascending, ascending)
    width = int(place.max()) + 1 if rows.device.type == "cpu" else len(rows)  # reading the maximum would make a GPU wait
    table = u.new_zeros(len(cumulative), width)
    table[rows, place] = u
    tokens = torch.searchsorted(cumulative, table, right=True)[rows, place].clamp(max=p.shape[1] - 1)
    # 2) the distance to the ends of the token's interval; at the first token, index -1 reads the sum
    ends = cumulative[rows[:, None], torch.stack([tokens - 1, tokens], 1)]
    near = ((ends - u[:, None]).abs() < NEAR) & (ends > 0) & (ends < total[:, None])
    return tokens, near.any(1)
