"""The plain forward: a model's own forward and its own cache, for models that the fast forward computes inexactly.

Sampling pads nothing, because padding changes recurrent states: prompts of equal length are one batch. Where the model's cache
can copy rows, a distinct partial reply is one row, as in the fast forward; otherwise every token recomputes its whole context.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from msgrpo_hub.models.attention import base_of
from msgrpo_hub.models.devices import to_device
from msgrpo_hub.models.sampling import IntArray, TokenIds, not_finite
from msgrpo_hub.models.weights import few_rows_by_one_dnn

# Shapes: U rows, V tokens of the vocabulary.

SCORED_ROWS = 16
"""Rows scored at once: some models compute logits at every token of a prompt."""


@dataclass
class PlainRows:
    """The rows of a batch: one for each distinct partial reply."""

    forward: PlainForward
    token_ids: Tensor
    """(U, length) the prompts with their partial replies."""
    cache: Any
    """The model's own cache, or None."""

    def select(self, rows: IntArray) -> None:
        """Keeps these rows, in this order; a row may be selected several times."""
        selected = to_device(rows, self.token_ids.device)
        self.token_ids = self.token_ids[selected]
        if self.cache is not None:
            self.cache.reorder_cache(selected)

    def step(self, tokens: IntArray) -> Tensor:
        """Appends one token to each row, (U,). Returns the next-token logits, (U, V) in the model's type."""
        given = to_device(tokens, self.token_ids.device)[:, None]
        self.token_ids = torch.cat([self.token_ids, given], 1)
        if self.cache is None:
            return self.forward.run(self.token_ids)[0]
        logits, self.cache = self.forward.run(given, self.cache)
        return logits


class PlainForward:
    """Forward passes of one model through its own code, with the interface of `FastForward`.

    Args:
        model: any causal language model of transformers.
        cached: whether its cache is used.
    """

    prefix: TokenIds = ()

    def __init__(self, model: PreTrainedModel | PeftModel, cached: bool = True) -> None:
        self.model, self.cached = model, cached
        self.rows, self.split_head = 0, True
        self.name = "plain" if cached else "plain without cache"
        accepted = inspect.signature(base_of(model).forward).parameters
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Evaluation mode; the previous mode is restored on exit."""
        training = self.model.training
        self.model.eval()
        try:
            with few_rows_by_one_dnn(self.model):
                yield
        finally:
            self.model.train(training)

    def forget(self) -> None:
        """Does nothing, since calls share nothing."""

    def share(self, prompts: Sequence[TokenIds]) -> None:
        """Does nothing, since prompts share nothing."""

    def batches(self, prompts: Sequence[TokenIds], max_rows: int) -> list[list[int]]:
        """The indices of the prompts, in batches of equal length."""
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        by_length = [list(group) for _, group in groupby(order, key=lambda i: len(prompts[i]))]
        return [group[start : start + max_rows] for group in by_length for start in range(0, len(group), max_rows)]

    def prefill(self, prompts: Sequence[TokenIds]) -> tuple[Tensor, PlainRows]:
        """The logits after each prompt, (U, V) in the model's type, and its rows; all prompts have the same length."""
        ids = torch.tensor(prompts, device=self.model.device)
        logits, cache = self.run(ids)
        return logits, PlainRows(self, ids, cache)

    def score(self, pairs: Sequence[tuple[TokenIds, TokenIds]]) -> list[list[float]]:
        """log p of each token of each (prompt, continuation), in nats; all prompts have the same length.

        Continuations are padded on the right, where padding changes nothing before it.
        """
        scores: list[list[float]] = []
        for first in range(0, len(pairs), SCORED_ROWS):
            few = pairs[first : first + SCORED_ROWS]
            width = max(len(tokens) for _, tokens in few)
            rows = [prompt + tokens + (0,) * (width - len(tokens)) for prompt, tokens in few]
            ids = torch.tensor(rows, device=self.model.device)
            self.rows += len(rows)
            keep = dict.fromkeys(self._options, width)
            logits = self.model(input_ids=ids[:, :-1], use_cache=False, **keep).logits[:, -width:].float()
            table = torch.log_softmax(logits, -1).gather(2, ids[:, -width:, None])[..., 0]
            if table.isnan().any():
                raise not_finite()
            scores += [row[: len(tokens)] for row, (_, tokens) in zip(table.tolist(), few, strict=True)]
        return scores

    def run(self, token_ids: Tensor, cache: Any = None) -> tuple[Tensor, Any]:
        """Next-token logits after the last token, (U, V) in the model's type, and the model's cache, if it is used."""
        self.rows += len(token_ids)
        used = {"past_key_values": cache} if cache is not None else {}
        output = self.model(input_ids=token_ids, use_cache=self.cached, **used, **self._options)
        return output.logits[:, -1], output.get("past_key_values") if self.cached else None
