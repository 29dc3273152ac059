"""The fast forward: each distinct prefix once, in a cache whose rows fork, for models with softmax attention.

- The prefix that all prompts share (the rules) is computed once per version of the weights and kept.
- Prompts of any length are one batch, padded on the left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from msgrpo_hub.models.attention import SharedPrefix, acting, has_kernel
from msgrpo_hub.models.devices import all_memory, current, there
from msgrpo_hub.models.direct_decoder import DirectDecoder, is_direct
from msgrpo_hub.models.recorded_steps import PATIENCE, RecordedSteps
from msgrpo_hub.models.row_cache import RowCache
from msgrpo_hub.models.sampling import IntArray, TokenIds, not_finite

# Shapes: U rows, V tokens of the vocabulary.

FEW = 2400
"""Rows times tokens of the shared prefix, up to which its copies take less time (`benchmark/throughput/few_rows.py`)."""

KEPT = 1 / 16
"""Most of the memory that the rows of recorded steps may keep between acting and acting, while the model learns."""

Passes = Literal["recorded", "direct", "modules"]
"""By `DirectDecoder` with `RecordedSteps`, by it alone, or by the model's own modules."""


def passes_of(model: PreTrainedModel | PeftModel) -> tuple[Passes, ...]:
    """How the model can be computed, the fastest first."""
    if not is_direct(model):
        return ("modules",)
    return ("recorded", "direct", "modules") if model.device.type == "cuda" else ("direct", "modules")


def is_recorded(model: PreTrainedModel | PeftModel) -> bool:
    """Whether the model acts by recorded steps, unless those turn out to differ."""
    return passes_of(model)[0] == "recorded"


@dataclass
class FastRows:
    """The rows of a batch: one for each distinct partial reply."""

    forward: FastForward
    cache: RowCache
    visible: Tensor
    """(U, length) false at padding."""

    def select(self, rows: IntArray) -> None:
        """Keeps these rows, in this order; a row may be selected several times."""
        if self.cache.held and not self.forward.are_few(len(rows)):
            self.visible = self.visible[:, self.cache.held :]
            self.cache.drop()  # before it would be copied
        selected = there(rows, self.visible.device)
        self.cache.select(selected)
        self.visible = self.visible[selected]

    def step(self, tokens: IntArray) -> Tensor:
        """Appends one token to each row, (U,). Returns the next-token logits, (U, V) in the model's type."""
        rows = len(tokens)
        if not self.cache.held and self.forward.are_few(rows):
            self.cache.hold(self.forward.prefix())
            self.visible = torch.cat([self.visible.new_ones(rows, self.cache.held), self.visible], 1)
        self.visible = torch.cat([self.visible, self.visible.new_ones(rows, 1)], dim=1)
        positions = self.visible.sum(1, keepdim=True) - 1 + self.forward.prefix_length - self.cache.held
        given = there(tokens, self.visible.device)[:, None]
        return self.forward.run(given, self.visible[:, None], positions, self.cache)[:, -1]


@dataclass
class RecordedRows:
    """The same by recorded steps."""

    forward: FastForward
    steps: RecordedSteps

    def select(self, rows: IntArray) -> None:
        """Keeps these rows, in this order; a row may be selected several times."""
        self.steps.select(rows)

    def step(self, tokens: IntArray) -> Tensor:
        """Appends one token to each row, (U,). Returns the next-token logits, (U, V) in the model's type."""
        self.forward.rows += len(tokens)
        return self.steps.step(tokens)


