"""The model to train: a base with a LoRA adapter, new or loaded, and how the adapter is saved."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import fsdp2_prepare_model
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import PreTrainedModel

from msgrpo_hub.agent.prompt_formats import find_format
from msgrpo_hub.downloads.client import first_line
from msgrpo_hub.downloads.fetching import TEMPLATE, fetch, list_files
from msgrpo_hub.downloads.inspection import PLAY_SETTINGS
from msgrpo_hub.downloads.names import located, pocket_path, split_revision
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game
from msgrpo_hub.models.chat_templates import pocket_template
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.players.sample_play import prompts_of
from msgrpo_hub.storage.files import write_json
from msgrpo_hub.training.config import TrainConfig, parse_games
from msgrpo_hub.training.machine import sharding

_MAMBA = ("falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h")
"""Model types whose `out_proj` PEFT refuses to adapt, because fused kernels read its weight directly."""


def load_agent(config: TrainConfig, accelerator: Accelerator | None) -> LanguageModel:
    """The base with the adapter to train; without an accelerator their shapes only, with no weights downloaded.

    Raises `UserError` if they cannot be loaded or do not fit each other or the run.
    """
    if config.init_adapter:
        check_init_adapter(config)
    fsdp = sharding() if accelerator else None
    agent = LanguageModel.from_pretrained(
        config.model,
        config.init_adapter or None,
        dtype=config.dtype,
        device="cpu" if fsdp else training_device(config.device, accelerator) if accelerator else "meta",
        load_in_4bit=config.load_in_4bit,
        engine=config.engine,
        chat_template=config.chat_template or None,
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
        prompt_format=find_format(config.prompt_format, may_import=True),
        expected_prompts=prompts_of([make_game(name) for name in parse_games(config.game)]),
        chat_template_kwargs=config.chat_template_kwargs,
    )
    torch.manual_seed(config.seed)
    base = cast(PreTrainedModel, agent.model.get_base_model() if isinstance(agent.model, PeftModel) else agent.model)
    without_dropout(base)
    revision = split_revision(config.model, None)[1]
    if config.init_adapter and accelerator:
        adapted = cast(PeftModel, agent.model)
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.data = parameter.data.float()
                parameter.requires_grad_(True)
        settings = adapted.peft_config["default"]
        settings.inference_mode = False
        settings.base_model_name_or_path, settings.revision = adapted.config._name_or_path, revision
    else:
        options = {"lora_alpha": config.lora_alpha, "lora_dropout": config.lora_dropout, "use_rslora": config.rslora}
        adapted = new_lora(base, config.lora_targets, r=config.lora_rank, **options, revision=revision)
    if config.gradient_checkpointing:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        base.disable_input_require_grads()  # only reentrant checkpointing needs the embeddings' gradients
    agent = replace(agent, model=adapted, max_rows=config.max_rows, threads=None)  # the run sets the threads of torch
    if fsdp and accelerator:
        accelerator.state.fsdp_plugin = fsdp  # accelerate reads it only where there is a GPU
        fsdp.ignored_modules = [module for name, module in adapted.named_modules() if "lora_" in name.rpartition(".")[2]]
        for module in fsdp.ignored_modules:
            module.to(accelerator.device)
        fsdp2_prepare_model(accelerator, adapted)  # in place
        agent.engine.shard()
    return agent


def training_device(wanted: str, accelerator: Accelerator) -> str:
    """The device of the model; accelerate assigns it to several processes. Raises `UserError` if that is not the wanted kind."""
    placed = accelerator.device
    if accelerator.num_processes == 1:
        return "cpu" if wanted == "auto" and placed.type == "cpu" else wanted
    if wanted not in ("auto", placed.type):
        raise UserError(f"device = {wanted!r}, but accelerate places these processes on {placed.type!r}: expected 'auto'")
    return str(placed)


def new_lora(model: PreTrainedModel, targets: str = "all-linear", **options: Any) -> PeftModel:
    """The base with new LoRA matrices, by default on all linear layers, as in the paper. `options` are those of `LoraConfig`.

    "All linear layers" has PEFT's meaning, without the output projections of Mamba and routers that inherit from `nn.Linear`.
    Raises `UserError` if PEFT cannot adapt the layers.
    """
    every, named = targets == "all-linear", [name.strip() for name in targets.split(",")]
    excluded = {name.rpartition(".")[2] for name, layer in model.named_modules() if _is_router(layer)}
    excluded |= {"out_proj"} if model.config.model_type in _MAMBA else set()
    lora = LoraConfig(
        target_modules="all-linear" if every else named,
        exclude_modules=(sorted(excluded) or None) if every else None,
        task_type="CAUSAL_LM",
        **options,
    )
    known = sorted({name.rpartition(".")[2] for name, layer in model.named_modules() if isinstance(layer, nn.Linear)})
    expected = f"expected all-linear, or some of {', '.join(known)}"
    layers = [f".{name}" for name, _ in model.named_modules()]
    if missing := [name for name in named if not every and not any(layer.endswith(f".{name}") for layer in layers)]:
        raise UserError(f"lora_targets = {targets!r}: {model.name_or_path!r} has no layer {missing[0]!r}; {expected}")
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # PEFT asks transformers by an old name
            return cast(PeftModel, get_peft_model(model, lora))
    except ValueError as error:
        reason = first_line(error)
        raise UserError(f"lora_targets = {targets!r} does not fit {model.name_or_path!r} ({reason}): {expected}") from error


def _is_router(layer: nn.Module) -> bool:
    """Whether a layer is a router that inherits from `nn.Linear` and returns more than a linear layer does."""
    return isinstance(layer, nn.Linear) and "Router" in type(layer).__name__


def without_dropout(model: PreTrainedModel) -> None:
    """Switches off the base's own dropout, so that training has the distribution that rollouts sample from."""
    for path, layer in model.named_modules():
        if isinstance(layer, nn.Dropout) and "lora_dropout" not in path:
            layer.p = 0.0
        for name, value in vars(layer).items():
            if isinstance(value, float) and ("dropout" in name or name in ("jitter_noise", "input_jitter_noise")):
                setattr(layer, name, 0.0)


