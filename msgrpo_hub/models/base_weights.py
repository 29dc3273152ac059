"""Loads the weights of a base model: in a chosen type, in 4 bits, on one device or over several."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, BitsAndBytesConfig, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

from msgrpo_hub.downloads.fetching import Fetched
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.devices import choose_device, gpu
from msgrpo_hub.models.load_options import DeviceMap, Dtype
from msgrpo_hub.models.loading import LOCAL, unusable

log = logging.getLogger(__name__)


def load_base(
    found: Fetched,
    config: PretrainedConfig,
    dtype: Dtype = "auto",
    device: str = "auto",
    *,
    load_in_4bit: bool = False,
    device_map: DeviceMap = "none",
) -> PreTrainedModel:
    """Loads the weights of a base and names the model after its source.

    Args:
        found: its files.
        config: its configuration.
        dtype: type of the weights; `auto` is the checkpoint's.
        device: where it computes; see `choose_device`.
        load_in_4bit: quantise the linear layers to 4 bits (NF4) with bitsandbytes.
        device_map: `auto` spreads the layers over the GPUs, the memory of the CPU and the disk.

    Raises:
        UserError: the files are not a model that generates text, or the options do not fit together or this machine.
    """
    if device_map == "auto" and device != "auto":
        raise UserError(f"device = {device!r} with a device map, which places the layers itself: expected one of them")
    if load_in_4bit and importlib.util.find_spec("bitsandbytes") is None:
        raise UserError("loading in 4 bits needs bitsandbytes, which is not installed: run `pip install 'msgrpo-hub[quantized]'`")
    kind = text_model_class(found, config)
    options: dict[str, Any] = {"dtype": dtype, "use_safetensors": True, "output_loading_info": True, **LOCAL}
    for name in ("attn_implementation", "experts_implementation"):  # None is transformers' own choice
        given = getattr(config, f"_{name}")
        options[name] = given if given in ("eager", "sdpa") else None
        if given != options[name]:
            log.warning("%r asks for %s = %r: loaded with 'sdpa' or 'eager' instead", found.source, name, given)
    if device_map == "auto":
        options["device_map"] = "auto"
    if load_in_4bit:
        placed = (gpu() or "cpu") if device == "auto" else device  # a quantised model is large
        options |= _four_bits(dtype, options.get("device_map") or {"": placed})
    try:
        loaded: Any = kind.from_pretrained(found.folder, config=config, **options)
    except Exception as error:  # as for the tokenizer
        raise unusable(found, error) from error
    model, report = loaded
    if report["missing_keys"]:  # transformers would initialise them at random
        raise unusable(found, ValueError(f"{len(report['missing_keys'])} of its layers have no weights"))
    if model.device.type == "meta":
        raise UserError(f"no layer of {found.source!r} fits into memory: expected a smaller model, or one in fewer bits")
    model.name_or_path = model.config._name_or_path = found.source
    if load_in_4bit:
        for layer in model.modules():
            if hasattr(layer, "support_avx512bf16_for_cpu"):  # sampling would repack weights, which then cannot be trained
                cast(Any, layer).support_avx512bf16_for_cpu = False
    elif device_map == "none":
        model = model.to(choose_device(device, model.num_parameters()))
    return cast(PreTrainedModel, model.eval().requires_grad_(False))


def text_model_class(found: Fetched, config: PretrainedConfig) -> Any:
    """The class that loads a configuration: a language model, or a multimodal model for use with text."""
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return AutoModelForCausalLM
    if type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        return AutoModelForImageTextToText
    raise unusable(found, ValueError(f"transformers knows no language model of type {config.model_type!r}"))


def _four_bits(dtype: Dtype, device_map: Any) -> dict[str, Any]:
    """Options for 4 bits. The other weights and the products have the given type, by default bfloat16, as in QLoRA."""
    computed = torch.bfloat16 if dtype == "auto" else getattr(torch, dtype)
    settings: Any = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=computed)
    return {"quantization_config": settings, "dtype": computed, "device_map": device_map}
