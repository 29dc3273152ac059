"""Draws tokens from rows of logits: the inverse of the cumulative distribution at one uniform number per sample.

The distribution of a large vocabulary is summed by blocks of tokens: a draw first finds its block, then its token. A float64 sum
up to every token would take more time than all else here, most of it for its memory. In a small vocabulary it takes less.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from msgrpo_hub.episode import NEAR
from msgrpo_hub.models.devices import has_float64, there

AT_ONCE = 2**20
"""Logits that are drawn from at once on the CPU: tables of more leave its caches, and each would be new memory."""
LARGE = 2**14
"""Tokens of a vocabulary above which they are summed by blocks."""
BLOCK = 128
"""Tokens of a block."""
ROUNDING = 1e-6
"""More than two sums of all probabilities differ by, where they are summed by blocks."""


def draw_tokens(
    logits: Tensor, rows: Tensor, uniforms: Sequence[float], temperature: float, top_k: int = 0, top_p: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Samples one token per sample from the distribution of its row.

    Probabilities are computed in float32 and summed in float64, but for the sums of blocks. A device without float64 hands its
    logits to the CPU, so that equal logits give equal tokens everywhere.

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
    u = there(np.array(uniforms, np.float64), logits.device)
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
    if temperature:
        tokens, near = (_inverse if p.shape[1] <= LARGE else _inverse_by_blocks)(p, rows, uniforms)
    else:
        likely = log_p.topk(2)
        tokens = log_p.argmax(-1)[rows]
        near = (likely.values[:, 0] - likely.values[:, 1] < NEAR)[rows]
    of_tokens = log_p[rows, tokens]
    entropies = -log_p.clamp_(min=-1e9).mul_(p).sum(-1)  # 0·log 0 is 0; log p is no longer needed
    return tokens, of_tokens, entropies[rows], near


def _inverse(p: Tensor, rows: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of the cumulative distributions.

    Args:
        p: (rows, vocabulary) probabilities.
        rows: (samples,) the row of each sample.
        uniforms: (samples,) float64.

    Returns:
        Each sample's token, and whether its draw is within `NEAR` of an end of the token's interval, (samples,) each. No token
        lies below 0 or above the sum, so that these are no ends.
    """
    cumulative = p.double().cumsum(-1)
    total = cumulative[rows, -1]
    u = uniforms * total
    tokens = _find(cumulative, rows, u).clamp(max=p.shape[1] - 1)
    ends = cumulative[rows[:, None], torch.stack([tokens - 1, tokens], 1)]  # below the first token it takes the sum
    return tokens, _near_boundary(ends, u, total, 0.0)


def _inverse_by_blocks(p: Tensor, rows: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """The same from sums of blocks of tokens."""
    vocabulary = p.shape[1]
    blocks = vocabulary // BLOCK
    whole, rest = p.split([blocks * BLOCK, vocabulary - blocks * BLOCK], -1)
    sums = whole.unflatten(-1, (blocks, BLOCK)).sum(-1)
    if rest.shape[1]:
        sums = torch.cat([sums, rest.sum(-1, keepdim=True)], -1)
    sums = sums.double()
    ends = sums.cumsum(-1)
    total = ends[rows, -1]
    u = uniforms * total
    block = torch.minimum(_find(ends, rows, u), _last(ends)[rows, 0])
    tokens = block[:, None] * BLOCK + torch.arange(BLOCK, device=p.device)
    of_block = p[rows[:, None], tokens.clamp(max=vocabulary - 1)].double() * (tokens < vocabulary)
    begin = (ends[rows, block] - sums[rows, block])[:, None]
    cumulative = torch.cat([begin, begin + of_block.cumsum(-1)], -1)  # (samples, 1 + BLOCK) the ends of the tokens' intervals
    inside = torch.maximum(u, begin[:, 0])[:, None]  # block and tokens are rounded otherwise
    end = torch.minimum(torch.searchsorted(cumulative, inside, right=True), _last(cumulative)).clamp(min=1)
    near = _near_boundary(cumulative.gather(1, torch.cat([end - 1, end], 1)), u, total, ROUNDING)
    return tokens.gather(1, end - 1)[:, 0].clamp(max=vocabulary - 1), near


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


def _last(cumulative: Tensor) -> Tensor:
    """(n, 1) the last index of each row, (n, ends), at which anything is added; of one with NaN, any index."""
    return torch.searchsorted(cumulative, cumulative[:, -1:].contiguous()).clamp(max=cumulative.shape[1] - 1)


def _near_boundary(ends: Tensor, u: Tensor, total: Tensor, rounding: float) -> Tensor:
    """Whether each draw is within `NEAR` of an end of its token's interval, (samples,), but for 0 and the sum of all.

    Args:
        ends: (samples, 2) of the intervals.
        u: (samples,) the draws.
        total: (samples,) the sums.
        rounding: an end is 0 or the sum if it is as near to them.
    """
    near = (ends - u[:, None]).abs() < NEAR
    if _is_gpu(near) or near.any():
        near &= (ends > rounding) & (ends < total[:, None] - rounding)
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
