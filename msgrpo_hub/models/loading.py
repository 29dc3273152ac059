"""Base, tokenizer, adapter and chat template from files that `downloads` has looked at; the network has no part in it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

import jinja2
import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from msgrpo_hub.agent.prompt_formats import PromptFormat, find_format
from msgrpo_hub.downloads.fetching import ADAPTER_WEIGHTS, Fetched, base_of, fetch, list_files, no_folder, read_settings
from msgrpo_hub.downloads.hub_errors import first_line
from msgrpo_hub.errors import UserError

Dtype = Literal["auto", "float32", "bfloat16"]

TEMPLATE_SECONDS = 10.0
"""How long a chat template may take for a prompt: one can be written that never ends. Known ones take a millisecond."""
LARGEST_PROMPT = 1_000_000
"""Characters that a chat template may make of a short question."""

_LOADING_ERRORS = (
    OSError,
    ValueError,
    ImportError,
    RuntimeError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    SafetensorError,
)
"""What the libraries raise at files that are not as they expect."""


def hide_progress_bars() -> None:
    """Switches off transformers' progress bars for loading weights; those of downloads stay."""
    logging.disable_progress_bar()


def fetch_both(
    source: str, revision: str | None, adapter: str | None, adapter_revision: str | None
) -> tuple[Fetched, Fetched | None]:
    """A base and perhaps an adapter, each at a commit of its own; that of an adapter's base stands in its settings.

    Raises:
        UserError: one of them cannot be had, or is not what it is given as.
    """
    found = list_files(source, revision)
    if adapter is not None and found.is_adapter:
        raise UserError(f"{source!r} is a LoRA adapter, not a base model: give it alone, or a base before --adapter")
    if adapter is not None:
        given = list_files(adapter, adapter_revision)
        if not given.is_adapter:
            raise UserError(f"the adapter {adapter!r} is none: expected adapter_config.json and {ADAPTER_WEIGHTS} there")
        return fetch(found), fetch(given)
    if not found.is_adapter:
        return fetch(found), None
    settings = read_settings(found)
    base = list_files(base_of(settings, source), settings.get("revision"))
    if base.is_adapter:
        raise UserError(
            f"the adapter {source!r} names {base.source!r} as its base, which is an adapter too: expected a base model"
        )
    return fetch(base), fetch(found)


def load_base(found: Fetched, dtype: Dtype, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer, named after their source and not after the folder in the cache."""
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}  # left out, it would ask at the terminal
    try:
        tokenizer = AutoTokenizer.from_pretrained(found.folder, **options)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            found.folder, dtype=dtype, use_safetensors=True, output_loading_info=True, **options
        )
    except _LOADING_ERRORS as error:
        raise _unusable(found, error) from error
    model, report = loaded
    if tokenizer.vocab_size < 2:
        raise _unusable(found, ValueError("it has no tokenizer"))
    if report["missing_keys"]:  # the library would draw them at random
        raise _unusable(found, ValueError(f"{len(report['missing_keys'])} of its layers get no weights"))
    model.name_or_path = model.config._name_or_path = tokenizer.name_or_path = found.source
    return cast(PreTrainedModel, model.to(cast(Any, device)).eval()), tokenizer


def load_adapter(model: PreTrainedModel, found: Fetched) -> PeftModel:
    """The base with an adapter on it. Raises `UserError` where the two do not fit, or the weights are not finite."""
    base = model.config._name_or_path
    try:
        given = load_file(found.folder / ADAPTER_WEIGHTS)
        adapted = PeftModel.from_pretrained(model, found.folder, local_files_only=True).eval()
    except (OSError, SafetensorError) as error:
        raise _unusable(found, error) from error
    except _LOADING_ERRORS as error:
        raise UserError(
            f"the adapter {found.source!r} does not fit its base {base!r}: {' '.join(str(error).split())[:300]}"
        ) from error
    if set(given) != (wanted := set(get_peft_model_state_dict(adapted))):  # PEFT only warns
        empty, stray = len(wanted - set(given)), len(set(given) - wanted)
        difference = f"{empty} of its {len(wanted)} layers get no weights, {stray} weights find no layer"
        raise UserError(f"the adapter {found.source!r} does not fit its base {base!r}: {difference}")
    if not all(torch.isfinite(tensor).all() for tensor in given.values()):
        raise UserError(f"the adapter {found.source!r} has weights that are not finite: expected numbers")
    return adapted


def stored_format(found: Fetched) -> PromptFormat | None:
    """The prompt format that is stored with an adapter, if one is. Its name never imports.

    Raises:
        UserError: there is no built-in format of that name.
    """
    if found.prompt_format is None:
        return None
    try:
        return find_format(found.prompt_format)
    except UserError as error:
        raise UserError(f"the adapter {found.source!r} cannot be asked: {error}") from error


def set_template(tokenizer: PreTrainedTokenizerBase, source: str, file: str | None) -> None:
    """Puts a given chat template in place, and refuses a model whose template is missing or broken."""
    if file:
        try:
            tokenizer.chat_template = Path(file).read_text()
        except OSError as error:
            raise UserError(f"cannot read the chat template {file!r} ({error.strerror}): expected a Jinja file") from error
    if not tokenizer.chat_template:
        raise UserError(f"{source!r} has no chat template: give one with --chat-template FILE (Jinja)")
    try:
        text = render(tokenizer, [{"role": "user", "content": "a question"}])
    except (jinja2.TemplateError, ValueError, TypeError, OverflowError, MemoryError, RecursionError) as error:
        raise UserError(
            f"the chat template of {file or source!r} does not work ({first_line(error)}): expected a Jinja template"
        ) from error
    if len(text) > LARGEST_PROMPT:
        raise UserError(f"the chat template of {file or source!r} makes {len(text)} characters of one question: expected few")


def render(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Any]) -> str:
    """Messages as text, through the chat template, which runs in Jinja's sandbox and for a bounded time."""
    with _bounded(TEMPLATE_SECONDS):
        return cast(str, tokenizer.apply_chat_template(cast(Any, messages), add_generation_prompt=True, tokenize=False))


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """Ends what takes longer with a `UserError`. Only in the main thread of a Unix process: elsewhere there is no such alarm."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def late(*_: object) -> NoReturn:
        raise UserError(f"the chat template takes more than {seconds:.0f} s for one prompt: expected one that ends")

    before = signal.signal(signal.SIGALRM, late)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, before)


def _unusable(found: Fetched, error: Exception) -> UserError:
    """One line for files of which the libraries make no model."""
    if not found.commit:
        return no_folder(found.source, first_line(error))
    return UserError(
        f"cannot load {found.source!r} at commit {found.commit}: its files are not those of a model ({first_line(error)})"
    )
