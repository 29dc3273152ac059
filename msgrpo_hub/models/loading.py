"""Fetches base and adapter, and loads the tokenizer from files that `downloads` has checked, without network access."""

from __future__ import annotations

import json
import logging
from typing import Any

from transformers import (
    AutoConfig,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils.logging import disable_progress_bar

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
from msgrpo_hub.downloads.inspection import read_header
from msgrpo_hub.downloads.names import content_hash, no_model
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.chat_templates import set_template

LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}  # the default asks the user

log = logging.getLogger(__name__)


def hide_progress_bars() -> None:
    """Switches off transformers' progress bars for loading weights; download progress bars stay."""
    disable_progress_bar()


def fetch_both(
    source: str, revision: str | None, adapter: str | None, adapter_revision: str | None
) -> tuple[Fetched, Fetched | None]:
    """Fetches a base and optionally an adapter, each at its own commit. An adapter's settings name the commit of its base.

    Raises:
        UserError: one of them cannot be fetched, or is not the kind of model it was passed as.
    """
    listing = list_files(source, revision)
    if adapter is not None and listing.is_adapter:
        raise UserError(f"{source!r} is a LoRA adapter, not a base model: pass it alone, or with its base: BASE+ADAPTER")
    if adapter is not None:
        adapter_listing = list_files(adapter, adapter_revision)
        if not adapter_listing.is_adapter:
            raise UserError(f"{adapter!r} is not a LoRA adapter: expected adapter_config.json and {ADAPTER_WEIGHTS} there")
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


def adapter_tokenizer(found: Fetched, base: PreTrainedTokenizerBase, config: PretrainedConfig) -> PreTrainedTokenizerBase:
    """The tokenizer that an adapter is played with, and its chat template: each is the adapter's own if it has one.

    TRL and Unsloth save a tokenizer beside every adapter. One that equals the base's counts as none.

    Args:
        found: the adapter.
        base: the tokenizer of its base; its chat template may be replaced.
        config: the configuration of its base.

    Raises:
        UserError: the tokenizer cannot be loaded, or has tokens that the base has no embedding for.
    """
    if not any((found.folder / name).exists() for name in VOCABULARIES):
        template = found.folder / TEMPLATE
        return set_template(base, str(template)) if template.exists() else base
    try:
        own = AutoTokenizer.from_pretrained(found.folder, config=config, **LOCAL)
        own.chat_template = own.get_chat_template() if own.chat_template else base.chat_template
    except Exception as error:  # as for the tokenizer of a base
        raise UserError(
            f"cannot load the tokenizer beside the adapter {found.source!r} ({' '.join(str(error).split())[:300]}): expected its "
            "files as the library saves them, or none"
        ) from error
    if _tokens(own) == _tokens(base):
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


def _tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[object, ...]:
    """What decides the ids of a prompt, and the special tokens but the one for padding."""
    special = {name: token for name, token in tokenizer.special_tokens_map.items() if name != "pad_token"}
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return type(tokenizer), tokenizer.get_vocab(), special
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    return {name: part for name, part in state.items() if name not in ("truncation", "padding", "post_processor")}, special


def stored_format(found: Fetched) -> PromptFormat | None:
    """The prompt format stored with an adapter, or None. Its name never imports code.

    Raises:
        UserError: no built-in format has that name.
    """
    if found.prompt_format is None:
        return None
    try:
        return find_format(found.prompt_format)
    except UserError as error:
        raise UserError(f"the prompt format of the adapter {found.source!r} is not available: {error}") from error


def unusable(found: Fetched, error: Exception) -> UserError:
    """One line for files that the libraries cannot load as a model."""
    why = " ".join(str(error).split())[:300] or type(error).__name__
    if not found.commit:
        return no_model(found.source, why)
    return UserError(f"cannot load {found.source!r} at commit {found.commit}: its files are not a valid model ({why})")
