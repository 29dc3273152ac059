"""Samples one token per reply from the rows of logits, and assigns the replies to the rows of the next step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from msgrpo_hub.episode import NEAR, Finish
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.devices import has_float64

AT_ONCE = 2**20
"""Logits that are drawn from at once on the CPU: tables of more leave its caches, and each would be new memory."""

TokenIds = tuple[int, ...]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A reply."""

    prompt_ids: TokenIds
    token_ids: TokenIds
    log_probs: tuple[float, ...]
    entropies: tuple[float, ...]
    finish: Finish
    near_draws: int
    """Its draws within `NEAR` of a boundary."""


class Replies:
    """A batch of growing replies, each with its own random generator.

    What is drawn at a position is one column over all replies, so that a step costs no Python per reply beyond its draw.

    Args:
        prompts: what is replied to.
        rngs: the generator of each reply; a token takes one number.
        temperature: of sampling; 0 is greedy.
        max_new_tokens: at which a reply is cut.
        end_ids: tokens that end a reply.
        top_k: see `keep_likely`.
        top_p: see `keep_likely`.
    """

    def __init__(
        self,
        prompts: Sequence[TokenIds],
        rngs: Sequence[np.random.Generator],
        temperature: float,
        max_new_tokens: int,
        end_ids: frozenset[int],
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> None:
        self.prompts = prompts
        self.temperature, self.max_new_tokens, self.top_k, self.top_p = temperature, max_new_tokens, top_k, top_p
        self._rngs = rngs
        self._ends = np.array(sorted(end_ids), np.int64)
        self._columns: list[FloatArray] = []  # of each position: (4, replies) token, log p, entropy, near; -1 where none is

    def append_tokens(self, live: IntArray, position: int, logits: Tensor, rows: Tensor) -> tuple[IntArray, IntArray]:
        """Samples the tokens at a position; a reply that already has a token there keeps it.

        Args:
            live: (live,) indices of the replies.
            position: from 0.
            logits: (rows, vocabulary), in any floating type.
            rows: (live,) the row of each reply.

        Returns:
            The tokens, (live,), and the unfinished replies, as positions in `live`.
        """
        if position == len(self._columns):
            self._columns.append(np.full((4, len(self._rngs)), -1.0))
        column = self._columns[position]
        short = np.flatnonzero(column[0, live] < 0)
        if len(short):
            drawn = live[short]
            uniforms = [self._rngs[i].random() for i in drawn.tolist()]
            of_reply = rows if len(short) == len(live) else rows[torch.from_numpy(short).to(rows.device)]
            sampled = draw_tokens(logits, of_reply, uniforms, self.temperature, self.top_k, self.top_p)
            found = torch.stack([values.double() for values in sampled]).cpu().numpy()  # all that a step brings from a GPU
            if np.isnan(found[1:3]).any():
                raise not_finite()
            column[:, drawn] = found
        tokens = column[0, live].astype(np.int64)
        ended = self._is_end(tokens) | (position + 1 == self.max_new_tokens)
        return tokens, np.flatnonzero(~ended)

    def _is_end(self, tokens: IntArray) -> npt.NDArray[np.bool_]:
        ends: npt.NDArray[np.bool_] = (tokens[:, None] == self._ends).any(1)
        return ends

    def samples(self) -> list[Sample]:
        """The replies, all of which have ended."""
        if not self._columns:
            return []
        tokens, log_probs, entropies, near = np.stack(self._columns, axis=2)  # each (replies, positions)
        lengths = (tokens >= 0).sum(1)
        last = tokens[np.arange(len(lengths)), lengths - 1]
        return [
            Sample(
                prompt_ids=prompt,
                token_ids=tuple(ids[:length]),
                log_probs=tuple(values[:length]),
                entropies=tuple(spread[:length]),
                finish="stop" if stopped else "length",
                near_draws=draws,
            )
            for prompt, ids, values, spread, length, stopped, draws in zip(
                self.prompts,
                tokens.astype(np.int64).tolist(),
                log_probs.tolist(),
                entropies.tolist(),
                lengths.tolist(),
                self._is_end(last).tolist(),
                (near > 0).sum(1).tolist(),
                strict=True,
            )
        ]


def draw_tokens(
    logits: Tensor, rows: Tensor, uniforms: Sequence[float], temperature: float, top_k: int = 0, top_p: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Samples one token per sample from the distribution of its row.

    Probabilities are computed in float32, and the cumulative distribution is summed in float64. A device without float64 hands
    its logits to the CPU, so that equal logits give equal tokens everywhere.

    Args:
        logits: (rows, vocabulary), in any floating type.
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
    u = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)
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
        logits = keep_likely(logits if temperature == 1 else logits / temperature, top_k, top_p)
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    entropies = -(p * log_p.clamp_(min=-1e9)).sum(-1)  # 0·log 0 is 0
    if temperature:
        cumulative = p.double().cumsum(-1)
        u = uniforms * cumulative[rows, -1]
        tokens = _find(cumulative, rows, u).clamp(max=logits.shape[1] - 1)
        near = _near_boundary(cumulative, rows, u[:, None], tokens)
    else:
        likely = log_p.topk(2)
        tokens = log_p.argmax(-1)[rows]
        near = (likely.values[:, 0] - likely.values[:, 1] < NEAR)[rows]
    return tokens, log_p[rows, tokens], entropies[rows], near


def _find(cumulative: Tensor, rows: Tensor, u: Tensor) -> Tensor:
    """(samples,) the first token of each sample's row whose cumulative probability is above u.

    The draws of a row lie side by side, so that no row is copied.

    Args:
        cumulative: (rows, vocabulary) float64.
        rows: (samples,) the row of each sample.
        u: (samples,) the draws.
    """
    ascending, order = rows.sort()
    place = torch.empty_like(rows)
    place[order] = torch.arange(len(rows), device=rows.device) - torch.searchsorted(ascending, ascending)
    # A GPU is not asked how many draws a row has at most, since the step would wait for the answer; this many is never too few.
    width = len(rows) if _is_gpu(rows) else int(place.max()) + 1
    table = u.new_zeros(len(cumulative), width)
    table[rows, place] = u
    return torch.searchsorted(cumulative, table, right=True)[rows, place]


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
    if _is_gpu(near) or near.any():
        near &= (ends > 0) & (ends < cumulative[rows, -1:])
    return near.any(1)


def _is_gpu(values: Tensor) -> bool:
    return values.device.type != "cpu"


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
