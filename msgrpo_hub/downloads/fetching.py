"""The only gate for models: every base or adapter, from the Hub or a folder, is checked before any library loads it.

Only the files that a model needs are downloaded, all at one commit, settings first. A folder may hold foreign files, so it
passes the same checks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from msgrpo_hub.downloads.inspection import (
    check_adapter,
    check_config,
    check_links,
    check_tokenizer,
    check_weights,
    parse,
    weight_files,
)
from msgrpo_hub.downloads.listing import ADAPTER_SETTINGS, CONFIG, LARGEST_SETTINGS, Listing, gguf_error, is_repository, no_folder
from msgrpo_hub.downloads.names import PUBLIC_POCKET, exists, is_folder, pocket_path
from msgrpo_hub.downloads.play_settings import PLAY_SETTINGS, Scalar, play_settings_of
from msgrpo_hub.downloads.snapshots import snapshot
from msgrpo_hub.errors import UserError

LARGEST_BASE = 64_000_000_000
"""Largest size of a base's weights, in bytes: 32 billion parameters in bfloat16."""
LARGEST_ADAPTER = 4_000_000_000
"""Largest size of an adapter's weights, in bytes."""
LARGEST_TOKENIZER = 64_000_000
"""Largest size of each tokenizer file and of the weight index, in bytes: twice the largest known."""
LARGEST_PLAY_SETTINGS = 10_000
"""Largest size of an adapter's `msgrpo.json`, in bytes; the file holds a name and a few switches."""

ADAPTER_WEIGHTS = "adapter_model.safetensors"
TOKENIZER, WEIGHTS, INDEX = "tokenizer_config.json", "model.safetensors", "model.safetensors.index.json"
TEMPLATE = "chat_template.jinja"
VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
"""Files one of which every tokenizer has."""
TOKENIZER_FILES = (TOKENIZER, *VOCABULARIES, "merges.txt", "added_tokens.json", "special_tokens_map.json")

_SETTINGS = (CONFIG, "generation_config.json", TEMPLATE, "special_tokens_map.json")
_PICKLED = re.compile(r"(pytorch_model|adapter_model|model|consolidated).*\.(bin|pt|pth|ckpt|pkl|h5|msgpack)")


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A base or an adapter on this machine, checked."""

    source: str
    commit: str
    """The commit of a repository; empty for a folder."""
    folder: Path
    adapter: Mapping[str, Any] | None = None
    """The settings of a LoRA adapter; None for a base."""
    prompt_format: str | None = None
    """The name of the prompt format stored with an adapter; None if none is stored."""
    chat_template_kwargs: dict[str, Scalar] = field(default_factory=dict)
    """The variables of the chat template stored with an adapter."""


def fetch(found: Listing) -> Fetched:
    """Downloads a base or an adapter, all files at one commit, and checks it.

    Raises:
        UserError: the source cannot be downloaded, or one of its files is not what a model needs.
    """
    return _fetch_adapter(found) if found.is_adapter else _fetch_base(found)


def fetch_tokenizer(found: Listing) -> Fetched:
    """Downloads and checks the settings and the tokenizer of a base, without its weights. Errors as for `fetch`."""
    weight_bytes = sum(size for name, size in found.sizes.items() if name.endswith(".safetensors"))
    names = _check_settings(found, _read(found, CONFIG), weight_bytes)
    return Fetched(source=found.source, commit=found.commit, folder=_download(found, names))


def read_settings(found: Listing) -> dict[str, Any]:
    """The settings of an adapter, which are downloaded before its weights. Raises `UserError` unless they are inert."""
    settings = _read(found, ADAPTER_SETTINGS)
    check_adapter(settings, found.source)
    return settings


@contextmanager
def base_errors(adapter: str) -> Iterator[None]:
    """Adds to an error about the base that an adapter names what to do: to name another."""
    try:
        yield
    except UserError as error:
        raise UserError(f"the adapter {adapter!r} needs a base: {error}; name its base yourself: BASE+{adapter}") from error


def base_of(settings: Mapping[str, Any], adapter: str) -> str:
    """The base model that an adapter names. The built-in base is found in any installation.

    Raises:
        UserError: the adapter names no base, or an adapter from a repository names a base that is not a repository.
    """
    base = str(settings.get("base_model_name_or_path") or "")
    if not base:
        raise UserError("it does not name its base model")
    if "/".join(Path(base).parts[-3:]) == PUBLIC_POCKET:
        return str(pocket_path())
    if not is_folder(adapter) and (exists(base) or not is_repository(base)):
        raise UserError(f"it names {base!r} as its base: expected a repository")
    return base


def _fetch_adapter(found: Listing) -> Fetched:
    settings = read_settings(found)
    _check_size(found, [ADAPTER_WEIGHTS], LARGEST_ADAPTER)
    others = _check_files(found, prompting_files(found.sizes))
    play = play_settings_of(_read(found, PLAY_SETTINGS), found.source) if PLAY_SETTINGS in others else None
    folder = _download(found, [ADAPTER_SETTINGS, ADAPTER_WEIGHTS, *others])
    check_weights(folder / ADAPTER_WEIGHTS, found.source, kinds=("F32", "F16", "BF16"))
    return Fetched(
        source=found.source,
        commit=found.commit,
        folder=folder,
        adapter=settings,
        prompt_format=play.prompt_format if play else None,
        chat_template_kwargs=play.chat_template_kwargs if play else {},
    )


def _fetch_base(found: Listing) -> Fetched:
    config = _read(found, CONFIG)
    weights = [WEIGHTS]
    if WEIGHTS not in found.sizes and INDEX in found.sizes:
        weights = weight_files(_read(found, INDEX), found.source)
    _check_size(found, weights, LARGEST_BASE)
    others = _check_settings(found, config, sum(found.sizes[name] for name in weights))
    folder = _download(found, [*others, *weights])
    for name in weights:
        check_weights(folder / name, found.source)
    return Fetched(source=found.source, commit=found.commit, folder=folder)


def _check_settings(found: Listing, config: Mapping[str, Any], weight_bytes: int) -> list[str]:
    """The names of a base's files other than its weights, after a check of their content and sizes."""
    check_config(config, found.source, weight_bytes, found.original)
    return _check_files(found, (*_SETTINGS, *TOKENIZER_FILES, INDEX))


