"""Loads the parts of a model: fetched files of base and adapter, tokenizer, chat template, and the weights of the base.

`downloads` has checked the files; nothing here accesses the network.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    BitsAndBytesConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
from transformers.utils.logging import disable_progress_bar as disable_progress_bar

from msgrpo_hub.agent.prompt_formats import PromptFormat, find_format
from msgrpo_hub.downloads.fetching import (
    ADAPTER_SETTINGS,
    ADAPTER_WEIGHTS,
    TEMPLATE,
    VOCABULARIES,
    Fetched,
    base_errors,
    base_of,
    fetch,
    list_files,
)
from msgrpo_hub.downloads.inspection import Scalar, read_header
from msgrpo_hub.downloads.names import content_hash, located, no_model, split_revision
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.chat_templates import THINKING_OFF, read_template
from msgrpo_hub.models.context import context_limit
from msgrpo_hub.models.devices import choose_device, gpu
from msgrpo_hub.models.encoding import PromptEncoder
from msgrpo_hub.models.load_options import Dtype

LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}  # the default asks the user

log = logging.getLogger(__name__)


@dataclass(frozen=True)
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
    encoder: PromptEncoder
    """Encodes prompts as the loaded model does."""


def open_model(
    repo_or_path: str,
    adapter: str | None = None,
    revision: str | None = None,
    *,
    chat_template: str | None = None,
    prompt_format: PromptFormat | None = None,
    chat_template_kwargs: Mapping[str, Scalar] | None = None,
    weights: bool = True,
) -> ModelFiles:
    """Fetches a model, with its weights or without, and loads its tokenizer. Other arguments and errors as
    `LanguageModel.from_pretrained`."""
    base, added = _fetch_both(repo_or_path, revision, adapter, weights=weights)
    if added and added.prompt_format is not None and not prompt_format:
        try:
            prompt_format = find_format(added.prompt_format)  # a stored name never imports code
        except UserError as error:
            raise UserError(f"the prompt format of the adapter {added.source!r} is not available: {error}") from error
    tokenizer, config = _load_tokenizer(base)
    base_tokenizer, base_template, source = tokenizer, tokenizer.chat_template, chat_template or base.source
    if added:
        tokenizer = _adapter_tokenizer(added, tokenizer, config)
    own = ["tokenizer"] if tokenizer is not base_tokenizer else []
    if chat_template:
        tokenizer.chat_template = read_template(chat_template)
    elif added and tokenizer.chat_template != base_template:
        source = added.source
        own += ["chat template"] if base_template else []
    switches = (added.chat_template_kwargs if added else {}) | dict(chat_template_kwargs or {})
    encoder = PromptEncoder(tokenizer, switches, source)
    for name in sorted(switches):
        if not encoder.template.reads(name):
            log.warning("chat_template_kwargs: the chat template of %r never reads %r", source, name)
    if added and own:
        log.warning("the adapter %r has its own %s, used in place of the base's", added.source, " and ".join(own))
    chosen = (added and added.prompt_format) or switches.keys() & THINKING_OFF.keys()
    if not chosen and (off := encoder.template.thinking_off()):
        switches |= off
        encoder = PromptEncoder(tokenizer, switches, source)
        reason = "because replies are short; --chat-template-kwargs changes it"
        log.warning("%s: the model's own thinking is limited with %s, %s", base.source, json.dumps(off), reason)
    return ModelFiles(base, added, tokenizer, config, prompt_format, switches, encoder)


def _fetch_both(name: str, revision: str | None, adapter: str | None, *, weights: bool) -> tuple[Fetched, Fetched | None]:
    """Fetches a base and optionally an adapter, each at its own commit. An adapter's settings name the commit of its base."""
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
        return fetch(listing, weights=weights), fetch(adapter_listing, weights=weights)
    if not listing.is_adapter:
        return fetch(listing, weights=weights), None
    settings = listing.read(ADAPTER_SETTINGS)
    with base_errors(source):
        base = list_files(base_of(settings, source), settings.get("revision"))
        if base.is_adapter:
            raise UserError(f"it names {base.source!r} as its base, but that is also an adapter: expected a base model")
        fetched = fetch(base, weights=weights)
    trained_on = settings.get("revision") or ""
    if not fetched.commit and len(trained_on) == 64 and trained_on != content_hash(fetched.folder):
        log.warning("the base in %s has changed since the adapter %s was trained on it", base.source, source)
    return fetched, fetch(listing, weights=weights)