def learning_mode(model: nn.Module) -> None:
    """`model.train()`, except for routers: in training mode they would sample experts instead of taking the best."""
    model.train()
    for layer in model.modules():
        if _is_router(layer):
            layer.eval()


def check_init_adapter(config: TrainConfig) -> None:
    """Raises `UserError` unless the adapter to start from has the run's rank, layers, prompt format and template variables."""
    given = f"init_adapter = {config.init_adapter!r}"
    name, revision = split_revision(config.init_adapter, None)
    found = fetch(list_files(located(name), revision), weights=False)
    if found.adapter is None:
        raise UserError(f"{given} is not a LoRA adapter: expected adapter_config.json there")
    run = asdict(config) | {"chat_template_kwargs": found.chat_template_kwargs | config.chat_template_kwargs}
    stored = {
        "lora_rank": found.adapter.get("r"),
        "lora_alpha": found.adapter.get("lora_alpha"),
        "lora_dropout": float(found.adapter.get("lora_dropout") or 0),
        "rslora": bool(found.adapter.get("use_rslora")),
    }
    if found.prompt_format:
        stored |= {"prompt_format": found.prompt_format, "chat_template_kwargs": found.chat_template_kwargs}
    if others := {name: value for name, value in stored.items() if run[name] != value}:
        found_there = ", ".join(f"{name} = {json.dumps(value)}" for name, value in others.items())
        raise UserError(f"{given} has {found_there}: expected the same of the run; set these fields or flags")
    layers = {layer.strip() for layer in config.lora_targets.split(",")}
    if config.lora_targets != "all-linear" and layers != {*(found.adapter.get("target_modules") or ())}:
        raise UserError(f"lora_targets = {config.lora_targets!r}, and {given} has its own layers: expected all-linear")


def save_adapter(agent: LanguageModel, path: Path, prompt_format: str) -> None:
    """Writes the adapter to a folder in PEFT's layout with the settings to play it, each file atomically."""
    model, tokenizer = cast(PeftModel, agent.model), agent.tokenizer
    beside = path.with_name(f".{path.name}.new")
    beside.mkdir(exist_ok=True)  # fails if the folder of the run is gone; PEFT would create it
    resized = getattr(model.get_base_model(), "resized_embeddings", False)  # PEFT would ask the Hub
    model.save_pretrained(str(beside), save_embedding_layers=resized)
    (beside / "README.md").unlink(missing_ok=True)  # PEFT's template of a card; `msgrpo push` writes a card
    switches = {"chat_template_kwargs": dict(agent.chat_template_kwargs)} if agent.chat_template_kwargs else {}
    write_json(beside / PLAY_SETTINGS, {"prompt_format": prompt_format, **switches})
    if tokenizer.name_or_path != model.config._name_or_path:  # the tokenizer of init_adapter
        tokenizer.save_pretrained(beside)
    template = tokenizer.get_chat_template()
    if tokenizer.name_or_path != str(pocket_path()) or template != pocket_template():  # every installation has pocket's
        (beside / TEMPLATE).write_text(template, encoding="utf-8")
    path.mkdir(exist_ok=True)
    for file in sorted(beside.iterdir()):
        file.replace(path / file.name)
    beside.rmdir()
