"""A language model before its weights are loaded: its files, its tokenizer, and what they say of its context and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.downloads.fetching import Fetched
from msgrpo_hub.downloads.names import POCKET, pocket_path, split_revision
from msgrpo_hub.downloads.play_settings import Scalar
from msgrpo_hub.models.chat_templates import set_template
from msgrpo_hub.models.context import check_expected, context_limit
from msgrpo_hub.models.encoding import PromptEncoder
from msgrpo_hub.models.loading import fetch_both, load_tokenizer, stored_format


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
    """The variables of the chat template: those stored with the adapter, overridden by those chosen."""
    template_source: str
    """The file or the model that the chat template came from."""

    @cached_property
    def encoder(self) -> PromptEncoder:
        return PromptEncoder(self.tokenizer, self.chat_template_kwargs, self.template_source)

    def check_context(self, prompts: Sequence[Prompt], max_new_tokens: int) -> None:
        """Raises `UserError` if the model's context is too short for these prompts and their replies."""
        name = POCKET if self.base.folder == pocket_path() else self.base.source
        check_expected(self.encoder, prompts, context_limit(self.config), max_new_tokens, name)


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
    source = str(pocket_path()) if source == POCKET else source
    adapter, adapter_revision = split_revision(adapter, None) if adapter else (None, None)
    base, added = fetch_both(source, revision, adapter, adapter_revision)
    chosen = prompt_format or (stored_format(added) if added else None)
    tokenizer, config = load_tokenizer(base)
    set_template(tokenizer, base.source, chat_template)
    stored = added.chat_template_kwargs if added else {}
    files = ModelFiles(
        base=base,
        adapter=added,
        tokenizer=tokenizer,
        config=config,
        prompt_format=chosen,
        chat_template_kwargs=stored | dict(chat_template_kwargs or {}),
        template_source=chat_template or base.source,
    )
    files.encoder.template.log_unused(files.chat_template_kwargs)
    return files
