"""Forward passes for sampling and scoring, with rows that fork where replies diverge.

The fast forward serves models with softmax attention. It computes the prefix that all prompts share (the rules) once per version
of the weights, and prompts of any length in one batch, padded on the left.

The plain forward serves the other models with their own code and cache. It pads nothing, because padding changes recurrent
states: prompts of equal length are one batch. If the model's cache cannot copy rows, every token recomputes its whole context.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from msgrpo_hub.models.attention import ACTING, RowCache, SharedPrefix, attention_of, base_of
from msgrpo_hub.models.devices import sixteen_bits, to_device
from msgrpo_hub.models.sampling import IntArray, TokenIds, not_finite
from msgrpo_hub.models.token_tree import common_prefix
from msgrpo_hub.models.weights import few_rows_by_one_dnn

# Shapes: U rows, V tokens of the vocabulary.

SCORED_ROWS = 16
"""Rows that the plain forward scores at once: some models compute logits at every token of a prompt."""


class Forward:
    """Forward passes of one causal language model.

    Attributes:
        name: `fast`, `plain` or `plain without cache`.
        shares_prefixes: whether equal prefixes are computed once, also in training.
        prefix: tokens of the shared prefix.
        rows: number of rows passed to the model.
        split_head: whether training computes the model's head apart from its body.
    """

    name = "fast"
    shares_prefixes = True

    def __init__(self, model: PreTrainedModel | PeftModel) -> None:
        self.model, self.rows, self.split_head = model, 0, True
        self.prefix: TokenIds = ()
        self._is_acting = False

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Evaluation mode, attention over the shared prefix, and few rows by oneDNN; all is restored on exit.

        The switches visit all modules, so that play of many turns enters the context once. A nested context does nothing.
        """
        if self._is_acting:
            yield
            return
        training = self.model.training
        self.model.eval()
        self._is_acting = True
        try:
            with attention_of(self.model, ACTING) if self.shares_prefixes else nullcontext(), few_rows_by_one_dnn(self.model):
                yield
        finally:
            self._is_acting = False
            self.model.train(training)

    def forget(self) -> None:
        """Drops everything computed from the weights, because they have changed."""

    def share(self, prompts: Sequence[TokenIds]) -> None:
        """Computes the shared prefix of the prompts, unless it is known."""


@dataclass
class FastRows:
    """The rows of a batch: one for each distinct partial reply."""

    forward: FastForward
    cache: RowCache
    visible: Tensor
    """(U, length) false at padding."""

    def select(self, rows: IntArray) -> None:
        """Keeps these rows, in this order; a row may be selected several times."""
        selected = to_device(rows, self.visible.device)
        self.cache.select(selected)
        self.visible = self.visible[selected]

    def step(self, tokens: IntArray) -> Tensor:
        """Appends one token to each row, (U,). Returns the next-token logits, (U, V) in the model's type."""
        self.visible = torch.cat([self.visible, self.visible.new_ones(len(tokens), 1)], dim=1)
        positions = self.visible.sum(1, keepdim=True) - 1 + len(self.forward.prefix)
        given = to_device(tokens, self.visible.device)[:, None]
        return self.forward.run(given, self.visible[:, None], positions, self.cache)[:, -1]


