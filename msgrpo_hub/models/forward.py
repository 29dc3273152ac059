"""Forward passes for sampling and scoring, with rows that fork where replies diverge.

The fast forward serves models with softmax attention. It computes the prefix that all prompts share (the rules) once per version
of the weights, and prompts of any length in one batch, padded on the left.

The plain forward serves the other models with their own code and cache. It pads nothing, because padding changes recurrent
states: prompts of equal length are one batch. If the model's cache cannot copy rows, every token recomputes its whole context.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.attention import SHARED, RowLayer, States, additive, attention_of, base_of, prefix_states
from msgrpo_hub.models.devices import sixteen_bits, to_device
from msgrpo_hub.models.log_probs import TokenBatch, token_log_probs
from msgrpo_hub.models.sampling import IntArray, TokenIds
from msgrpo_hub.models.token_tree import common_prefix, tree_inputs
from msgrpo_hub.models.weights import few_rows_by_one_dnn

# Shapes: U rows, V tokens of the vocabulary.


@dataclass
class Rows:
    """The rows of a batch: one for each distinct partial reply."""

    forward: FastForward
    cache: Any
    """The keys and values of each row: a `Cache` of `RowLayer`s, or an `OwnCache`."""
    visible: Tensor
    """(U, length) false at padding."""

    fed: int = 1
    """Number of tokens of each row in the last pass."""

    def select(self, rows: IntArray, kept: IntArray | None = None) -> None:
        """Keeps these rows, in this order, with the first `kept` tokens of the last pass; a row may be selected several times."""
        if not np.array_equal(rows, np.arange(len(self.visible))):
            selected = to_device(rows, self.visible.device)
            self.cache.reorder_cache(selected)
            self.visible = self.visible[selected]
        if kept is not None and self.fed > 1:  # what a draft guessed wrong becomes padding
            self.visible[:, -self.fed :] &= to_device(np.arange(self.fed) < kept[:, None], self.visible.device)

    def step(self, tokens: IntArray) -> Tensor:
        """Appends tokens to each row, (U, D), with -1 as padding on the right: its last one, and a draft of the next ones.

        Returns the logits after each of them, (U, D, V) in the model's type.
        """
        added, before, self.fed = to_device(tokens, self.visible.device), self.visible, tokens.shape[1]
        self.visible = torch.cat([before, added >= 0], dim=1)
        own = added.new_ones(self.fed, self.fed, dtype=torch.bool).tril().expand(len(tokens), -1, -1)
        visible = torch.cat([before[:, None].expand(-1, self.fed, -1), own], 2)
        return self.forward.run(added.clamp(min=0), visible, self.positions(), self.cache)

    def positions(self) -> Tensor:
        """(U, length) the positions of each row's tokens, counted from the start of the shared prefix."""
        return (self.visible.cumsum(1) - 1).clamp(min=0) + len(self.forward.prefix)


class FastForward:
    """Forward passes of one causal language model over a shared prefix, by transformers' attention interface.

    Attributes:
        name: `fast`, `plain` or `plain without cache`.
        shares_prefixes: whether equal prefixes are computed once, also in training.
        prefix: tokens of the shared prefix. It depends only on the prompts of a call.
        rows: number of rows passed to the model.
    """

    name = "fast"
    shares_prefixes = True
    new_cache: Callable[[], Any] = staticmethod(partial(Cache, layer_class_to_replicate=RowLayer))

    def __init__(self, model: PreTrainedModel | PeftModel) -> None:
        self.model, self.rows, self._is_acting = model, 0, False
        self.forget()

    def forget(self) -> None:
        """Drops everything computed from the weights, because they have changed."""
        self.prefix: TokenIds = ()
        self._states: States = {}

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
            with attention_of(self.model, SHARED) if self.shares_prefixes else nullcontext(), few_rows_by_one_dnn(self.model):
                yield
        finally:
            self._is_acting = False
            self.model.train(training)

    def share(self, prompts: Sequence[TokenIds]) -> None:
        """Computes the keys and values of the prompts' shared prefix, unless they are known."""
        shared = min(common_prefix(min(prompts), max(prompts)), *(len(prompt) - 1 for prompt in prompts))
        if not self.shares_prefixes or prompts[0][:shared] == self.prefix:
            return
        self.forget()  # in case the pass below is interrupted
        self.rows += bool(shared)
        self._states = prefix_states(self.model, prompts[0][:shared])
        self.prefix = prompts[0][:shared]

    def batches(self, prompts: Sequence[TokenIds], max_rows: int) -> list[list[int]]:
        """The indices of the prompts, in batches that `prefill` takes: of any lengths, or of equal lengths."""
        groups = [list(range(len(prompts)))]
        if not self.shares_prefixes:
            order = sorted(groups[0], key=lambda i: len(prompts[i]))
            groups = [list(group) for _, group in groupby(order, key=lambda i: len(prompts[i]))]
        return [group[start : start + max_rows] for group in groups for start in range(0, len(group), max_rows)]

    def prefill(self, prompts: Sequence[TokenIds]) -> tuple[Tensor, Rows]:
        """The logits after each prompt, (U, V) in the model's type, and its rows."""
        device, tails = self.model.device, [prompt[len(self.prefix) :] for prompt in prompts]
        longest = max(map(len, tails))
        padded = torch.tensor([(0,) * (longest - len(tail)) + tail for tail in tails], device=device)
        index = torch.arange(longest, device=device)
        visible = index >= longest - torch.tensor([[len(tail)] for tail in tails], device=device)
        causal = (index[None, :, None] >= index) & visible[:, None, :]
        causal |= torch.eye(longest, dtype=torch.bool, device=device)  # no empty rows: some kernels return NaN
        rows = Rows(self, self.new_cache(), visible)
        return self.run(padded, causal, rows.positions(), rows.cache, 1)[:, -1], rows

    def log_probs(self, batch: TokenBatch, temperature: float, states: States | None = None) -> Tensor:
        """(K,) log p(target | its context) in float32, with a gradient, under the distribution of sampling.

        `shares_prefixes` decides how the batch must be built. `Engine.sharing` gives the `states`.
        """
        return token_log_probs(self.model, batch, temperature, tree=self.shares_prefixes, states=states)

    def run(self, token_ids: Tensor, visible: Tensor, positions: Tensor, cache: Any, last: int = 0) -> Tensor:
        """Logits after the `last` tokens of each row, or after all, (U, tokens, V) in the model's type; extends the cache.

        `visible`, (U, tokens, length), says which of its row's tokens, at `positions`, (U, length), each new token attends to.
        """
        self.rows += len(token_ids)
        own = positions[:, -token_ids.shape[1] :]
        with sixteen_bits(self.model):
            output = self.model(
                input_ids=token_ids,
                attention_mask=additive(visible, self.model.dtype)[:, None],
                position_ids=own,
                past_key_values=cache,
                logits_to_keep=last,
                prefix_states=self._states,
                query_positions=own,
                key_positions=positions,
            )
        logits: Tensor = output.logits
        return logits


