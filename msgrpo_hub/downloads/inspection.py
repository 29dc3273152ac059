"""Checks the files of a foreign model: its settings must not be dangerous, and its sizes are bounded.

Only JSON and safetensors headers are read here, before any library that would act on the files.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgrpo_hub.errors import UserError

LARGEST_RANK = 1024
"""Largest rank of a LoRA adapter: PEFT allocates the matrices before it reads the weights."""
LARGEST_ALPHA = 1e6
"""Largest lora_alpha of an adapter. Adapters have at most a few thousand; with 1e308 every number overflows."""
LARGEST_HEADER = 10_000_000
"""Largest safetensors header, in bytes: that of about 70,000 tensors. An adapter of 48 layers of 128 experts has 37,000."""
LONGEST_PATTERN = 5_000
"""Largest number of characters of a regular expression. `models.adapters` bounds the time that it takes."""
MOST_TOKENS = 10_000
"""Largest number of tokens with embeddings of their own: PEFT allocates these before it reads the weights."""

_NAME = re.compile(r"[\w.-]{1,200}", re.ASCII)
_REVISION = re.compile(r"(?!.*(\.\.|//))[\w][\w./+-]{0,199}", re.ASCII)
_FILE = re.compile(r"[A-Za-z0-9_][\w.-]{0,199}", re.ASCII)
_PATH = re.compile(r"[/~\\]|[A-Za-z]:[/\\]|.*\.\.[/\\]", re.DOTALL)
_IGNORED_PATHS = ("name_or_path", "special_tokens_map_file")
"""Settings of a tokenizer that often hold a path of its author, and that no library reads."""

Check = Callable[[Any], bool]

log = logging.getLogger(__name__)


def _is_rank(value: Any) -> bool:
    return type(value) is int and 1 <= value <= LARGEST_RANK


def _is_alpha(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LARGEST_ALPHA


def _are_names(value: Any) -> bool:
    """One plain name or a list of them."""
    names = [value] if isinstance(value, str) else value
    return (
        isinstance(names, list) and len(names) < 10_000 and all(isinstance(name, str) and _NAME.fullmatch(name) for name in names)
    )


def _are_targets(value: Any) -> bool:
    """Names, or one text, which PEFT matches as a regular expression."""
    return _are_names(value) or (isinstance(value, str) and len(value) <= LONGEST_PATTERN)


def _pattern(check: Check) -> Check:
    """Values by regular expressions of names."""
    return lambda value: (
        isinstance(value, dict) and all(len(name) <= LONGEST_PATTERN for name in value) and all(map(check, value.values()))
    )


def _are_whole(value: Any) -> bool:
    return type(value) is int or (isinstance(value, list) and all(type(one) is int for one in value))


def _are_tokens(value: Any) -> bool:
    """Token ids, or a list of them for each of several layers."""
    lists = value.values() if isinstance(value, dict) else [value]
    names = list(value) if isinstance(value, dict) else []
    return _are_names(names) and all(isinstance(one, list) and _are_whole(one) and len(one) <= MOST_TOKENS for one in lists)


def _is_small(value: Any) -> bool:
    """A flag, a name, a number or a few of these, which allocate little. PEFT itself refuses values of another kind."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return all(
        part is None or _are_names(part) or (isinstance(part, int | float) and abs(part) <= LARGEST_RANK) for part in parts
    )


def _one_of(*values: Any) -> Check:
    return lambda value: any(type(value) is type(one) and value == one for one in values)


def is_revision(value: Any) -> bool:
    """Whether a text can name a branch, tag or commit, without leading to another file of the cache."""
    return isinstance(value, str) and bool(_REVISION.fullmatch(value))


_LORA: Mapping[str, Check] = {
    "peft_type": _one_of("LORA"),
    "task_type": _one_of("CAUSAL_LM", "SEQ_2_SEQ_LM"),
    "revision": is_revision,
    "r": _is_rank,
    "lora_alpha": _is_alpha,
    "init_lora_weights": _one_of(True, "gaussian", "eva", "orthogonal", "mica"),
    "target_modules": _are_targets,
    "exclude_modules": _are_targets,
    "target_parameters": _are_names,
    "modules_to_save": _are_names,
    "layers_pattern": _are_names,
    "trainable_token_indices": _are_tokens,
    "rank_pattern": _pattern(_is_rank),
    "alpha_pattern": _pattern(_is_alpha),
    **dict.fromkeys(("bias", "lora_bias", "lora_dropout", "layers_to_transform", "fan_in_fan_out"), _is_small),
    **dict.fromkeys(("use_rslora", "use_dora", "use_bdlora", "velora_config", "ensure_weight_tying"), _is_small),
}
"""The settings that say what the weights of an adapter mean, each with a check that bounds what PEFT allocates."""

