"""Loads a LoRA adapter onto its base, as PEFT loads it, from files that `downloads` has checked."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import warnings
from typing import Any
from weakref import WeakSet

import torch
from peft import LoraConfig, PeftModel, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from msgrpo_hub.downloads.fetching import ADAPTER_WEIGHTS, Fetched
from msgrpo_hub.downloads.inspection import check_adapter, unknown_settings
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.loading import unusable

SECONDS = 2
"""Most processor time for matching the regular expressions of an adapter once with all names of its base."""

_EXPERTS = ("gate", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3")
"""Names that linear layers of experts had before transformers fused them. PEFT matches these too."""

_MATCH = """
import json, re, signal, sys
patterns, names, seconds = json.load(sys.stdin)
signal.setitimer(signal.ITIMER_PROF, seconds)
for name in names:
    for pattern in patterns:
        re.match(pattern, name)
"""

RESIZED: WeakSet[torch.nn.Module] = WeakSet()
"""Bases whose embeddings have the rows that an adapter stores, and no longer those of their files."""

log = logging.getLogger(__name__)


def load_adapter(model: PreTrainedModel, found: Fetched) -> PeftModel:
    """The base with an adapter. PEFT decides which weight belongs where, also if it renames or fuses them.

    Raises:
        UserError: the adapter does not fit, a weight is missing or not finite, or a regular expression takes too long.
    """
    refused = f"the adapter {found.source!r} does not fit its base {model.config._name_or_path!r}"
    settings = check_adapter(found.adapter or {}, found.source)
    if unknown := unknown_settings(found.adapter or {}):
        log.warning("the adapter %r has settings that are not known here and not used: %s", found.source, ", ".join(unknown))
    _check_patterns(model, settings, found.source)
    try:
        weights = load_file(found.folder / ADAPTER_WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise unusable(found, error) from error
    if not all(torch.isfinite(tensor).all() for tensor in weights.values()):
        raise UserError(f"the adapter {found.source!r} has weights that are not finite: expected numbers")
    try:
        config = LoraConfig(**settings | {"task_type": "CAUSAL_LM", "init_lora_weights": True})
        _resize_embeddings(model, weights)
        layers: tuple[Any, ...] = (model.get_input_embeddings(), model.get_output_embeddings())
        embeddings = {layer.weight.data_ptr() for layer in layers if layer is not None}  # which PEFT stores with some adapters
        with warnings.catch_warnings(action="ignore"):  # of missing weights, which are counted below
            adapted = PeftModel.from_pretrained(model, found.folder, config=config, local_files_only=True).eval()
            loaded: Any = set_peft_model_state_dict(adapted, weights)  # once more, since only this tells what was not loaded
    except Exception as error:  # PEFT raises errors of every class for settings and weights that do not fit
        raise UserError(f"{refused}: {' '.join(str(error).split())[:300] or type(error).__name__}") from error
    state, not_loaded = adapted.state_dict(), set(loaded.missing_keys)
    own = {name for name, _ in adapted.named_parameters() if _is_stored(name, config.bias)}
    of_base = [name for name in state.keys() - not_loaded if not _is_stored(name, config.bias)]
    unused = [name for name in loaded.unexpected_keys if ".modules_to_save." not in name]  # copies that PEFT writes and ignores
    extra = len(unused) + sum(state[name].data_ptr() not in embeddings for name in of_base)
    if extra or own & not_loaded:
        raise UserError(
            f"{refused}: {len(own & not_loaded)} of its {len(own)} layers have no weights, {extra} weights match no layer"
        )
    return adapted


def _is_stored(name: str, bias: str) -> bool:
    """Whether PEFT stores this weight of a model with an adapter that trains biases or not."""
    of_adapter = "default" in name.split(".")  # the name that PEFT gives an adapter
    return of_adapter or (bias == "all" and "bias" in name) or (bias == "lora_only" and name.endswith(".base_layer.bias"))


def _resize_embeddings(model: PreTrainedModel, weights: dict[str, Tensor]) -> None:
    """Gives the embeddings as many rows as the adapter stores: its tokenizer may have more tokens than that of the base."""
    embedding: Any = model.get_input_embeddings()
    [name] = [name for name, module in model.named_modules() if module is embedding]
    for stored, tensor in weights.items():
        whole = stored.startswith(f"base_model.model.{name}.") and stored.endswith(".weight") and "lora_" not in stored
        if whole and tensor.shape != embedding.weight.shape and tensor.shape[1:] == embedding.weight.shape[1:]:
            model.resize_token_embeddings(len(tensor), mean_resizing=False)
            RESIZED.add(model)
            return


def _check_patterns(model: PreTrainedModel, settings: dict[str, Any], source: str) -> None:
    """Matches the regular expressions as PEFT does, in a process that the system stops when its time is up.

    Python's regular expressions can take longer than any computer lives, and nothing in its own process can stop them.
    """
    whole = [settings.get(name) for name in ("target_modules", "exclude_modules")]
    patterns = [rf"(?:{text})\Z" for text in whole if isinstance(text, str) and text != "all-linear"]
    patterns += [rf"(.*\.)?({text})$" for name in ("rank_pattern", "alpha_pattern") for text in settings.get(name, ())]
    if not patterns:
        return
    names = [name for name, _ in [*model.named_modules(), *model.named_parameters()]]
    names += [f"{name.removesuffix('gate_up_proj')}{old}" for name in names if name.endswith(".gate_up_proj") for old in _EXPERTS]
    given = json.dumps([patterns, names, SECONDS])
    done = subprocess.run([sys.executable, "-I", "-S", "-c", _MATCH], input=given, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        why = said[-1] if said else f"they take more than {SECONDS} s to match"
        raise UserError(
            f"the adapter {source!r} is not loaded: its regular expressions of layers are refused ({why[:200]}); expected names"
        )
