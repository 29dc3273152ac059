"""Loads a LoRA adapter onto its base with PEFT, from files that `downloads` has checked."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import warnings
from typing import Any

import torch
from peft import LoraConfig, PeftModel, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from msgrpo_hub.downloads.fetching import ADAPTER_WEIGHTS, Fetched
from msgrpo_hub.downloads.inspection import check_adapter
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.loading import unusable

SECONDS = 5
"""Seconds allowed for matching the regular expressions of an adapter with all names of its base."""

_EXPERTS = ("gate", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3")
"""Names that linear layers of experts had before transformers fused them. PEFT matches these too."""

_MATCH = "import json, re, sys\npatterns, names = json.load(sys.stdin)\nfor n in names:\n    for p in patterns: re.match(p, n)"

log = logging.getLogger(__name__)


def load_adapter(model: PreTrainedModel, found: Fetched) -> PeftModel:
    """Adds an adapter to the base. PEFT decides which weight belongs to which layer, also if it renames or fuses weights.

    If the adapter stores embeddings of another size, the base gets that size and the attribute `resized_embeddings`.

    Raises:
        UserError: the adapter does not fit, a weight is missing or not finite, or a regular expression takes too long.
    """
    refused = f"the adapter {found.source!r} does not fit its base {model.config._name_or_path!r}"
    settings, unknown = check_adapter(found.adapter or {}, found.source)
    if unknown:
        log.warning("the adapter %r has unknown settings, which are ignored: %s", found.source, ", ".join(unknown))
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
        embeddings = {layer.weight.data_ptr() for layer in layers if layer is not None}  # PEFT stores these with some adapters
        with warnings.catch_warnings(action="ignore"):  # missing weights are counted below
            adapted = PeftModel.from_pretrained(model, found.folder, config=config, local_files_only=True).eval()
            loaded: Any = set_peft_model_state_dict(adapted, weights)  # the only call that reports missing weights
    except Exception as error:  # PEFT raises errors of every class for settings and weights that do not fit
        raise UserError(f"{refused}: {' '.join(str(error).split())[:300] or type(error).__name__}") from error

    state, not_loaded = adapted.state_dict(), set(loaded.missing_keys)
    biases = {"all": r".*bias.*", "lora_only": r".*\.base_layer\.bias"}.get(config.bias, "$")
    stored = {name for name in state if "default" in name.split(".") or re.fullmatch(biases, name)}  # "default" is the adapter
    own = {name for name, _ in adapted.named_parameters()} & stored
    of_base = state.keys() - not_loaded - stored
    unused = [name for name in loaded.unexpected_keys if ".modules_to_save." not in name]  # copies that PEFT writes and ignores
    extra = len(unused) + sum(state[name].data_ptr() not in embeddings for name in of_base)
    if extra or own & not_loaded:
        raise UserError(
            f"{refused}: {len(own & not_loaded)} of its {len(own)} layers have no weights, {extra} weights match no layer"
        )
    return adapted


def _resize_embeddings(model: PreTrainedModel, weights: dict[str, Tensor]) -> None:
    """Resizes the embeddings to the rows that the adapter stores: its tokenizer may have more tokens than the base's."""
    embedding: Any = model.get_input_embeddings()
    [name] = [name for name, module in model.named_modules() if module is embedding]
    for stored, tensor in weights.items():
        whole = stored.startswith(f"base_model.model.{name}.") and stored.endswith(".weight") and "lora_" not in stored
        if whole and tensor.shape != embedding.weight.shape and tensor.shape[1:] == embedding.weight.shape[1:]:
            model.resize_token_embeddings(len(tensor), mean_resizing=False)
            model.resized_embeddings = True  # type: ignore[assignment]
            return


def _check_patterns(model: PreTrainedModel, settings: dict[str, Any], source: str) -> None:
    """Matches the regular expressions as PEFT does, in a process with a time limit.

    Python's regular expressions can take exponential time, and nothing inside their process can stop them.
    """
    texts = [settings.get(name) for name in ("target_modules", "exclude_modules")]
    patterns = [rf"(?:{text})\Z" for text in texts if isinstance(text, str) and text != "all-linear"]
    patterns += [rf"(.*\.)?({text})$" for name in ("rank_pattern", "alpha_pattern") for text in settings.get(name, ())]
    if not patterns:
        return
    names = [name for name, _ in [*model.named_modules(), *model.named_parameters()]]
    names += [f"{name.removesuffix('gate_up_proj')}{old}" for name in names if name.endswith(".gate_up_proj") for old in _EXPERTS]
    command, given = [sys.executable, "-I", "-S", "-c", _MATCH], json.dumps([patterns, names])
    try:
        subprocess.run(command, input=given, capture_output=True, text=True, timeout=SECONDS, check=True)
    except subprocess.SubprocessError as error:
        lines = (getattr(error, "stderr", None) or "").strip().splitlines()
        why = lines[-1] if isinstance(error, subprocess.CalledProcessError) and lines else f"they take more than {SECONDS} s"
        raise UserError(
            f"the adapter {source!r} is not loaded: its regular expressions of layers are refused ({why[:200]}); expected names"
        ) from error