class FastForward:
    """Forward passes of one model over a shared prefix. The prefix depends only on the prompts of a call.

    Args:
        model: any causal language model of transformers that uses its attention interface.
        passes: how; one of `passes_of(model)`.

    `rows` counts the rows passed to the model; `split_head` says whether training computes its head apart from its body;
    `patience` is that of recorded steps.
    """

    name = "fast"

    def __init__(self, model: PreTrainedModel | PeftModel, passes: Passes = "direct") -> None:
        self.model, self.passes = model, passes
        self.rows, self.split_head, self.patience = 0, True, PATIENCE
        self._prefix: TokenIds = ()
        self._prefix_cache: RowCache | None = None
        self._decoder: DirectDecoder | None = None
        self._recorded: RecordedSteps | None = None
        self._is_direct: bool | None = None  # outside of acting

    @property
    def prefix_length(self) -> int:
        """Tokens of the shared prefix."""
        return len(self._prefix)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Evaluation mode, with attention over the shared prefix. A nested context does nothing."""
        if self._is_direct is not None:
            yield
            return
        kept = False  # after an error nothing is: what is not finite may be in the buffers
        with acting(self.model), current(self.model.device):
            try:
                self._is_direct = self.passes != "modules" and is_direct(self.model)
                self._renew()
                yield
                kept = self._recorded is not None and self._recorded.nbytes <= KEPT * all_memory(self.model.device)
            finally:
                self._is_direct = None
                if not kept:
                    self._decoder, self._recorded = None, None

    def forget(self) -> None:
        """Drops what was computed of the weights, because they have changed."""
        self._prefix, self._prefix_cache = (), None
        self._renew()

    def _renew(self) -> None:
        """Keeps the decoder, and what was recorded of it, only where it computes the model as it is now."""
        if self._decoder is not None and not (self._is_direct and self._decoder.refresh()):
            self._decoder, self._recorded = None, None

    def share(self, prompts: Sequence[TokenIds]) -> None:
        """Computes the keys and values of the prompts' shared prefix, unless they are there."""
        if self._decoder is not None and not self._decoder.is_latest:
            self._renew()
        shared = common_prefix(prompts)
        if prompts[0][:shared] == self._prefix:
            return
        self._prefix, self._prefix_cache = (), None  # stays so if what follows is interrupted
        if shared:
            cache = RowCache()
            ids = torch.tensor([prompts[0][:shared]], device=self.model.device)
            causal = torch.ones(1, shared, shared, dtype=torch.bool, device=ids.device).tril()
            self.run(ids, causal, torch.arange(shared, device=ids.device)[None], cache)
            self._prefix, self._prefix_cache = prompts[0][:shared], cache

    def prefix(self) -> RowCache:
        """The keys and values of the shared prefix."""
        assert self._prefix_cache is not None
        return self._prefix_cache

    def are_few(self, rows: int) -> bool:
        """Whether each row holds the shared prefix itself in decoding steps, which then take one kernel of attention, not two."""
        if self._prefix_cache is None or self._decoder is None or self.passes != "direct":
            return False
        by_kernel = self._decoder.sees_all and has_kernel(self.model.device, self._decoder.size)
        return by_kernel and rows * self.prefix_length <= FEW

    def batches(self, prompts: Sequence[TokenIds], max_rows: int) -> list[list[int]]:
        """The prompts dealt out to batches in their order, by their indices."""
        return [list(range(len(prompts)))[start : start + max_rows] for start in range(0, len(prompts), max_rows)]

    def prefill(self, prompts: Sequence[TokenIds]) -> tuple[Tensor, FastRows | RecordedRows]:
        """The logits after each prompt, (U, V) in the model's type, and its rows."""
        logits, cache, visible = self._prefilled(prompts, 1)
        if self.passes == "recorded" and self._decoder is not None and self._decoder.sees_all:
            self._recorded = self._recorded or RecordedSteps(self._decoder, self.patience)
            self._recorded.hold(cache, self._prefix_cache, visible)
            return logits[:, -1], RecordedRows(self, self._recorded)
        return logits[:, -1], FastRows(self, cache, visible)

    def score(self, pairs: Sequence[tuple[TokenIds, TokenIds]]) -> list[list[float]]:
        """log p of each token of each (prompt, continuation), in nats.

        Two passes: the distinct prompts with the shared prefix of all continuations, then the rest of each continuation.
        """
        common = common_prefix([tokens for _, tokens in pairs])
        head, tails = pairs[0][1][:common], [tokens[common:] for _, tokens in pairs]
        distinct = list(dict.fromkeys(prompt for prompt, _ in pairs))
        row_of = {prompt: row for row, prompt in enumerate(distinct)}
        logits, cache, of_prompts = self._prefilled([prompt + head for prompt in distinct], common + 1)
        log_p, device = torch.log_softmax(logits.float(), -1), logits.device
        rows = torch.tensor([row_of[prompt] for prompt, _ in pairs], device=device)
        width = max(map(len, tails)) - 1
        tokens = torch.tensor([tail + (0,) * (width + 1 - len(tail)) for tail in tails], device=device)
        scores = [log_p[rows, k, token] for k, token in enumerate(head)] + [log_p[rows, common, tokens[:, 0]]]
        if width:
            cache.select(rows)
            before = of_prompts[rows, None].expand(-1, width, -1)
            causal = before.new_ones(width, width).tril().expand(len(rows), -1, -1)  # also hides the right padding
            positions = of_prompts[rows].sum(1)[:, None] + self.prefix_length + torch.arange(width, device=device)
            rest = self.run(tokens[:, :-1], torch.cat([before, causal], 2), positions, cache, keep=width)
            scores += torch.log_softmax(rest.float(), -1).gather(2, tokens[:, 1:, None])[..., 0].unbind(1)
        table = torch.stack(scores, 1)
        if table.isnan().any():
            raise not_finite()
        return [row[: len(continuation)] for row, (_, continuation) in zip(table.tolist(), pairs, strict=True)]

    def run(self, token_ids: Tensor, visible: Tensor, positions: Tensor, cache: RowCache, keep: int = 1) -> Tensor:
        """Next-token logits after the last `keep` tokens, (U, keep, V) in the model's type; appends the tokens to the cache.

        `visible` (U, tokens or 1, length) says which of its row's tokens each new token attends to.
        """
        self.rows += len(token_ids)
        dtype = self.model.dtype
        mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, torch.finfo(dtype).min)
        shared = None if self._prefix_cache is None or cache.held else SharedPrefix(self._prefix_cache, positions)
        if self._decoder is None and self._is_direct:
            self._decoder = DirectDecoder(self.model, fixed=self.passes == "recorded")
        if self._decoder is not None:
            return self._decoder(token_ids, mask[:, None], positions, cache, keep, shared)
        output = self.model(
            input_ids=token_ids,
            attention_mask=mask[:, None],
            position_ids=positions,
            past_key_values=cache,
            logits_to_keep=keep,
            shared_prefix=shared,
        )
        logits: Tensor = output.logits[:, -keep:]
        return logits

    def _prefilled(self, prompts: Sequence[TokenIds], keep: int) -> tuple[Tensor, RowCache, Tensor]:
        """The logits after the last `keep` tokens of each prompt (U, keep, V), their cache, and its visible tokens."""
        tails = [prompt[self.prefix_length :] for prompt in prompts]
        longest = max(map(len, tails))
        padded = torch.tensor([(0,) * (longest - len(tail)) + tail for tail in tails], device=self.model.device)
        lengths = torch.tensor([len(tail) for tail in tails], device=self.model.device)
        index = torch.arange(longest, device=self.model.device)
        visible = index >= longest - lengths[:, None]
        positions = (visible.cumsum(1) - 1).clamp(min=0) + self.prefix_length
        causal = (index[None, :, None] >= index) & visible[:, None, :]
        causal |= torch.eye(longest, dtype=torch.bool, device=index.device)  # no empty rows: some kernels return NaN
        cache = RowCache()
        return self.run(padded, causal, positions, cache, keep), cache, visible


def common_prefix(sequences: Sequence[TokenIds]) -> int:
    """The length of the prefix that all sequences share; at least one token of each is left over."""
    first, last = min(sequences), max(sequences)  # the common prefix of a sorted list is that of its first and last element
    limit = min(map(len, sequences)) - 1
    return next((k for k in range(limit) if first[k] != last[k]), limit)
