"""Checks the files of a foreign model before any library reads them: settings must be inert, and sizes bounded.

Only JSON and safetensors headers are parsed here. `LoraConfig` gets only the settings that `check_adapter` returns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from safetensors import SafetensorError, safe_open

from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.fields import Range, misfit

LARGEST_RANK = 1024
"""Largest rank of a LoRA adapter: PEFT allocates the matrices before it reads the weights."""
LARGEST_ALPHA = 1e6
"""Largest lora_alpha; published adapters have at most a few thousand."""
LARGEST_HEADER = 10_000_000
"""Largest safetensors header, in bytes: enough for 70,000 tensors."""
LONGEST_PATTERN = 5_000
"""Largest number of characters of a regular expression."""
MOST_NAMES = 10_000
"""Largest number of names in a setting, and of tokens with separately trained embeddings."""

PLAY_SETTINGS = "msgrpo.json"
"""The file beside an adapter with its play settings. PEFT ignores it."""

Scalar = str | int | float | bool
"""The value of a variable of a chat template."""

_NAME = re.compile(r"[\w.-]{1,200}", re.ASCII)
_FILE = re.compile(r"[A-Za-z0-9_][\w.-]{0,199}", re.ASCII)
_PATH = re.compile(r"[/~\\]|[A-Za-z]:[/\\]|.*\.\.[/\\]", re.DOTALL)


def parse(text: bytes, what: str, source: str) -> dict[str, Any]:
    """Parses a JSON object. Raises `UserError` for anything else."""
    try:
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError("a JSON object was expected")
    except (ValueError, RecursionError) as error:
        given = f"{source!r} is not loaded"
        raise UserError(f"{given}: {what} is not JSON ({error}); expected a file as the library saves it") from error
    return content


def is_revision(value: Any) -> bool:
    """Whether a value can be a branch, tag or commit. Paths are refused: the cache uses the revision as a file name."""
    return isinstance(value, str) and bool(re.fullmatch(r"(?!.*(\.\.|//))[\w][\w./+-]{0,199}", value, re.ASCII))


# ---- adapters


_Rank = Annotated[int, Range(1, LARGEST_RANK)]
_Alpha = Annotated[float, Range(-LARGEST_ALPHA, LARGEST_ALPHA)]
_LORA: Mapping[str, Any] = {
    "peft_type": Literal["LORA"],
    "task_type": Literal["CAUSAL_LM", "SEQ_2_SEQ_LM"],
    "revision": str,
    "r": _Rank,
    "lora_alpha": _Alpha,
    "init_lora_weights": bool | Literal["gaussian", "eva", "orthogonal", "mica"],
    **dict.fromkeys(("target_modules", "exclude_modules"), "names or pattern"),
    **dict.fromkeys(("target_parameters", "modules_to_save", "layers_pattern"), "names"),
    "trainable_token_indices": "tokens",
    "rank_pattern": dict[str, _Rank],
    "alpha_pattern": dict[str, _Alpha],
    "lora_dropout": Annotated[float, Range(0, 1)],
    **dict.fromkeys(("bias", "lora_bias", "layers_to_transform", "fan_in_fan_out"), "small"),
    **dict.fromkeys(("use_rslora", "use_dora", "use_bdlora", "velora_config", "ensure_weight_tying"), "small"),
}
"""The settings that give an adapter's weights their meaning, each with a type, or a kind that `_fits` knows."""


def _fits(name: str, value: Any) -> bool:
    """Whether a setting has its type, and a size that bounds what PEFT allocates for it."""
    kind, many = _LORA[name], value if isinstance(value, list) else [value]
    plain = len(many) < MOST_NAMES and all(isinstance(one, str) and _NAME.fullmatch(one) for one in many)
    if kind == "names or pattern":  # `models.adapters` matches a pattern under a time limit
        return plain or (isinstance(value, str) and len(value) <= LONGEST_PATTERN)
    if kind == "names":
        return plain
    if kind == "tokens":  # ids, or a list of them for each of several layers
        lists = value if isinstance(value, dict) else {"all": value}
        short = len(lists) < MOST_NAMES and all(isinstance(ids, list) and len(ids) <= MOST_NAMES for ids in lists.values())
        return short and all(map(_NAME.fullmatch, lists)) and all(type(one) is int for ids in lists.values() for one in ids)
    if kind == "small":  # a flag, a name, a number, or a few of these, also by name; PEFT refuses other types
        parts = value.values() if isinstance(value, dict) else many
        flat = [one for part in parts for one in (part if isinstance(part, list) else [part])]
        numbers = [one for one in flat if one is not None and not isinstance(one, str)]
        bounded = all(isinstance(one, int | float) and abs(one) <= LARGEST_RANK for one in numbers)
        return bounded and all(_NAME.fullmatch(one) for one in flat if isinstance(one, str))
    if get_origin(kind) is dict:  # by regular expressions of layer names
        hint = get_args(kind)[1]
        return (
            isinstance(value, dict)
            and max(map(len, value)) <= LONGEST_PATTERN
            and not any(misfit(one, hint) for one in value.values())
        )
    return not misfit(value, kind) and (name != "revision" or is_revision(value))


