"""A language model before its weights are loaded: its files, its tokenizer, and what they say of its context and size."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.downloads.fetching import ADAPTER_WEIGHTS, INDEX, WEIGHTS, Fetched
from msgrpo_hub.downloads.inspection import Scalar, parse, read_header, weight_files
from msgrpo_hub.downloads.names import POCKET, located, pocket_path, split_revision
from msgrpo_hub.models.chat_templates import THINKING_OFF, set_template, template_of
from msgrpo_hub.models.context import check_expected, context_limit
from msgrpo_hub.models.encoding import PromptEncoder
from msgrpo_hub.models.load_options import Dtype
from msgrpo_hub.models.loading import adapter_tokenizer, fetch_both, load_tokenizer, stored_format

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """The files of a base model and of an optional adapter, fetched and checked."""

    base: Fetched
    adapter: Fetched | None
    tokenizer: PreTrainedTokenizerBase
    """With its chat template."""
    config: PretrainedConfig
    prompt_format: PromptFormat | None
    """The format chosen, else the one stored with the adapter, else None."""
    chat_template_kwargs: Mapping[str, Scalar]
    """The variables of the chat template: those stored with the adapter, overridden by those chosen; else thinking is off."""
    template_source: str
    """The file or the model that the chat template came from."""

    @cached_property
    def encoder(self) -> PromptEncoder:
        return PromptEncoder(self.tokenizer, self.chat_template_kwargs, self.template_source)

    def weight_bytes(self, dtype: Dtype = "auto") -> int:
        """Memory of the weights in bytes: the base in a type, an adapter in float32."""
        loaded_as = self.dtype(dtype)
        of_base = [tensor for path in self._weights() for tensor in read_header(path, self.name).values()]
        added = read_header(self.adapter.folder / ADAPTER_WEIGHTS, self.adapter.source).values() if self.adapter else ()
        size = sum(_bytes(kind, loaded_as) * math.prod(shape) for kind, shape in of_base)
        return size + 4 * sum(math.prod(shape) for _, shape in added)

    def dtype(self, chosen: Dtype = "auto") -> torch.dtype | None:
        """The type that the weights of the base are loaded in: the one chosen, else that of the configuration.

        None if neither names one: then each tensor keeps its own.
        """
        return cast(torch.dtype | None, self.config.dtype if chosen == "auto" else getattr(torch, chosen))

    def _weights(self) -> list[Path]:
        single, index = self.base.folder / WEIGHTS, self.base.folder / INDEX
        names = [WEIGHTS] if single.exists() else weight_files(parse(index.read_bytes(), INDEX, self.name), self.name)
        return [self.base.folder / name for name in names]

    @property
    def name(self) -> str:
        """The name of the base, for messages."""
        return POCKET if self.base.folder == pocket_path() else self.base.source

    def check_context(self, prompts: Sequence[Prompt], max_new_tokens: int) -> None:
        """Raises `UserError` if the model's context is too short for these prompts and their replies."""
        check_expected(self.encoder, prompts, context_limit(self.config), max_new_tokens, self.name)


def _bytes(kind: str, loaded_as: torch.dtype | None) -> int:
    """Bytes per element of a tensor that is stored as `kind`; floating-point numbers are loaded in one type.

    >>> _bytes("F32", torch.bfloat16), _bytes("BF16", None), _bytes("I64", torch.bfloat16), _bytes("BOOL", None)
    (2, 2, 8, 1)
    """
    if loaded_as is not None and "F" in kind:
        return loaded_as.itemsize
    return max(1, int("".join(filter(str.isdigit, kind.partition("_")[0])) or 8) // 8)


def open_model(
    repo_or_path: str,
    adapter: str | None = None,
    revision: str | None = None,
    *,
    chat_template: str | None = None,
    prompt_format: PromptFormat | None = None,
    chat_template_kwargs: Mapping[str, Scalar] | None = None,
) -> ModelFiles:
    """Fetches a model and loads its tokenizer, without its weights. Arguments and errors as `LanguageModel.from_pretrained`."""
    source, revision = split_revision(repo_or_path, revision)
    adapter, adapter_revision = split_revision(adapter, None) if adapter else (None, None)
    base, added = fetch_both(located(source), revision, located(adapter) if adapter else None, adapter_revision)
    chosen = prompt_format or (stored_format(added) if added else None)
    of_base, config = load_tokenizer(base)
    base_template, template_source = of_base.chat_template, chat_template or base.source
    tokenizer = adapter_tokenizer(added, of_base, config) if added else of_base
    own = ["tokenizer"] if tokenizer is not of_base else []
    if chat_template:
        set_template(tokenizer, chat_template)
    elif added and tokenizer.chat_template != base_template:
        template_source = added.source
        own += ["chat template"] if base_template else []
    switches = (added.chat_template_kwargs if added else {}) | dict(chat_template_kwargs or {})
    template, off = template_of(tokenizer, template_source, switches), dict[str, Scalar]()
    if added and own:
        log.warning("the adapter %r has its own %s, used in place of the base's", added.source, " and ".join(own))
    if not (added and added.prompt_format) and not switches.keys() & THINKING_OFF.keys():  # neither stored nor chosen
        off = template.thinking_off()
    if off:
        log.warning(
            "%s: the model's own thinking is limited with %s, because replies are short; --chat-template-kwargs changes it",
            base.source,
            json.dumps(off),
        )
    files = ModelFiles(
        base=base,
        adapter=added,
        tokenizer=tokenizer,
        config=config,
        prompt_format=chosen,
        chat_template_kwargs=switches | off,
        template_source=template_source,
    )
    files.encoder.template.log_unused(switches)
    return files
