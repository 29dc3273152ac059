"""A language model as a policy (the paper's LAP): a base or a LoRA adapter from the Hub or a folder, or the built-in base."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import jinja2
import numpy as np
import torch
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import Message, PromptFormat
from msgrpo_hub.downloads.names import POCKET, pocket_path, split_revision
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.loading import Dtype, fetch_both, load_adapter, load_base, render, set_template, stored_format
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.tokenization import split_points, tokenize

__all__ = ["POCKET", "LanguageModel", "end_tokens", "pocket_path", "split_revision"]


@dataclass
class LanguageModel:
    """A causal language model with a chat template that answers prompts.

    Args:
        model: the model; a `peft.PeftModel` if it has LoRA.
        tokenizer: the tokenizer, with a chat template.
        temperature: sampling temperature; 0 is greedy.
        max_new_tokens: largest number of tokens per reply; a truncated reply has `finish="length"`.
        max_rows: largest number of samples per batch; bounds memory and does not affect results.
        name: what the model was loaded from.
        prompt_format: the format stored with the adapter; None if none is stored.
    """

    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase
    temperature: float = 1.0
    max_new_tokens: int = 256
    max_rows: int = 512
    name: str = ""
    prompt_format: PromptFormat | None = None
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise UserError(f"temperature = {self.temperature}: expected at least 0 (0 is greedy)")
        if self.max_new_tokens < 1:
            raise UserError(f"max_new_tokens = {self.max_new_tokens}: expected at least 1")
        self.engine = Engine(self.model, end_tokens(self.model, self.tokenizer), self.max_rows)
        self._system_role = _takes_system_role(self.tokenizer)
        self._split_points = split_points(self.tokenizer)
        self._prompt_ids: dict[Prompt, TokenIds] = {}

    @classmethod
    def from_pretrained(
        cls,
        repo_or_path: str,
        adapter: str | None = None,
        revision: str | None = None,
        *,
        dtype: Dtype = "auto",
        device: str | None = None,
        chat_template: str | None = None,
        temperature: float = 1.0,
        max_new_tokens: int = 256,
        prompt_format: PromptFormat | None = None,
    ) -> LanguageModel:
        """Loads a model from the Hub or a folder.

        Args:
            repo_or_path: a base model, a LoRA adapter (its base is loaded at the revision that the adapter's config
                names), or `pocket`, the built-in base.
            adapter: a LoRA adapter to apply to the base; `name@revision` is allowed.
            revision: branch, tag or commit of `repo_or_path`; `name@revision` is equivalent.
            dtype: type of the base weights; `auto` is the checkpoint's type.
            device: such as `cuda`; by default a GPU if one is available.
            chat_template: a file with a Jinja chat template, for models without one.
            temperature: sampling temperature; 0 is greedy.
            max_new_tokens: largest number of tokens per reply.
            prompt_format: overrides the format stored with the adapter.

        Raises:
            UserError: the model, adapter or template cannot be found or do not fit together.
        """
        source, revision = split_revision(repo_or_path, revision)
        source = str(pocket_path()) if source == POCKET else source
        adapter, adapter_revision = split_revision(adapter, None) if adapter else (None, None)
        base, added = fetch_both(source, revision, adapter, adapter_revision)
        chosen = prompt_format or (stored_format(added) if added else None)
        model, tokenizer = load_base(base, dtype, device or ("cuda" if torch.cuda.is_available() else "cpu"))
        adapted = load_adapter(model, added) if added else model
        set_template(tokenizer, base.source, chat_template)
        return cls(adapted, tokenizer, temperature, max_new_tokens, name=repo_or_path, prompt_format=chosen)

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        """One reply per prompt; the randomness of reply i comes from `rngs[i]` alone."""
        ids = self.encode(prompts)
        samples = self.engine.sample(ids, rngs, self.temperature, self.max_new_tokens)
        distinct = list(dict.fromkeys(tuple(sample.token_ids) for sample in samples))
        decoded = self.tokenizer.batch_decode(list(map(list, distinct)), skip_special_tokens=True)
        texts = dict(zip(distinct, decoded, strict=True))
        return [
            Completion(
                text=texts[tuple(sample.token_ids)],
                finish=sample.finish,
                prompt_ids=sample.prompt_ids,
                token_ids=tuple(sample.token_ids),
                log_probs=tuple(sample.log_probs),
                entropies=tuple(sample.entropies),
            )
            for sample in samples
        ]

    def caching(self) -> AbstractContextManager[None]:
        """Caches logits inside the context; see `Engine.caching`."""
        return self.engine.caching()

    def encode(self, prompts: Sequence[Prompt]) -> list[TokenIds]:
        """The token ids of prompts, through the chat template; equal prompts are encoded once."""
        new = list(dict.fromkeys(prompt for prompt in prompts if prompt not in self._prompt_ids))
        if new:
            if len(self._prompt_ids) > 100_000:
                self._prompt_ids.clear()
                new = list(dict.fromkeys(prompts))
            texts = [self.render(prompt) for prompt in new]
            encoded = tokenize(self.tokenizer, texts, self._split_points)
            self._check_length(max(map(len, encoded)))
            self._prompt_ids.update(zip(new, encoded, strict=True))
        return [self._prompt_ids[prompt] for prompt in prompts]

    def render(self, prompt: Prompt) -> str:
        """The prompt as text. If the template has no system role, the system text is prepended to the user message."""
        messages = prompt.messages if self._system_role else _merge_system(prompt.messages)
        return render(self.tokenizer, messages)

    def _check_length(self, longest: int) -> None:
        config = self.model.config.get_text_config()
        slides = "sliding_attention" in (getattr(config, "layer_types", None) or ["sliding_attention"])
        window = getattr(config, "sliding_window", None) if slides else None  # the engine attends to all earlier tokens
        limit = min(filter(None, (getattr(config, "max_position_embeddings", None), window)), default=None)
        if limit and longest + self.max_new_tokens > limit:
            raise UserError(
                f"a prompt of {longest} tokens and a reply of up to {self.max_new_tokens} do not fit into the "
                f"{limit} positions that {self.name!r} attends to: lower --max-new-tokens or use a model with a longer context"
            )


def end_tokens(model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The tokens that end a reply: the tokenizer's end token and those of the generation config."""
    config = model.generation_config
    configured = config.eos_token_id if config is not None else None
    ends = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in [*ends, tokenizer.eos_token_id] if token is not None)


def _merge_system(messages: list[Message]) -> list[Message]:
    """Messages for a template without a system role: each system text is prepended to the next user message."""
    merged: list[Message] = []
    pending: list[str] = []
    for message in messages:
        if message["role"] == "system":
            pending.append(message["content"])
            continue
        if pending and message["role"] == "user":
            merged.append({"role": "user", "content": "\n\n".join([*pending, message["content"]])})
        else:
            merged += [*_as_user(pending), message]
        pending = []
    return merged + _as_user(pending)


def _as_user(texts: list[str]) -> list[Message]:
    return [{"role": "user", "content": "\n\n".join(texts)}] if texts else []


def _takes_system_role(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the chat template accepts a system message and renders it."""
    messages = [{"role": "system", "content": "a marker"}, {"role": "user", "content": "a question"}]
    try:
        return "a marker" in render(tokenizer, messages)
    except (jinja2.TemplateError, ValueError):
        return False
