"""A language model whose replies come from vLLM servers. Each episode has a policy of its own and is played at its own pace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

import numpy as np

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Completion, Finish
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.threads import begun
from msgrpo_hub.models.vllm_pool import Stretch, VllmPool

Item = TypeVar("Item")
Result = TypeVar("Result")

_TOKENIZER = Lock()
"""Tokenizers are not made for several threads."""


@dataclass(frozen=True)
class VllmPolicy:
    """Samples from servers, encodes and decodes here. The servers draw; the generators of the episodes are not used."""

    agent: LanguageModel
    """Whose tokenizer, chat template, temperature and limits count. Its weights are not used."""
    pool: VllmPool
    stretches: set[Stretch] = field(default_factory=set)
    """Where replies came from so far."""

    @property
    def prompt_format(self) -> PromptFormat | None:
        """That of the model."""
        return self.agent.prompt_format

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        """One reply per prompt, one after the other."""
        return [self._complete(prompt) for prompt in prompts]

    def _complete(self, prompt: Prompt) -> Completion:
        agent, end_ids = self.agent, self.agent.engine.end_ids
        with _TOKENIZER:
            [prompt_ids] = agent.encode([prompt])
        reply, stretch = self.pool.sample(
            prompt_ids, temperature=agent.temperature, max_new_tokens=agent.max_new_tokens, end_ids=sorted(end_ids)
        )
        self.stretches.add(stretch)
        finish: Finish = "stop" if reply.token_ids[-1] in end_ids else "length"
        with _TOKENIZER:
            [text] = agent.encoder.decode([(reply.token_ids, finish)])
        return Completion(
            text=text,
            finish=finish,
            prompt_ids=prompt_ids,
            token_ids=reply.token_ids,
            log_probs=reply.log_probs,
        )


def at_own_pace(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> list[Result]:
    """`function` of each item, in threads that wait for nobody. Their first error is raised at once, and the rest is given up."""
    futures = begun(function, items, workers)
    try:
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            if future.done() and (error := future.exception()):
                raise error
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()
