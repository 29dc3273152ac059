"""The engine: samples many replies, scores given ones, and computes the log-probabilities that training learns from.

- Each distinct prompt is computed once, for any number of samples.
- Samples with equal partial replies share one row of the model's cache. The row forks when their next tokens differ.
- Finished rows leave the batch.
- While episodes are played, a pass also computes a draft of each row: what followed its last two tokens in earlier replies. Its
  samples keep as much of the draft as they agree with (speculative decoding by n-grams).

Plain sampling with the same generators gives the same tokens: sample i takes one uniform number per token from its own generator,
and the token is the inverse of the cumulative distribution at that number. Rounding can change only samples near a boundary of
that distribution, and each reply counts them (`NEAR`).

A comparison with uncached forward passes decides which forward computes the model (`forward`, `engine_check`).

Sampling changes the model for its duration (attention, merged weights), so threads that use one model take turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import RLock
from weakref import WeakKeyDictionary

import numpy as np
import torch
from peft import PeftModel
from peft.helpers import disable_input_dtype_casting
from torch import Tensor, nn
from transformers import PreTrainedModel

from msgrpo_hub.models.attention import SHARED, States, attention_of, base_of, prefix_states
from msgrpo_hub.models.devices import autocasts, on_threads, to_device
from msgrpo_hub.models.engine_check import choose_forward
from msgrpo_hub.models.forward import FastForward, ShardedForward
from msgrpo_hub.models.load_options import EngineName
from msgrpo_hub.models.log_probs import TokenBatch
from msgrpo_hub.models.sampling import Followers, GivenReplies, IntArray, Replies, Sample, TokenIds, distinct, fork
from msgrpo_hub.models.weights import merged, weights_version

DRAFT = 4
"""Longest draft. Longer ones are rarely right to the end, since a reply takes a decision every few tokens."""
DRAFTED = 96
"""Largest number of tokens of a pass with drafts. Up to about as many, a pass takes the time in which the weights are read."""

_WINDOWS = ("sliding_window", "attention_chunk_size", "local_attention", "window_size", "attention_window_size")
"""Settings that limit how far back a layer attends."""

_LOCKS: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()
"""Base model → the lock of all engines that compute with it."""


@dataclass
class Engine:
    """Computes with one causal language model. Threads that use it, or another engine of the same model, take turns.

    Args:
        model: any transformers causal LM, with or without LoRA.
        end_ids: the tokens that end a reply and are included in it.
        max_rows: largest number of samples per batch; bounds memory and does not affect results, beyond rounding.
        kind: `fast`, `plain`, or `auto`: fast where it is exact, else plain, with a reason in the log.
        threads: CPU threads for sampling and scoring; None keeps torch's setting.
    """

    model: PreTrainedModel | PeftModel
    end_ids: frozenset[int]
    max_rows: int = 512
    kind: EngineName = "auto"
    threads: int | None = None
    _forward: FastForward | None = None
    _checked_window: bool = False
    _weights: tuple[object, ...] = ()
    _playing: ExitStack | None = None
    _followers: Followers = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock = _LOCKS.setdefault(base_of(self.model), RLock())
        stated = base_of(self.model).config.get_text_config().to_dict()
        windows = (value for name in _WINDOWS if isinstance(value := stated.get(name), int) and value > 0)
        self._window = min(windows, default=0)

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
        replies = Replies(prompts, rngs, temperature, max_new_tokens, self.end_ids, top_k, top_p)
        self._extend(replies, max_new_tokens)
        return replies.samples()

    @contextmanager
    def caching(self, merge: bool = False) -> Iterator[None]:
        """Drafts replies from earlier ones inside the context.

        Use one context per set of episodes, so that no rounding depends on earlier play. Other threads wait until it ends.

        Args:
            merge: merges LoRA into its base (`merged`).
        """
        with self._lock, merged(self.model) if merge else nullcontext():
            before, self._followers = (self._playing, self._followers), {}
            try:
                with ExitStack() as self._playing:  # switches to evaluation mode once, not in every turn
                    if self._forward is not None:
                        self._playing.enter_context(self._forward.acting())
                    yield
            finally:
                self._playing, self._followers = before

    def score(self, prompts: Sequence[TokenIds], continuations: Sequence[Sequence[TokenIds]]) -> list[list[list[float]]]:
        """log p of each token of each non-empty continuation of each prompt, in nats, at temperature 1.

        Equal pairs are computed once.
        """
        pairs = sorted({(prompt, tokens) for prompt, options in zip(prompts, continuations, strict=True) for tokens in options})
        assert all(tokens for _, tokens in pairs)
        replies = GivenReplies([prompt for prompt, _ in pairs], [tokens for _, tokens in pairs])
        self._extend(replies, max(map(len, replies.tokens), default=0))
        score_of = {pair: replies.log_probs[k] for k, pair in enumerate(pairs)}
        return [[score_of[prompt, tokens] for tokens in options] for prompt, options in zip(prompts, continuations, strict=True)]

    def log_probs(self, batch: TokenBatch, temperature: float, states: States | None = None) -> Tensor:
        """As `FastForward.log_probs`, by the chosen forward."""
        assert self._forward is not None
        return self._forward.log_probs(batch, temperature, states)

    def shard(self) -> None:
        """Computes with a base that FSDP shards. Its forward is not compared with another: it is the model's own."""
        self._forward, self._checked_window = ShardedForward(self.model), True

    @contextmanager
    def sharing(self, prefix: TokenIds) -> Iterator[States]:
        """Computes the prefix of several batches once.

        On exit, the gradients that the batches left at its keys and values flow back to the parameters.
        """
        computed = prefix_states(self.model, prefix)
        cut = {layer: [part.detach().requires_grad_(part.requires_grad) for part in pair] for layer, pair in computed.items()}
        yield {layer: (key, value) for layer, (key, value) in cut.items()}
        ends = [(part, end.grad) for layer, pair in computed.items() for part, end in zip(pair, cut[layer], strict=True)]
        if reached := [(part, gradient) for part, gradient in ends if gradient is not None]:
            torch.autograd.backward([part for part, _ in reached], [gradient for _, gradient in reached])

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Switches to the attention of training. Gradient checkpointing needs it in the backward pass too.

        Autocast converts the inputs of LoRA, so that layers with one input keep it once, in 16 bits.
        """
        trees = self._forward is not None and self._forward.shares_prefixes
        lean = disable_input_dtype_casting(self.model, active=autocasts(self.model))
        with attention_of(self.model, SHARED) if trees else nullcontext(), lean:
            yield

    def choose(self, prompt: TokenIds, new_tokens: int) -> FastForward:
        """The forward of this model: compared with uncached passes once, and once more when windows begin to matter.

        Raises:
            UserError: no forward agrees with the model's uncached pass, or the requested one does not.
        """
        slides = 0 < self._window < len(prompt) + new_tokens
        with self._lock:
            if self._forward is None or (slides and not self._checked_window):
                self._forward = choose_forward(self.model, self.kind, prompt, self._window + 2 if slides else 0)
                self._checked_window, self._weights = slides, ()
                if self._playing is not None:
                    self._playing.enter_context(self._forward.acting())
            return self._forward

    def _extend(self, replies: Replies | GivenReplies, new_tokens: int) -> None:
        """Extends replies until all have ended; each gets at most this many tokens."""
        prompts = replies.prompts
        if not prompts:
            return
        with self._lock, torch.no_grad():
            forward = self.choose(max(prompts, key=len), new_tokens)
            with on_threads(self.threads), forward.acting():
                if (weights := weights_version(self.model)) != self._weights:
                    self._followers, self._weights = {}, weights
                    forward.forget()
                forward.share(prompts)
                order = np.array(sorted(range(len(prompts)), key=prompts.__getitem__))  # equal prompts share rows
                for batch in forward.batches([prompts[i] for i in order], self.max_rows):
                    self._extend_batch(forward, replies, order[batch])
                if self._playing is not None and isinstance(replies, Replies):
                    replies.record(self._followers)

    def _extend_batch(self, forward: FastForward, replies: Replies | GivenReplies, live: IntArray) -> None:
        """Extends the replies with these indices until all have ended."""
        prompts, rows = distinct([replies.prompts[i] for i in live])
        last, cache = forward.prefill(prompts)
        logits, lengths = last[:, None], np.zeros(len(prompts), np.int64)
        given = np.full((len(prompts), 1), -1)  # the tokens that the last pass appended to each row
        while True:
            # 1) each reply samples along the draft of its row, up to the first token that is another
            size, left = logits.shape[1], list[tuple[IntArray, IntArray, IntArray]]()
            for depth in range(size):
                used, places = np.unique(rows, return_inverse=True)
                here = logits[:, depth] if len(used) == len(logits) else logits[to_device(used, logits.device), depth]
                tokens, unfinished = replies.append_tokens(live, lengths[rows] + depth, here, to_device(places, here.device))
                live, rows, tokens = live[unfinished], rows[unfinished], tokens[unfinished]
                stays = tokens == given[rows, depth + 1] if depth + 1 < size else np.zeros(len(live), bool)
                left.append((live[~stays], rows[~stays] * size + depth, tokens[~stays]))
                live, rows = live[stays], rows[stays]
                if not len(live):
                    break
            live, ends, tokens = (np.concatenate(parts) for parts in zip(*left, strict=True))
            if not len(live):
                return

            # 2) a row for each distinct partial reply; its next pass computes its last token and a draft
            ends, tokens, rows = fork(ends, tokens)
            parents, depths = np.divmod(ends, size)
            cache.select(parents, depths + 1)
            lengths = lengths[parents] + depths + 1
            most = max(0, min(DRAFT, DRAFTED // len(tokens) - 1)) if forward.shares_prefixes else 0
            first = live[np.unique(rows, return_index=True)[1]].tolist()
            guesses = [replies.draft(i, n, most, self._followers) for i, n in zip(first, lengths.tolist(), strict=True)]
            given = np.full((len(tokens), 1 + max(map(len, guesses))), -1)
            for row, guess in enumerate(guesses):
                given[row, : 1 + len(guess)] = [tokens[row], *guess]
            logits = cache.step(given)
