"""A model before its weights are loaded: fetched files of base and adapter, tokenizer, chat template, context and size.

`downloads` has checked the files; nothing here accesses the network.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat, find_format
from msgrpo_hub.downloads.fetching import (
    ADAPTER_WEIGHTS,
    TEMPLATE,
    VOCABULARIES,
    Fetched,
    base_errors,
    base_of,
    fetch,
    list_files,
    read_settings,
)
from msgrpo_hub.downloads.inspection import Scalar, read_header
from msgrpo_hub.downloads.names import POCKET, content_hash, located, no_model, pocket_path, split_revision
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.chat_templates import THINKING_OFF, read_template, template_of
from msgrpo_hub.models.context import check_expected, context_limit
from msgrpo_hub.models.encoding import PromptEncoder

LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}  # the default asks the user

log = logging.getLogger(__name__)


def hide_progress_bars() -> None:
    """Switches off transformers' progress bars for loading weights; download progress bars stay."""
    disable_progress_bar()


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """The files of a base model and of an optional adapter, fetched and checked."""

    base: Fetched
    adapter: Fetched | None
    tokenizer: PreTrainedTokenizerBase
    """With its chat template."""
    config: PretrainedConfig
    prompt_format: PromptFormat | None
    """The chosen format, else the one stored with the adapter, else None."""
    chat_template_kwargs: Mapping[str, Scalar]
    """Variables of the chat template: the chosen ones override those stored with the adapter; else thinking is off."""
    template_source: str
    """The file or the model that the chat template came from."""

    @cached_property
    def encoder(self) -> PromptEncoder:
        """Encodes prompts as the loaded model does."""
        return PromptEncoder(self.tokenizer, self.chat_template_kwargs, self.template_source)

    @property
    def name(self) -> str:
        """The name of the base, for messages."""
        return POCKET if self.base.folder == pocket_path() else self.base.source

    def check_context(self, prompts: Sequence[Prompt], max_new_tokens: int) -> None:
        """Raises `UserError` if the model's context is too short for these prompts and their replies."""
        check_expected(self.encoder, prompts, context_limit(self.config), max_new_tokens, self.name)


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
    base, added = _fetch_both(repo_or_path, revision, adapter)
    prompt_format = prompt_format or (_stored_format(added) if added else None)
    tokenizer, config = load_tokenizer(base)
    base_tokenizer, base_template, template_source = tokenizer, tokenizer.chat_template, chat_template or base.source
    if added:
        tokenizer = _adapter_tokenizer(added, tokenizer, config)
    own = ["tokenizer"] if tokenizer is not base_tokenizer else []
    if chat_template:
        tokenizer.chat_template = read_template(chat_template)
    elif added and tokenizer.chat_template != base_template:
        template_source = added.source
        own += ["chat template"] if base_template else []
    switches = (added.chat_template_kwargs if added else {}) | dict(chat_template_kwargs or {})
    template = template_of(tokenizer, template_source, switches)
    template.warn_unused(switches)
    if added and own:
        log.warning("the adapter %r has its own %s, used in place of the base's", added.source, " and ".join(own))
    if not (added and added.prompt_format) and not switches.keys() & THINKING_OFF.keys() and (off := template.thinking_off()):
        switches |= off
        log.warning(
            "%s: the model's own thinking is limited with %s, because replies are short; --chat-template-kwargs changes it",
            base.source,
            json.dumps(off),
        )
    return ModelFiles(
        base=base,
        adapter=added,
        tokenizer=tokenizer,
        config=config,
        prompt_format=prompt_format,
        chat_template_kwargs=switches,
        template_source=template_source,
    )


def _fetch_both(name: str, revision: str | None, adapter: str | None) -> tuple[Fetched, Fetched | None]:
    """Fetches a base and optionally an adapter, each at its own commit. An adapter's settings name the commit of its base.

    Raises:
        UserError: one of them cannot be fetched, or is not the kind of model it was passed as.
    """
    name, revision = split_revision(name, revision)
    listing = list_files(source := located(name), revision)
    if adapter:
        adapter_name, adapter_revision = split_revision(adapter, None)
        if listing.is_adapter:
            raise UserError(f"{source!r} is a LoRA adapter, not a base model: pass it alone, or with its base: BASE+ADAPTER")
        adapter_listing = list_files(located(adapter_name), adapter_revision)
        if not adapter_listing.is_adapter:
            raise UserError(
                f"{adapter_listing.source!r} is not a LoRA adapter: expected adapter_config.json and {ADAPTER_WEIGHTS} there"
            )
        return fetch(listing), fetch(adapter_listing)
    if not listing.is_adapter:
        return fetch(listing), None
    settings = read_settings(listing)
    with base_errors(source):
        base = list_files(base_of(settings, source), settings.get("revision"))
        if base.is_adapter:
            raise UserError(f"it names {base.source!r} as its base, but that is also an adapter: expected a base model")
        fetched = fetch(base)
    trained_on = settings.get("revision") or ""
    if not fetched.commit and len(trained_on) == 64 and trained_on != content_hash(fetched.folder):
        log.warning("the base in %s has changed since the adapter %s was trained on it", base.source, source)
    return fetched, fetch(listing)