_UNUSED = (
    *("base_model_name_or_path", "auto_mapping", "inference_mode", "peft_version", "megatron_core", "runtime_config"),
    *("loftq_config", "eva_config", "corda_config", "lora_ga_config", "qalora_group_size"),
)
"""Settings for training and for `AutoPeftModel`. Loading does not need them, so PEFT does not get them."""

_DANGERS: Mapping[str, str] = {
    "init_lora_weights": "changes the weights of the base; its author can save it as plain LoRA",
    "task_type": "is not for writing text",
    "megatron_config": "imports a module that the adapter names",
    "layer_replication": "changes the layers of the base",
    "kasa_config": "changes the weights of the base",
    "arrow_config": "needs other adapters",
    "monteclora_config": "allocates memory of any size",
    "alora_invocation_tokens": "applies the adapter to a part of each prompt, which no engine here does",
}


def check_adapter(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The settings that PEFT's `LoraConfig` gets of those of a LoRA adapter. What is off (null, false, empty) is left out.

    A setting that is not known here is refused if it is a list or an object, and otherwise left out; see `unknown_settings`.

    Raises:
        UserError: the adapter is no LoRA adapter, or a setting is dangerous or unknown; the message names it.
    """
    if "peft_type" not in settings:
        raise UserError(f"the adapter {source!r} has no peft_type: expected a LoRA adapter as PEFT saves it")
    if settings["peft_type"] != "LORA":
        raise UserError(f"the adapter {source!r} is of type {_short(settings['peft_type'])}: expected LORA")
    used = {}
    for name, value in _switched_on(settings).items():
        if name in _LORA and _LORA[name](value):
            used[name] = value
        elif name in _LORA or (name not in _UNUSED and isinstance(value, dict | list)):
            usual = "is out of range" if name in _LORA else "is not known here and may change what the weights mean"
            why = f"its {name} is {_short(value)}, which {_DANGERS.get(name, usual)}"
            raise UserError(f"the adapter {source!r} is not loaded: {why}; expected a plain LoRA adapter")
    return used


def unknown_settings(settings: Mapping[str, Any]) -> list[str]:
    """The names of the settings of an adapter that are on and not known here."""
    return [_short(name) for name in _switched_on(settings) if name not in _LORA and name not in _UNUSED]


def _switched_on(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if not (value is None or value is False or value in ({}, [], ""))}


def check_config(config: Mapping[str, Any], source: str, weight_bytes: int, original: str = "") -> None:
    """Refuses a `config.json` that refers to other files or code, or describes a model larger than its weights.

    `auto_map` is allowed: it names code of the repository, which is neither downloaded nor run, and many models that
    transformers supports itself still have it.

    Args:
        config: content of `config.json`.
        source: name of the model, for the message.
        weight_bytes: size of its weights.
        original: the model that it is a quantised copy of, for the message.

    Raises:
        UserError: a setting is refused; the message names it.
    """
    for part in _objects(config):
        if part.get("quantization_config"):
            such_as = f", such as {original!r}" if original else ""
            raise UserError(
                f"{source!r} is quantised (quantization_config): expected plain weights; use the original model{such_as}"
            )
        for name in ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation"):
            if "/" in str(part.get(name)):
                raise UserError(
                    f"{source!r} is not loaded: its {name} is {_short(part[name])}, which is code on the Hub; expected 'eager' "
                    "or 'sdpa'"
                )
            if part.get(name) not in (None, "eager", "sdpa"):
                log.warning("%r asks for %s = %s: loaded with 'sdpa' or 'eager' instead", source, name, _short(part[name]))
        if part.get("transformers_weights"):
            raise UserError(f"{source!r} is not loaded: its transformers_weights names another file; expected model.safetensors")
        hidden, inner, layers, vocabulary = (
            part.get(name) for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size")
        )
        if not isinstance(hidden, int):
            continue
        inner, layers, vocabulary = (value if isinstance(value, int) else 0 for value in (inner, layers, vocabulary))
        if hidden * (layers * (hidden + inner) + vocabulary) > 8 * weight_bytes or min(hidden, inner, layers, vocabulary) < 0:
            raise UserError(
                f"{source!r} is not loaded: its config.json describes a model far larger than its weights; expected both to fit"
            )


def check_tokenizer(config: Mapping[str, Any], source: str) -> None:
    """Refuses a `tokenizer_config.json` that names files outside the model, which a library would read and later publish.

    Raises:
        UserError: a setting is refused; the message names it.
    """
    for name, value in config.items():
        if name == "chat_template" or name.endswith("_token") or name in _IGNORED_PATHS:
            continue
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        paths = [text for text in texts if isinstance(text, str) and _leads_away(name, text)]
        if name == "init_inputs" and value:
            paths = [value]
        if paths and name != "additional_special_tokens":
            raise UserError(
                f"{source!r} is not loaded: its tokenizer's {name} is {_short(paths[0])}; expected a file of the model"
            )


def _leads_away(name: str, text: str) -> bool:
    """Whether a setting of a tokenizer names something else than a visible file of the model."""
    is_file = name.endswith(("_file", "_files"))
    return bool(_PATH.match(text)) or (is_file and not _FILE.fullmatch(text))


def weight_files(index: Mapping[str, Any], source: str) -> list[str]:
    """The files that `model.safetensors.index.json` names; each must be in the same folder.

    Raises:
        UserError: the index names anything else, such as a path.
    """
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not isinstance(index.get("metadata", {}), dict):
        raise UserError(f"{source!r} is not loaded: its model.safetensors.index.json has no weight_map")
    for name in weight_map.values():
        if not (isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_-][\w.-]*\.safetensors", name, re.ASCII)):
            raise UserError(
                f"{source!r} is not loaded: its index names the weights {_short(name)}; expected files in the same folder"
            )
    return sorted(set(weight_map.values()))


def check_weights(path: Path, source: str, kinds: tuple[str, ...] = ()) -> None:
    """Checks the header of a safetensors file: its length, given by the first eight bytes, and its tensors.

    Args:
        path: the file.
        source: name of the model, for the message.
        kinds: accepted number types, such as `F32`; an empty tuple accepts all.

    Raises:
        UserError: the file is not a safetensors file, or its header is larger than any model needs.
    """
    for name, (kind, _) in _read_header(path, source).items():
        if kinds and kind not in kinds:
            raise UserError(
                f"{source!r} is not loaded: {name} in {path.name} is of type {_short(kind)}; expected {', '.join(kinds)}"
            )


def tensor_sizes(path: Path, source: str) -> list[tuple[str, int]]:
    """(number type, such as `F32`; number of elements) of each tensor in a safetensors file. Errors as for `check_weights`."""
    return [(kind, math.prod(shape)) for kind, shape in _read_header(path, source).values()]


def embedding_rows(path: Path, source: str) -> int:
    """The rows of the embedding that an adapter stores as a whole; 0 if it stores none. Errors as for `check_weights`."""
    header = _read_header(path, source).items()
    stored = [shape for name, (_, shape) in header if ".embed_tokens." in name and "lora_" not in name and len(shape) == 2]
    return max((shape[0] for shape in stored), default=0)


def _read_header(path: Path, source: str) -> dict[str, tuple[str, list[int]]]:
    """Number type and shape of each tensor in a safetensors file."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if LARGEST_HEADER < length <= path.stat().st_size - 8:
            limit = f"{LARGEST_HEADER:,} bytes, enough for 70,000 tensors"
            raise UserError(f"{source!r} is not loaded: the header of {path.name} has {length:,} bytes; expected at most {limit}")
        if not 2 <= length <= path.stat().st_size - 8:
            raise UserError(
                f"{source!r} is not loaded: {path.name} is not a safetensors file (its header would have {length} bytes)"
            )
        header = parse(file.read(length), f"the header of {path.name}", source)
    header.pop("__metadata__", None)
    for name, tensor in header.items():
        if not (isinstance(tensor, dict) and isinstance(tensor.get("shape"), list) and _are_whole(tensor["shape"])):
            raise UserError(f"{source!r} is not loaded: {path.name} is not a safetensors file ({_short(name)} has no shape)")
    return {name: (str(tensor.get("dtype")), tensor["shape"]) for name, tensor in header.items()}


def check_links(folder: Path, names: Iterable[str], source: str) -> None:
    """Refuses links out of a folder: a file may link into the folder or the Hub client's cache, not to a secret elsewhere.

    Raises:
        UserError: a file links elsewhere; the message names it.
    """
    inside = folder.resolve()
    cache = next((above.parent / "blobs" for above in inside.parents if above.name == "snapshots"), inside)
    for name in names:
        file = (folder / name).resolve()
        if not (file.is_relative_to(inside) or file.is_relative_to(cache)):
            raise UserError(f"{name} in {source!r} is a link that leads elsewhere: expected a file of the folder")


def parse(text: bytes, what: str, source: str) -> dict[str, Any]:
    """A JSON object. Raises `UserError` for anything else."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{source!r} is not loaded: {what} is not JSON ({_short(error)}); expected a file as the library saves it"
        ) from error
    if not isinstance(content, dict):
        raise UserError(f"{source!r} is not loaded: {what} is not a JSON object; expected a file as the library saves it")
    return content


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """A JSON object and all objects nested in it."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _objects(inner)


def _short(value: object) -> str:
    text = " ".join(str(value).split()) if isinstance(value, Exception) else repr(value)
    return text if len(text) < 80 else f"{text[:77]}..."