class OwnCache:
    """The tokens of each row, (U, length), and the model's own cache of them; without one they are recomputed."""

    value: Any = None
    token_ids: Any = None

    def reorder_cache(self, rows: Tensor) -> None:
        """Keeps these rows, in this order."""
        self.token_ids = self.token_ids[rows]
        if self.value is not None:
            self.value.reorder_cache(rows)


class PlainForward(FastForward):
    """Forward passes through the model's own code; `cached`: whether its cache is used."""

    shares_prefixes = False
    new_cache = OwnCache

    def __init__(self, model: PreTrainedModel | PeftModel, cached: bool = True) -> None:
        super().__init__(model)
        self.cached = cached
        self.name = "plain" if cached else "plain without cache"
        accepted = inspect.signature(base_of(model).forward).parameters
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}

    def run(self, token_ids: Tensor, visible: Tensor, positions: Tensor, cache: Any, last: int = 0) -> Tensor:  # noqa: ARG002
        """As `FastForward.run`, after the last token only; no token is padding."""
        self.rows += len(token_ids)
        cache.token_ids = token_ids if cache.token_ids is None else torch.cat([cache.token_ids, token_ids], 1)
        given = (
            {"input_ids": cache.token_ids} if cache.value is None else {"input_ids": token_ids, "past_key_values": cache.value}
        )
        output = self.model(**given, use_cache=self.cached, **self._options)
        cache.value = output.get("past_key_values") if self.cached else None
        logits: Tensor = output.logits[:, -1:]
        return logits


class ShardedForward(PlainForward):
    """The log-probabilities of a base that FSDP shards over processes. Its weights are whole only while the model is called."""

    def __init__(self, model: PreTrainedModel | PeftModel) -> None:
        super().__init__(model)
        self.name = "fsdp"

    def acting(self) -> Any:
        """Raises `UserError`: sampling has another number of forward passes in each process, and they would wait forever."""
        raise UserError("a base that FSDP shards cannot sample: expected --acting vllm:URL, or --taught for every update")

    def log_probs(self, batch: TokenBatch, temperature: float, states: States | None = None) -> Tensor:  # noqa: ARG002
        """As `FastForward.log_probs`, by one call of the model, which keeps the logits of all replies."""
        ids = tree_inputs(batch.trees, self.model.device)["input_ids"]
        rows, columns = (part.to(ids.device) for part in (batch.slots // ids.shape[1], batch.slots % ids.shape[1]))
        first, last = int(columns.min()), int(columns.max())
        kept = {name: torch.arange(first, last + 1, device=ids.device) for name in self._options}
        with sixteen_bits(self.model):
            logits = self.model(input_ids=ids, use_cache=False, **kept).logits
        chosen = logits[rows, columns - first if kept else columns].float() / (temperature or 1.0)
        return torch.log_softmax(chosen, -1).gather(1, batch.targets.to(ids.device)[:, None])[:, 0]