class FastForward(Forward):
    """Forward passes over a shared prefix, by transformers' attention interface. The prefix depends only on a call's prompts."""

    _prefix_cache: RowCache | None = None

    def forget(self) -> None:
        self.prefix, self._prefix_cache = (), None

    def share(self, prompts: Sequence[TokenIds]) -> None:
        shared = min(common_prefix(min(prompts), max(prompts)), *(len(prompt) - 1 for prompt in prompts))
        if prompts[0][:shared] == self.prefix:
            return
        self.forget()  # in case the pass below is interrupted
        if shared:
            cache = RowCache()
            ids = torch.tensor([prompts[0][:shared]], device=self.model.device)
            causal = torch.ones(1, shared, shared, dtype=torch.bool, device=ids.device).tril()
            self.run(ids, causal, torch.arange(shared, device=ids.device)[None], cache)
            self.prefix, self._prefix_cache = prompts[0][:shared], cache

    def batches(self, prompts: Sequence[TokenIds], max_rows: int) -> list[list[int]]:
        """The indices of the prompts, in batches, in their order."""
        return [list(range(len(prompts)))[start : start + max_rows] for start in range(0, len(prompts), max_rows)]

    def prefill(self, prompts: Sequence[TokenIds], keep: int = 1) -> tuple[Tensor, FastRows]:
        """The logits after the last `keep` tokens of each prompt, (U, keep, V) in the model's type, and its rows."""
        device, tails = self.model.device, [prompt[len(self.prefix) :] for prompt in prompts]
        longest = max(map(len, tails))
        padded = torch.tensor([(0,) * (longest - len(tail)) + tail for tail in tails], device=device)
        index = torch.arange(longest, device=device)
        visible = index >= longest - torch.tensor([[len(tail)] for tail in tails], device=device)
        positions = (visible.cumsum(1) - 1).clamp(min=0) + len(self.prefix)
        causal = (index[None, :, None] >= index) & visible[:, None, :]
        causal |= torch.eye(longest, dtype=torch.bool, device=device)  # no empty rows: some kernels return NaN
        rows = FastRows(self, RowCache(), visible)
        return self.run(padded, causal, positions, rows.cache, keep), rows

    def score(self, pairs: Sequence[tuple[TokenIds, TokenIds]]) -> list[list[float]]:
        """log p of each token of each (prompt, continuation), in nats.

        Two passes: the distinct prompts with the shared prefix of all continuations, then the rest of each continuation.
        """
        tokens_of = [tokens for _, tokens in pairs]
        common = min(common_prefix(min(tokens_of), max(tokens_of)), *(len(tokens) - 1 for tokens in tokens_of))
        head, tails = pairs[0][1][:common], [tokens[common:] for tokens in tokens_of]
        row_of = {prompt: row for row, prompt in enumerate(dict.fromkeys(prompt for prompt, _ in pairs))}
        logits, batch = self.prefill([prompt + head for prompt in row_of], common + 1)
        log_p, device = torch.log_softmax(logits.float(), -1), logits.device
        rows = torch.tensor([row_of[prompt] for prompt, _ in pairs], device=device)
        width = max(map(len, tails)) - 1
        tokens = torch.tensor([tail + (0,) * (width + 1 - len(tail)) for tail in tails], device=device)
        scores = [log_p[rows, k, token] for k, token in enumerate(head)] + [log_p[rows, common, tokens[:, 0]]]
        if width:
            batch.cache.select(rows)
            before = batch.visible[rows, None].expand(-1, width, -1)
            causal = before.new_ones(width, width).tril().expand(len(rows), -1, -1)  # also hides the right padding
            positions = before[:, 0].sum(1)[:, None] + len(self.prefix) + torch.arange(width, device=device)
            rest = self.run(tokens[:, :-1], torch.cat([before, causal], 2), positions, batch.cache, keep=width)
            scores += torch.log_softmax(rest.float(), -1).gather(2, tokens[:, 1:, None])[..., 0].unbind(1)
        return table_rows(torch.stack(scores, 1), tokens_of)

    def run(self, token_ids: Tensor, visible: Tensor, positions: Tensor, cache: RowCache, keep: int = 1) -> Tensor:
        """Next-token logits after the last `keep` tokens, (U, keep, V) in the model's type; appends the tokens to the cache.

        `visible` (U, tokens or 1, length) says which of its row's tokens each new token attends to.
        """
        self.rows += len(token_ids)
        dtype = self.model.dtype
        mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, torch.finfo(dtype).min)
        with sixteen_bits(self.model):
            output = self.model(
                input_ids=token_ids,
                attention_mask=mask[:, None],
                position_ids=positions,
                past_key_values=cache,
                logits_to_keep=keep,
                shared_prefix=None if self._prefix_cache is None else SharedPrefix(self._prefix_cache, positions),
            )
        logits: Tensor = output.logits[:, -keep:]
        return logits


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
        logits, self.cache = self.forward.run(self.token_ids if self.cache is None else given, self.cache)
        return logits


class PlainForward(Forward):
    """Forward passes through the model's own code; `cached`: whether its cache is used."""

    shares_prefixes = False

    def __init__(self, model: PreTrainedModel | PeftModel, cached: bool = True) -> None:
        super().__init__(model)
        self.cached = cached
        self.name = "plain" if cached else "plain without cache"
        accepted = inspect.signature(base_of(model).forward).parameters
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}

    def batches(self, prompts: Sequence[TokenIds], max_rows: int) -> list[list[int]]:
        """The indices of the prompts, in batches of equal length."""
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        by_length = [list(group) for _, group in groupby(order, key=lambda i: len(prompts[i]))]
        return [group[start : start + max_rows] for group in by_length for start in range(0, len(group), max_rows)]

    def prefill(self, prompts: Sequence[TokenIds]) -> tuple[Tensor, PlainRows]:
        """The logits after each prompt, (U, 1, V) in the model's type, and its rows; all prompts have the same length."""
        ids = torch.tensor(prompts, device=self.model.device)
        logits, cache = self.run(ids)
        return logits[:, None], PlainRows(self, ids, cache)

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
            scores += table_rows(table, [tokens for _, tokens in few])
        return scores

    def run(self, token_ids: Tensor, cache: Any = None) -> tuple[Tensor, Any]:
        """Next-token logits after the last token, (U, V) in the model's type, and the model's cache, if it is used."""
        self.rows += len(token_ids)
        used = {"past_key_values": cache} if cache is not None else {}
        output = self.model(input_ids=token_ids, use_cache=self.cached, **used, **self._options)
        return output.logits[:, -1], output.get("past_key_values") if self.cached else None


def table_rows(table: Tensor, continuations: Sequence[TokenIds]) -> list[list[float]]:
    """The rows of a table of log-probabilities, without padding. Raises `UserError` if one is NaN."""
    if table.isnan().any():
        raise not_finite()
    return [row[: len(tokens)] for row, tokens in zip(table.tolist(), continuations, strict=True)]
