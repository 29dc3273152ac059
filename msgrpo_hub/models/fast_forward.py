"""The fast forward: each distinct prefix once, in a cache whose rows fork, for models with softmax attention.

- The prefix that all prompts share (the rules) is computed once per version of the weights and kept.
- Prompts of any length are one batch, padded on the left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from msgrpo_hub.models.attention import RowCache, SharedPrefix, acting
from msgrpo_hub.models.devices import to_device
from msgrpo_hub.models.direct_decoder import DirectDecoder, is_direct
from msgrpo_hub.models.sampling import IntArray, TokenIds, not_finite
from msgrpo_hub.models.token_tree import common_prefix

# Shapes: U rows, V tokens of the vocabulary.


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


class FastForward:
    """Forward passes of one model over a shared prefix. The prefix depends only on the prompts of a call.

    Args:
        model: any causal language model of transformers that uses its attention interface.
        direct: computes by `DirectDecoder` where that is possible, otherwise by the model's own modules.

    Attributes:
        prefix: tokens of the shared prefix.
        rows: number of rows passed to the model.
        split_head: whether training computes the model's head apart from its body.
    """

    name = "fast"

    def __init__(self, model: PreTrainedModel | PeftModel, direct: bool = True) -> None:
        self.model, self.direct = model, direct
        self.rows, self.split_head = 0, True
        self.prefix: TokenIds = ()
        self._prefix_cache: RowCache | None = None
        self._decoder: DirectDecoder | None = None
        self._is_direct: bool | None = None  # None outside of `acting`

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Evaluation mode, with attention over the shared prefix. A nested context does nothing."""
        if self._is_direct is not None:
            yield
            return
        try:
            with acting(self.model):
                self._is_direct = self.direct and is_direct(self.model)
                yield
        finally:
            self._is_direct = self._decoder = None

    def forget(self) -> None:
        """Drops everything computed from the weights, because they have changed."""
        self.prefix, self._prefix_cache, self._decoder = (), None, None

    def share(self, prompts: Sequence[TokenIds]) -> None:
        """Computes the keys and values of the prompts' shared prefix, unless they exist."""
        shared = min(common_prefix(min(prompts), max(prompts)), *(len(prompt) - 1 for prompt in prompts))
        if prompts[0][:shared] == self.prefix:
            return
        self.prefix, self._prefix_cache = (), None  # in case the pass below is interrupted
        if shared:
            cache = RowCache()
            ids = torch.tensor([prompts[0][:shared]], device=self.model.device)
            causal = torch.ones(1, shared, shared, dtype=torch.bool, device=ids.device).tril()
            self.run(ids, causal, torch.arange(shared, device=ids.device)[None], cache)
            self.prefix, self._prefix_cache = prompts[0][:shared], cache

    def batches(self, prompts: Sequence[TokenIds], max_rows: int) -> list[list[int]]:
        """The indices of the prompts, in batches, in their order."""
        return [list(range(len(prompts)))[start : start + max_rows] for start in range(0, len(prompts), max_rows)]

    def prefill(self, prompts: Sequence[TokenIds]) -> tuple[Tensor, FastRows]:
        """The logits after each prompt, (U, V) in the model's type, and its rows."""
        logits, cache, visible = self._prefilled(prompts, 1)
        return logits[:, -1], FastRows(self, cache, visible)

    def score(self, pairs: Sequence[tuple[TokenIds, TokenIds]]) -> list[list[float]]:
        """log p of each token of each (prompt, continuation), in nats.

        Two passes: the distinct prompts with the shared prefix of all continuations, then the rest of each continuation.
        """
        tokens_of = [tokens for _, tokens in pairs]
        common = min(common_prefix(min(tokens_of), max(tokens_of)), *(len(tokens) - 1 for tokens in tokens_of))
        head, tails = pairs[0][1][:common], [tokens[common:] for tokens in tokens_of]
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
            positions = of_prompts[rows].sum(1)[:, None] + len(self.prefix) + torch.arange(width, device=device)
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
        shared = None if self._prefix_cache is None else SharedPrefix(self._prefix_cache, positions)
        if self._decoder is None and self._is_direct:
            self._decoder = DirectDecoder(self.model)
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
        device, tails = self.model.device, [prompt[len(self.prefix) :] for prompt in prompts]
        longest = max(map(len, tails))
        padded = torch.tensor([(0,) * (longest - len(tail)) + tail for tail in tails], device=device)
        index = torch.arange(longest, device=device)
        visible = index >= longest - torch.tensor([[len(tail)] for tail in tails], device=device)
        positions = (visible.cumsum(1) - 1).clamp(min=0) + len(self.prefix)
        causal = (index[None, :, None] >= index) & visible[:, None, :]
        causal |= torch.eye(longest, dtype=torch.bool, device=device)  # no empty rows: some kernels return NaN
        cache = RowCache()
        return self.run(padded, causal, positions, cache, keep), cache, visible