def prompting_files(there: Collection[str]) -> list[str]:
    """Which of the files beside an adapter decide how it is prompted: play settings, chat template, and a complete tokenizer."""
    tokenizer = TOKENIZER_FILES if any(name in there for name in VOCABULARIES) else ()
    return [name for name in (PLAY_SETTINGS, TEMPLATE, *tokenizer) if name in there]


def _check_files(found: Listing, names: Iterable[str]) -> list[str]:
    """Which of these files a source has, after a check of the tokenizer's settings and of all sizes."""
    there = [name for name in dict.fromkeys(names) if name in found.sizes]
    if TOKENIZER in there:
        check_tokenizer(_read(found, TOKENIZER), found.source)
    for name in there:
        _check_size(found, [name], LARGEST_SETTINGS if name in _SETTINGS else LARGEST_TOKENIZER)
    return there


def _check_size(found: Listing, names: Iterable[str], limit: int) -> None:
    """Refuses missing files, and files that together exceed the limit."""
    for name in names:
        if name not in found.sizes:
            raise _missing(found, name)
    total = sum(found.sizes[name] for name in names)
    if total > limit:
        files = ", ".join(list(names)[:2])
        raise UserError(
            f"{found.source!r} is not loaded: {files} would be {_format_size(total)}; expected at most {_format_size(limit)}"
        )


def _format_size(size: int) -> str:
    """A number of bytes as readable text.

    >>> _format_size(64_000_000), _format_size(10_000)
    ('64 MB', '10,000 bytes')
    """
    return f"{size / 1e6:,.0f} MB" if size >= 1_000_000 else f"{size:,} bytes"


def _missing(found: Listing, name: str) -> UserError:
    """The error for a required file that the source lacks."""
    if any(other.lower().endswith(".gguf") for other in found.sizes):
        return gguf_error(found.source, found.original)
    pickled = sorted(other for other in found.sizes if _PICKLED.fullmatch(other))
    if pickled and name.endswith(".safetensors"):
        return UserError(
            f"{found.source!r} has {pickled[0]}, which can run code when loaded, and no {name}: expected safetensors"
            + ("" if name == ADAPTER_WEIGHTS else _conversion(found.source))
        )
    if found.folder and found.commit:
        return UserError(
            f"cannot load {found.source!r}: the cache holds commit {found.commit} without its {name}, and the Hub cannot be "
            "reached: connect once to download the file"
        )
    if found.folder:
        return no_folder(found.source, f"no {name}")
    return UserError(
        f"{found.source!r} holds no model: expected config.json, tokenizer and weights, or a LoRA adapter (no {name})"
    )


def _conversion(source: str) -> str:
    """The advice for a base with pickled weights."""
    folder = f"{Path(source).name}-safetensors"
    loading = f"[kind.from_pretrained({source!r}).save_pretrained({folder!r}) for kind in (Model, Tokenizer)]"
    imports = "from transformers import AutoModelForCausalLM as Model, AutoTokenizer as Tokenizer"
    return f'; if you trust its author, convert it with python -c "{imports}; {loading}", then give the folder {folder!r}'


def _read(found: Listing, name: str) -> dict[str, Any]:
    """Reads a settings file or an index."""
    limits = {INDEX: LARGEST_TOKENIZER, TOKENIZER: LARGEST_TOKENIZER, PLAY_SETTINGS: LARGEST_PLAY_SETTINGS}
    _check_size(found, [name], limits.get(name, LARGEST_SETTINGS))
    return parse((_download(found, [name]) / name).read_bytes(), name, found.source)


def _download(found: Listing, names: list[str]) -> Path:
    """The folder of the named files, all complete and at one commit."""
    if found.folder:
        check_links(found.folder, names, found.source)
        return found.folder
    cached = [try_to_load_from_cache(found.repository, found.path(name), revision=found.commit) for name in names]
    if all(
        isinstance(path, str) and Path(path).stat().st_size == found.sizes[name] for path, name in zip(cached, names, strict=True)
    ):
        return Path(str(cached[0])).parent
    return snapshot(found.repository, found.commit, {found.path(name): found.sizes[name] for name in names}) / found.path("")