_UNUSED = (
    *("base_model_name_or_path", "auto_mapping", "inference_mode", "peft_version", "megatron_core", "runtime_config"),
    *("loftq_config", "eva_config", "corda_config", "lora_ga_config", "qalora_group_size"),
)
"""Settings for training and for `AutoPeftModel`; PEFT does not get them here."""

_DANGERS: Mapping[str, str] = {
    "init_lora_weights": "changes the weights of the base; its author can save it as plain LoRA",
    "task_type": "is not for writing text",
    "megatron_config": "imports a module that the adapter names",
    "layer_replication": "changes the layers of the base",
    "kasa_config": "changes the weights of the base",
    "arrow_config": "needs other adapters",
    "alora_invocation_tokens": "applies the adapter to a part of each prompt, which no engine here does",
}
"""Why a setting is refused, for the message."""


def check_adapter(settings: Mapping[str, Any], source: str) -> tuple[dict[str, Any], list[str]]:
    """Selects the settings of a LoRA adapter that PEFT's `LoraConfig` gets, and names the unknown ones that are ignored.

    Settings that are off (null, false, empty) are omitted. An unknown setting is refused if it is a list or an object.

    Raises `UserError` if it is not a LoRA adapter, or if a setting, which the message names, is dangerous or unknown.
    """
    if "peft_type" not in settings:
        raise UserError(f"the adapter {source!r} has no peft_type: expected a LoRA adapter as PEFT saves it")
    if settings["peft_type"] != "LORA":
        raise UserError(f"the adapter {source!r} is of type {shown(settings['peft_type'])}: expected LORA")
    used, unknown = {}, []
    for name, value in settings.items():
        if value is None or value is False or value in ({}, [], ""):
            continue
        if name in _LORA and _fits(name, value):
            used[name] = value
        elif name in _LORA or (name not in _UNUSED and isinstance(value, dict | list)):
            usual = "is out of range" if name in _LORA else "may run code, change the base or change what the weights mean"
            why = f"its {name} is {shown(value)}, which {_DANGERS.get(name, usual)}"
            raise UserError(f"the adapter {source!r} is not loaded: {why}; expected plain LoRA")
        elif name not in _UNUSED:
            unknown.append(shown(name))
    return used, unknown


# ---- bases


_SIZES = [
    *(("hidden_size", "n_embd", "d_model"), ("intermediate_size", "n_inner", "ffn_dim", "d_ff")),
    *(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), ("vocab_size",)),
]
"""Names of sizes by family: of a state, of a hidden layer, of the layers, of the vocabulary."""


def check_config(config: Mapping[str, Any], source: str, weight_bytes: int, original: str = "") -> None:
    """Checks the `config.json` of a base. `auto_map` passes: the code that it names is not downloaded or run.

    Raises `UserError` if it is quantised, refers to other files or code, or describes a model larger than its weights.
    """
    parts: list[Any] = [config]  # and all objects nested in it
    for part in parts:
        if not isinstance(part, Mapping):
            continue
        parts += part.values()
        if part.get("quantization_config"):
            such_as = f", such as {original!r}" if original else ""
            given = f"{source!r} is quantised (quantization_config)"
            raise UserError(f"{given}: expected plain weights; use the original model{such_as}")
        for name in ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation"):
            if "/" in str(part.get(name)):
                raise UserError(f"{source!r} is not loaded: its {name} is {shown(part[name])}, which is code; expected 'sdpa'")
        if part.get("transformers_weights"):
            raise UserError(f"{source!r} is not loaded: its transformers_weights names another file; expected model.safetensors")
        sizes = (next((part[name] for name in names if isinstance(part.get(name), int)), 0) for names in _SIZES)
        hidden, inner, layers, vocabulary = sizes
        if hidden * (layers * (hidden + inner) + vocabulary) > 8 * weight_bytes or min(hidden, inner, layers, vocabulary) < 0:
            given = f"{source!r} is not loaded"
            raise UserError(f"{given}: its config.json describes a model far larger than its weights; expected both to fit")


