"""The cases of the matrix, and the reference values of transformers for each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from msgrpo_hub.agent.policy import Prompt, build_prompt
from msgrpo_hub.agent.prompt_formats import TaggedFormat
from msgrpo_hub.models.encoding import PromptEncoder
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.load_options import Dtype, EngineName
from tests.real.models import SOURCES, real_model
from tests.real.short import LAKE, start

Ids = tuple[int, ...]
Record = Callable[[str, object], None]
"""pytest's `record_property`."""

NEW_TOKENS = 8
EXACT = 1e-4
"""Largest difference between log-probabilities in float32, in nats."""
TIMES = 4
"""Largest difference in 16 bits, as a multiple of transformers' own rounding."""
TAIL = 24
"""Number of tokens at the end of a prompt that are compared too, since replies are short."""
LIKELY = -9.0
"""Smallest log-probability of a token in a measurement of rounding."""


@dataclass(frozen=True)
class Case:
    model: str
    dtype: Dtype
    engine: EngineName

    def __str__(self) -> str:
        return f"{self.model}-{self.dtype}-{self.engine}"

    @property
    def folder(self) -> Path:
        return real_model(self.model)

    @property
    def template(self) -> list[object]:
        """The flag for a model without a chat template."""
        file = SOURCES[self.model].template
        return ["--chat-template", file] if file else []

    def policy(self, name: Path, **options: Any) -> LanguageModel:
        """The model or an adapter of it as a policy."""
        template = SOURCES[self.model].template
        options["chat_template"] = str(template) if template else None
        return LanguageModel.from_pretrained(str(name), dtype=self.dtype, engine=self.engine, **options)


DTYPES: tuple[Dtype, ...] = ("bfloat16", "float16", "float32")
ENGINES: tuple[EngineName, ...] = ("fast", "plain")
CASES = [Case(model, dtype, engine) for model in SOURCES for dtype in DTYPES for engine in ENGINES]


def some_prompts(model: str) -> list[Prompt]:
    """A short prompt and a longer one; for Gemma it is longer than the sliding window of 512 tokens."""
    past = 6 if model == "gemma-270m" else 1
    turns = [(LAKE.observe(start(seed)), LAKE.actions[seed % 4]) for seed in range(past)]
    return [build_prompt(LAKE, start(9)), build_prompt(LAKE, start(9), TaggedFormat(name="history", history=past), turns)]


@functools.cache
def prompt_ids(model: str) -> list[Ids]:
    tokenizer = AutoTokenizer.from_pretrained(real_model(model))
    if template := SOURCES[model].template:
        tokenizer.chat_template = template.read_text(encoding="utf-8")
    return PromptEncoder(tokenizer).encode(some_prompts(model))


def plain_model(folder: Path, dtype: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


@torch.no_grad()
def next_log_probs(model: Any, prompt: Ids, reply: Sequence[int]) -> Tensor:
    """(T, V) log p of every token at each of the T positions of a reply, by one forward pass without a cache."""
    logits = model(input_ids=torch.tensor([[*prompt, *reply]]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits.float(), -1)


@dataclass(frozen=True)
class Reply:
    """A greedy reply of T tokens by `generate` of transformers, with the log-probabilities of its forward pass."""

    prompt: Ids
    tokens: Ids
    own: Tensor
    """(TAIL + T, V) in the model's type, of the end of the prompt and the reply."""
    exact: Tensor
    """(TAIL + T, V) in float32."""

    @property
    def scored(self) -> tuple[Ids, Ids]:
        """The start of the prompt, and its end with the reply."""
        return self.prompt[:-TAIL], self.prompt[-TAIL:] + self.tokens

    @property
    def finite(self) -> bool:
        return bool(self.own.isfinite().all())

    def rounding(self, position: int) -> float:
        """The largest error of a likely token's log-probability in the model's type, at a position of the reply."""
        likely = self.exact[TAIL + position] > LIKELY
        return float((self.own - self.exact)[TAIL + position, likely].abs().max())


@functools.lru_cache(maxsize=1)
def greedy(model: str, dtype: str) -> list[Reply]:
    """The replies to the prompts of a model. Both engines of a type share them."""
    loaded = plain_model(real_model(model), dtype)
    replies: list[Ids] = []
    for prompt in prompt_ids(model):
        ids = torch.tensor([prompt])
        output = loaded.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS)
        replies.append(tuple(output[0, len(prompt) :].tolist()))
    pairs = list(zip(prompt_ids(model), replies, strict=True))
    own = [next_log_probs(loaded, prompt[:-TAIL], prompt[-TAIL:] + reply) for prompt, reply in pairs]
    exact = own
    if dtype != "float32":
        loaded = plain_model(real_model(model), "float32")
        exact = [next_log_probs(loaded, prompt[:-TAIL], prompt[-TAIL:] + reply) for prompt, reply in pairs]
    return [Reply(*pair, *parts) for pair, parts in zip(pairs, zip(own, exact, strict=True), strict=True)]


def chosen(log_probs: Tensor, tokens: Sequence[int]) -> Tensor:
    """(T,) log-probabilities of these tokens, from (T, V)."""
    return log_probs[range(len(tokens)), list(tokens)]


def check_close(case: Case, ours: Sequence[Tensor], theirs: Sequence[Tensor], rounding: Tensor, record: Record) -> None:
    """Ours differ from the log-probabilities of transformers or PEFT at most by the rounding of the weights' type.

    In 16 bits, the root mean square of this difference is at most `TIMES` as large as that of `rounding`, which is the
    difference of theirs from float32.
    """
    difference = torch.cat(list(ours)) - torch.cat(list(theirs))
    record("deviation", float(difference.abs().max()))
    if case.dtype == "float32":
        assert difference.abs().max() <= EXACT
        return
    times = float((difference.square().mean() / rounding.square().mean()).sqrt())
    record("times", times)
    assert times <= TIMES


def own_rounding(case: Case) -> Tensor:
    """Differences of transformers' own log-probabilities from float32, at the ends of the prompts and the greedy replies."""
    return torch.cat([chosen(reply.own - reply.exact, reply.scored[1]) for reply in greedy(case.model, case.dtype)])