def _load_tokenizer(found: Fetched) -> tuple[PreTrainedTokenizerBase, PretrainedConfig]:
    """Loads the tokenizer and the model's configuration, without weights."""
    try:
        config = AutoConfig.from_pretrained(found.folder, **LOCAL)
        tokenizer = AutoTokenizer.from_pretrained(found.folder, **LOCAL)
        tokenizer("some text")  # some settings are read only then
        context_limit(config)
    except Exception as error:  # the libraries raise errors of every class for malformed files
        raise unusable(found, error) from error
    if tokenizer.vocab_size < 2:
        raise unusable(found, ValueError("it has no tokenizer"))
    tokenizer.name_or_path = found.source
    return tokenizer, config


def _adapter_tokenizer(found: Fetched, base: PreTrainedTokenizerBase, config: PretrainedConfig) -> PreTrainedTokenizerBase:
    """The tokenizer and chat template of an adapter: each is the adapter's own if it has one.

    TRL and Unsloth save a tokenizer with every adapter. One equal to the base's is not used. The chat template of the base's
    tokenizer may be replaced. Raises `UserError` if a tokenizer cannot be loaded, or has tokens without an embedding.
    """
    if not any((found.folder / name).exists() for name in VOCABULARIES):
        if (template := found.folder / TEMPLATE).exists():
            base.chat_template = read_template(str(template))
        return base
    try:
        own = AutoTokenizer.from_pretrained(found.folder, config=config, **LOCAL)
        own.chat_template = own.get_chat_template() if own.chat_template else base.chat_template
    except Exception as error:  # as for the tokenizer of the base
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


def load_base(
    found: Fetched,
    config: PretrainedConfig,
    dtype: Dtype = "auto",
    device: str = "auto",
    *,
    load_in_4bit: bool = False,
) -> PreTrainedModel:
    """Loads the weights of a base and names the model after its source. On the device `meta` it has shapes in place of weights.

    `LoadOptions` explains the options. Raises `UserError` if the files are not a model that generates text, or the options
    do not fit this machine.
    """
    if load_in_4bit and device != "meta" and importlib.util.find_spec("bitsandbytes") is None:
        raise UserError("loading in 4 bits needs bitsandbytes, which is not installed: run `pip install 'msgrpo-hub[quantized]'`")
    text, image_text = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING, type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    if not (text or image_text):
        raise unusable(found, ValueError(f"transformers knows no language model of type {config.model_type!r}"))
    options: dict[str, Any] = {"dtype": dtype, "use_safetensors": True, "output_loading_info": True, **LOCAL}
    for name in ("attn_implementation", "experts_implementation"):  # None is transformers' own choice
        given = getattr(config, f"_{name}")
        options[name] = given if given in ("eager", "sdpa") else None
        if given != options[name]:
            log.warning("%r asks for %s = %r: loaded with 'sdpa' or 'eager' instead", found.source, name, given)
    if load_in_4bit:  # the other weights and the products have the given type, by default bfloat16, as in QLoRA
        computed = options["dtype"] = torch.bfloat16 if dtype == "auto" else getattr(torch, dtype)
        settings: Any = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=computed)
        placed = (gpu() or "cpu") if device == "auto" else device  # a quantised model is large
        options = {"device_map": {"": placed}, "quantization_config": settings, **options}
    kind = AutoModelForCausalLM if text else AutoModelForImageTextToText
    if device == "meta":
        stored = config.get_text_config().dtype or torch.float32
        with torch.device("meta"):
            shapes: Any = kind.from_config(config, dtype=stored if dtype == "auto" else getattr(torch, dtype))
        return cast(PreTrainedModel, shapes.eval().requires_grad_(False))
    try:
        loaded: Any = kind.from_pretrained(found.folder, config=config, **options)
    except Exception as error:  # as for the tokenizer
        raise unusable(found, error) from error
    model, report = loaded
    if report["missing_keys"]:  # transformers would initialise them at random
        raise unusable(found, ValueError(f"{len(report['missing_keys'])} of its layers have no weights"))
    model.name_or_path = model.config._name_or_path = found.source
    if load_in_4bit:
        for layer in model.modules():
            if hasattr(layer, "support_avx512bf16_for_cpu"):  # sampling would repack weights, which then cannot be trained
                cast(Any, layer).support_avx512bf16_for_cpu = False
    else:
        model = model.to(choose_device(device, model.num_parameters()))
    return cast(PreTrainedModel, model.eval().requires_grad_(False))


def unusable(found: Fetched, error: Exception) -> UserError:
    """The error for files that the libraries cannot load as a model."""
    why = " ".join(str(error).split())[:300] or type(error).__name__
    if not found.commit:
        return no_model(found.source, why)
    return UserError(f"cannot load {found.source!r} at commit {found.commit}: its files are not a valid model ({why})")
