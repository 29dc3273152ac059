"""Samples one token per reply from the rows of logits, and assigns the replies to the rows of the next step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from msgrpo_hub.episode import Finish
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.devices import there
from msgrpo_hub.models.drawing import draw_tokens

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
            of_reply = rows if len(short) == len(live) else rows[there(short, rows.device)]
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