def check_tokenizer(config: Mapping[str, Any], source: str) -> None:
    """Raises `UserError` for a `tokenizer_config.json` with paths outside the model, which a library would read and publish."""
    inert = ("chat_template", "additional_special_tokens", "name_or_path", "special_tokens_map_file")
    for name, value in config.items():
        if name in inert or name.endswith("_token"):
            continue
        texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
        is_file = name.endswith(("_file", "_files"))
        outside = [text for text in texts if _PATH.match(text) or (is_file and not _FILE.fullmatch(text))]
        if outside or (name == "init_inputs" and value):
            found = shown(outside[0] if outside else value)
            raise UserError(f"{source!r} is not loaded: its tokenizer's {name} is {found}; expected a file of the model")


def weight_files(index: Mapping[str, Any], source: str) -> list[str]:
    """The files that `model.safetensors.index.json` names. Raises `UserError` if one is not a safetensors file beside it."""
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not isinstance(index.get("metadata", {}), dict):
        raise UserError(f"{source!r} is not loaded: its model.safetensors.index.json has no weight_map")
    for name in weight_map.values():
        if not (isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_-][\w.-]*\.safetensors", name, re.ASCII)):
            given = f"{source!r} is not loaded"
            raise UserError(f"{given}: its index names the weights {shown(name)}; expected files in the same folder")
    return sorted(set(weight_map.values()))


# ---- weights


def read_header(path: Path, source: str, kinds: tuple[str, ...] = ()) -> dict[str, tuple[str, list[int]]]:
    """Number type (such as `F32`) and shape of each tensor in a safetensors file.

    Raises `UserError` for another file, a header larger than any model needs, or number types not in `kinds`, if it has any.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
        if LARGEST_HEADER < length <= path.stat().st_size:
            most = f"expected at most {LARGEST_HEADER:,}"
            raise UserError(f"{source!r} is not loaded: the header of {path.name} has {length:,} bytes; {most}")
        with safe_open(path, framework="np") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118  (it is not a dict)
            header = {name: (str(one.get_dtype()), list(one.get_shape())) for name, one in slices.items()}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{source!r} is not loaded: {path.name} is not a safetensors file ({error})") from error
    for name, (kind, _) in header.items():
        if kinds and kind not in kinds:
            raise UserError(f"{source!r} is not loaded: {name} in {path.name} is of type {kind}; expected {', '.join(kinds)}")
    return header


# ---- play settings

_RESERVED = (
    *("messages", "conversations", "tools", "documents", "chat_template", "add_generation_prompt"),
    *("continue_final_message", "return_assistant_tokens_mask"),
)
"""Names that transformers passes to a template, or that select the content."""


def check_play_settings(settings: Mapping[str, Any], source: str) -> None:
    """Checks the play settings that an adapter stores. Raises `UserError` if the file holds anything else."""
    name, switches = settings.get("prompt_format"), settings.get("chat_template_kwargs", {})
    known = settings.keys() <= {"prompt_format", "chat_template_kwargs"} and isinstance(switches, dict)
    if not known or not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.:-]{0,199}", name, re.ASCII):
        raise UserError(
            f'the adapter {source!r} is not loaded: expected {{"prompt_format": NAME}} in its msgrpo.json, and at most '
            '"chat_template_kwargs": {VARIABLE: VALUE} besides'
        )
    check_switches(switches, f"in the msgrpo.json of {source!r}")


def check_switches(switches: Mapping[str, Any], where: str) -> None:
    """Checks variables of a chat template. Raises `UserError` unless they are at most 20 plain names with plain values."""
    if len(switches) > 20:
        raise UserError(f"{len(switches)} variables {where}: expected at most 20")
    for name, value in switches.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z]\w{0,63}", name, re.ASCII) or name in _RESERVED:
            raise UserError(f"the variable {str(name)[:80]!r} {where} cannot be set: expected a variable of the chat template")
        is_text = isinstance(value, str) and len(value) <= 1000 and not re.search("[\ud800-\udfff]", value)  # no lone surrogate
        if not is_text and not (isinstance(value, bool | int | float) and abs(value) <= 1e15):
            kinds = "a text of up to 1000 characters, a number, true or false"
            raise UserError(f"{name} = {str(value)[:80]!r} {where}: expected {kinds}")
