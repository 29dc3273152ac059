"""The acting engine: samples many replies and computes every distinct prefix once.

- Each distinct prompt is prefilled once, for any number of samples.
- The prefix that all prompts share (the rules) is computed once per version of the weights and kept.
- Samples with equal partial replies share one row of the KV cache. The row forks when their next tokens differ.
- Finished rows leave the batch.
- While episodes are played, the logits after each prompt and partial reply are cached, so that states that recur in other
  episodes and later turns are not recomputed.

The tokens equal those of plain sampling with the same generators: sample i takes one uniform number per token from its own
generator, and the token is the inverse of the cumulative distribution at that number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.attention import RowCache, acting, attention_of
from msgrpo_hub.models.logit_cache import LogitCache, Node
from msgrpo_hub.models.sampling import Replies, Sample, TokenIds, fork, not_finite
from msgrpo_hub.models.weights import weights_version


@dataclass
class Engine:
    """Samples replies from one causal language model.

    Args:
        model: any transformers causal LM, with or without LoRA.
        end_ids: the tokens that end a reply and are included in it.
        max_rows: largest number of samples per batch; bounds memory and does not affect results.
    """

    model: PreTrainedModel | PeftModel
    end_ids: frozenset[int]
    max_rows: int = 512
    forward_rows: int = 0
    """Rows passed to the model so far, in prefills and decoding steps."""
    _checked: bool = False
    _capacity: int = 0
    _logit_cache: LogitCache = field(default_factory=LogitCache)
    _prefix: TokenIds = ()
    _prefix_cache: RowCache | None = None
    _prefix_weights: tuple[object, ...] = ()

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[TokenIds],
        rngs: Sequence[np.random.Generator],
        temperature: float,
        max_new_tokens: int,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> list[Sample]:
        """One reply per prompt. Temperature 0 is greedy and records the log-probabilities at temperature 1."""
        samples = [Sample(prompt) for prompt in prompts]
        replies = Replies(samples, rngs, temperature, max_new_tokens, self.end_ids, top_k, top_p)
        if not self._checked:
            self._check(prompts[0])
        with acting(self.model):
            self._keep_prefix(prompts)
            order = sorted(self._replay_cached(replies), key=lambda i: prompts[i])  # equal prompts side by side
            for start in range(0, len(order), self.max_rows):
                self._sample_batch(replies, order[start : start + self.max_rows])
        return replies.samples

    @contextmanager
    def caching(self, capacity: int = 2**30) -> Iterator[None]:
        """Caches the logits of prompts and partial replies inside the context.

        Use one context per set of episodes, so that no result depends on earlier play.

        Args:
            capacity: size limit of the logits, in bytes; logits beyond it are recomputed.
        """
        self._capacity, self._logit_cache = capacity, LogitCache(capacity)
        try:
            with acting(self.model):
                yield
        finally:
            self._capacity, self._logit_cache = 0, LogitCache()

    @torch.no_grad()
    def score(self, prompts: Sequence[TokenIds], continuations: Sequence[Sequence[TokenIds]]) -> list[list[list[float]]]:
        """log p of each token of each non-empty continuation of each prompt, in nats, at temperature 1.

        Equal pairs are computed once. The continuations of a prompt share its keys and values.
        """
        pairs = {(prompt, tokens) for prompt, options in zip(prompts, continuations, strict=True) for tokens in options}
        order = sorted(pairs)  # equal prompts side by side
        assert all(tokens for _, tokens in order)
        if not self._checked:
            self._check(prompts[0])
        scores: list[list[float]] = []
        with acting(self.model):
            self._keep_prefix(prompts)
            for start in range(0, len(order), self.max_rows):
                scores += self._score_batch(order[start : start + self.max_rows])
        score_of = dict(zip(order, scores, strict=True))
        return [[score_of[prompt, tokens] for tokens in options] for prompt, options in zip(prompts, continuations, strict=True)]

    def _check(self, prompt: TokenIds) -> None:
        """Compares the engine with a plain forward pass once; sinks and recurrent states, for example, are not supported."""
        ids = torch.tensor([prompt], device=self.model.device)
        rows, training = self.forward_rows, self.model.training
        self.model.eval()
        with attention_of(self.model, "eager"):  # some versions of transformers skip softcapping in other implementations
            plain = torch.log_softmax(self.model(input_ids=ids, use_cache=False).logits[0, -1].float(), -1)
        self.model.train(training)
        try:
            with acting(self.model):
                self._keep_prefix([prompt])
                ours = torch.log_softmax(self._prefill([prompt])[0][0, -1], -1)
            difference = (ours - plain).abs().max().item()
        except UserError:
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise self._unsupported(f"{type(error).__name__}: {error}") from error
        if math.isnan(difference):
            raise not_finite()
        if not difference < (1e-3 if self.model.dtype == torch.float32 else 0.5):
            raise self._unsupported(f"log-probabilities differ by {difference:.2g}")
        self._checked, self.forward_rows, self._prefix_weights = True, rows, ()

    def _unsupported(self, reason: str) -> UserError:
        kind = getattr(self.model.config, "model_type", "unknown")
        return UserError(
            f"models of type {kind!r} are not supported, because their attention is not plain softmax attention ({reason}): "
            "use a causal language model with softmax attention, such as Qwen, Llama, Gemma, Mistral or Phi"
        )

    def _replay_cached(self, replies: Replies) -> list[int]:
        """Extends replies from cached logits as far as possible. Returns the indices of the unfinished replies."""
        nodes: dict[int, Node] = {i: (-1, sample.prompt_ids) for i, sample in enumerate(replies.samples)}
        for position in itertools.count():
            live = [i for i, node in nodes.items() if node in self._logit_cache]
            if not live:
                return list(nodes)
            parents, logits, rows = self._logit_cache.get([nodes[i] for i in live])
            tokens, unfinished = replies.append_tokens(live, position, logits, rows)
            nodes |= zip(live, zip(parents, tokens.tolist(), strict=True), strict=True)
            for k in set(range(len(live))).difference(unfinished):
                del nodes[live[k]]
        raise AssertionError

    def _sample_batch(self, replies: Replies, live: list[int]) -> None:
        """Extends the replies with these indices, token by token, until all have ended.

        Tokens that a reply already has are replayed, so that all replies start at their prompts and share rows.
        """
        prompts = [replies.samples[i].prompt_ids for i in live]
        row_of = {prompt: row for row, prompt in enumerate(dict.fromkeys(prompts))}
        logits, cache, visible = self._prefill(list(row_of))
        rows = torch.tensor([row_of[prompt] for prompt in prompts], device=logits.device)
        nodes: list[Node] = [(-1, prompt) for prompt in row_of]
        for position in itertools.count():
            indices = self._logit_cache.add(nodes, logits[:, -1])
            tokens, unfinished = replies.append_tokens(live, position, logits[:, -1], rows)
            live = [live[k] for k in unfinished]
            if not live:
                return
            parents, next_tokens, rows = fork(rows[unfinished], tokens[unfinished])
            nodes = [(indices[row], token) for row, token in zip(parents.tolist(), next_tokens.tolist(), strict=True)]
            if len(parents) != len(logits) or not torch.equal(parents, torch.arange(len(logits), device=parents.device)):
                cache.select(parents)
                visible = visible[parents]
            visible = torch.cat([visible, visible.new_ones(len(parents), 1)], dim=1)
            positions = visible.sum(1, keepdim=True) - 1 + len(self._prefix)
            logits = self._forward(next_tokens[:, None], visible[:, None], positions, cache)

    def _score_batch(self, pairs: Sequence[tuple[TokenIds, TokenIds]]) -> list[list[float]]:
        """Two passes: the distinct prompts with the shared prefix of all continuations, then the rest of each continuation."""
        common = _common_prefix([tokens for _, tokens in pairs])
        head, tails = pairs[0][1][:common], [tokens[common:] for _, tokens in pairs]
        distinct = list(dict.fromkeys(prompt for prompt, _ in pairs))
        row_of = {prompt: row for row, prompt in enumerate(distinct)}
        logits, cache, visible = self._prefill([prompt + head for prompt in distinct], keep=common + 1)
        log_p, device = torch.log_softmax(logits, -1), logits.device
        rows = torch.tensor([row_of[prompt] for prompt, _ in pairs], device=device)
        width = max(map(len, tails)) - 1
        tokens = torch.tensor([tail + (0,) * (width + 1 - len(tail)) for tail in tails], device=device)
        scores = [log_p[rows, k, token] for k, token in enumerate(head)] + [log_p[rows, common, tokens[:, 0]]]
        if width:
            cache.select(rows)
            before = visible[rows, None].expand(-1, width, -1)
            causal = visible.new_ones(width, width).tril().expand(len(rows), -1, -1)  # also hides the right padding
            positions = visible.sum(1)[rows, None] + len(self._prefix) + torch.arange(width, device=device)
            rest = self._forward(tokens[:, :-1], torch.cat([before, causal], 2), positions, cache, keep=width)
            scores += torch.log_softmax(rest, -1).gather(2, tokens[:, 1:, None])[..., 0].unbind(1)
        table = torch.stack(scores, 1)
        if table.isnan().any():
            raise not_finite()
        return [row[: len(continuation)] for row, (_, continuation) in zip(table.tolist(), pairs, strict=True)]

    def _prefill(self, prompts: Sequence[TokenIds], keep: int = 1) -> tuple[Tensor, RowCache, Tensor]:
        """Computes the prompts after the shared prefix.

        Shorter prompts are padded on the left: `visible` (rows, length) is false at padding.

        Returns:
            The logits after the last `keep` tokens of each prompt (rows, keep, vocabulary), the KV cache, and `visible`.
        """
        tails = [prompt[len(self._prefix) :] for prompt in prompts]
        longest = max(map(len, tails))
        padded = torch.tensor([(0,) * (longest - len(tail)) + tail for tail in tails], device=self.model.device)
        lengths = torch.tensor([len(tail) for tail in tails], device=self.model.device)
        index = torch.arange(longest, device=self.model.device)
        visible = index >= longest - lengths[:, None]
        positions = (visible.cumsum(1) - 1).clamp(min=0) + len(self._prefix)
        causal = (index[None, :, None] >= index) & visible[:, None, :]
        causal |= torch.eye(longest, dtype=torch.bool, device=index.device)  # no empty rows: some kernels return NaN
        cache = RowCache()
        return self._forward(padded, causal, positions, cache, keep), cache, visible

    def _forward(self, token_ids: Tensor, visible: Tensor, positions: Tensor, cache: RowCache, keep: int = 1) -> Tensor:
        """Next-token logits after the last `keep` tokens (rows, keep, vocabulary) in float32; appends the tokens to the cache.

        `visible` (rows, tokens or 1, length) says which of its row's tokens each new token attends to.
        """
        self.forward_rows += len(token_ids)
        dtype = self.model.dtype
        mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, torch.finfo(dtype).min)
        output = self.model(
            input_ids=token_ids,
            attention_mask=mask[:, None],
            position_ids=positions,
            past_key_values=cache,
            logits_to_keep=keep,
            shared_prefix=self._prefix_cache,
        )
        logits: Tensor = output.logits[:, -keep:]
        return logits.float()

    def _keep_prefix(self, prompts: Sequence[TokenIds]) -> None:
        """Computes the KV cache of the prompts' shared prefix, unless the last call had the same weights and prefix.

        Logits cached under other weights are dropped. The shared prefix depends only on the prompts of this call, so no
        result depends on earlier calls.
        """
        shared, weights = _common_prefix(prompts), weights_version(self.model)
        if prompts[0][:shared] == self._prefix and weights == self._prefix_weights:
            return
        if weights != self._prefix_weights:
            self._logit_cache = LogitCache(self._capacity)
        self._prefix, self._prefix_cache, self._prefix_weights = prompts[0][:shared], None, weights
        if shared:
            cache = RowCache()
            ids = torch.tensor([self._prefix], device=self.model.device)
            causal = torch.ones(1, shared, shared, dtype=torch.bool, device=ids.device).tril()
            self._forward(ids, causal, torch.arange(shared, device=ids.device)[None], cache)
            self._prefix_cache = cache


def _common_prefix(sequences: Sequence[TokenIds]) -> int:
    """The length of the prefix that all sequences share; at least one token of each is left over."""
    first, last = min(sequences), max(sequences)  # the common prefix of a sorted list is that of its first and last element
    limit = min(map(len, sequences)) - 1
    return next((k for k in range(limit) if first[k] != last[k]), limit)