def load_tokenizer(found: Fetched) -> tuple[PreTrainedTokenizerBase, PretrainedConfig]:
    """Loads the tokenizer and the model's configuration, without weights."""
    try:
        config = AutoConfig.from_pretrained(found.folder, **LOCAL)
        tokenizer = AutoTokenizer.from_pretrained(found.folder, **LOCAL)
        tokenizer("some text")  # some settings are read only then
    except Exception as error:  # the libraries raise errors of every class for malformed files
        raise unusable(found, error) from error
    if tokenizer.vocab_size < 2:
        raise unusable(found, ValueError("it has no tokenizer"))
    tokenizer.name_or_path = found.source
    return tokenizer, config


def _adapter_tokenizer(found: Fetched, base: PreTrainedTokenizerBase, config: PretrainedConfig) -> PreTrainedTokenizerBase:
    """The tokenizer and chat template of an adapter: each is the adapter's own if it has one.

    TRL and Unsloth save a tokenizer with every adapter. One that equals the base's counts as none.

    Args:
        found: the adapter.
        base: the tokenizer of its base; its chat template may be replaced.
        config: the configuration of its base.

    Raises:
        UserError: the tokenizer cannot be loaded, or has tokens that the base has no embedding for.
    """
    if not any((found.folder / name).exists() for name in VOCABULARIES):
        if (template := found.folder / TEMPLATE).exists():
            base.chat_template = read_template(str(template))
        return base
    try:
        own = AutoTokenizer.from_pretrained(found.folder, config=config, **LOCAL)
        own.chat_template = own.get_chat_template() if own.chat_template else base.chat_template
    except Exception as error:  # as in load_tokenizer
        raise UserError(
            f"cannot load the tokenizer beside the adapter {found.source!r} ({' '.join(str(error).split())[:300]}): expected its "
            "files as the library saves them, or none"
        ) from error
    if _relevant_state(own) == _relevant_state(base):
        base.chat_template = own.chat_template
        return base
    header = read_header(found.folder / ADAPTER_WEIGHTS, found.source).items()
    stored = [shape[0] for name, (_, shape) in header if ".embed_tokens." in name and "lora_" not in name and len(shape) == 2]
    rows, known = max([config.get_text_config().vocab_size, *stored]), base.get_vocab()
    if beyond := [token for token, index in own.get_vocab().items() if index >= rows and known.get(token) != index]:
        raise UserError(
            f"the tokenizer beside the adapter {found.source!r} has {len(beyond)} tokens, such as {beyond[0]!r}, beyond the "
            f"{rows} of its base {base.name_or_path!r}: expected a tokenizer that fits the base"
        )
    own.name_or_path = found.source
    return own


def _relevant_state(tokenizer: PreTrainedTokenizerBase) -> tuple[object, ...]:
    """The settings that determine the ids of a prompt, and the special tokens except the padding token."""
    special = {name: token for name, token in tokenizer.special_tokens_map.items() if name != "pad_token"}
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return type(tokenizer), tokenizer.get_vocab(), special
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    return {name: part for name, part in state.items() if name not in ("truncation", "padding", "post_processor")}, special


def _stored_format(found: Fetched) -> PromptFormat | None:
    """The prompt format stored with an adapter, or None. A stored name never imports code."""
    if found.prompt_format is None:
        return None
    try:
        return find_format(found.prompt_format)
    except UserError as error:
        raise UserError(f"the prompt format of the adapter {found.source!r} is not available: {error}") from error


def unusable(found: Fetched, error: Exception) -> UserError:
    """The error for files that the libraries cannot load as a model."""
    why = " ".join(str(error).split())[:300] or type(error).__name__
    if not found.commit:
        return no_model(found.source, why)
    return UserError(f"cannot load {found.source!r} at commit {found.commit}: its files are not a valid model ({why})")
