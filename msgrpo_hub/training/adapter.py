"""The model that is trained: a base with a LoRA adapter on all its linear layers, fresh or one to begin with."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from accelerate import Accelerator
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import PreTrainedModel

from msgrpo_hub.agent.prompt_formats import find_format
from msgrpo_hub.downloads.fetching import fetch
from msgrpo_hub.downloads.hub_errors import first_line
from msgrpo_hub.downloads.listing import list_files
from msgrpo_hub.downloads.names import located, split_revision
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.players.sample_play import prompts_of
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.curriculum import parse_games

_MAMBA = ("falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h")
"""Model types whose `out_proj` PEFT refuses to adapt: fused kernels read its weight and pass by the layer."""


def load_agent(config: TrainConfig, accelerator: Accelerator) -> LanguageModel:
    """The base with the adapter that will be trained.

    Raises:
        UserError: the base or the adapter cannot be loaded, or the adapter is not of this base, rank and alpha.
    """
    if config.init_adapter:
        check_init_adapter(config)
    agent = LanguageModel.from_pretrained(
        config.model,
        config.init_adapter or None,
        dtype=config.dtype,
        device=training_device(config.device, accelerator),
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
    adapted = given_adapter(agent, config) if config.init_adapter else fresh_lora(base, config)
    if config.gradient_checkpointing:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        base.disable_input_require_grads()  # only the reentrant kind needs its hooks, with which a model acts by its slow modules
    return replace(agent, model=adapted, max_rows=config.max_rows, threads=None)  # the run sets those of torch


def training_device(wanted: str, accelerator: Accelerator) -> str:
    """Where the model is loaded. One process has the choice of `auto`; each of several computes where accelerate places it.

    Raises:
        UserError: several processes were asked onto one kind of device and launched on another.
    """
    placed = accelerator.device
    if accelerator.num_processes == 1:
        return "cpu" if wanted == "auto" and placed.type == "cpu" else wanted
    if wanted not in ("auto", placed.type):
        raise UserError(f"device = {wanted!r}, but accelerate places these processes on {placed.type!r}: expected 'auto'")
    return str(placed)


def fresh_lora(model: PreTrainedModel, config: TrainConfig) -> PeftModel:
    """The base with fresh LoRA matrices, by default on all linear layers, as the paper has it.

    "All linear layers" is what PEFT means by it: every `nn.Linear` but the output head, and the experts and routers of
    families whose experts were linear layers before transformers fused them. Other experts and routers that are plain
    parameters stay frozen, and so does the projection out of a Mamba layer, which PEFT refuses.

    Raises:
        UserError: PEFT cannot adapt the layers that were asked for.
    """
    every, named = config.lora_targets == "all-linear", lora_targets(config)
    lora = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        use_rslora=config.rslora,
        target_modules="all-linear" if every else named,
        exclude_modules=_excluded(model) if every else None,
        task_type="CAUSAL_LM",
        revision=split_revision(config.model, None)[1],  # of the base: the adapter is loaded on just this commit
    )
    known = sorted({name.rpartition(".")[2] for name, layer in model.named_modules() if isinstance(layer, nn.Linear)})
    expected = f"expected all-linear, or some of {', '.join(known)}"
    layers = [f".{name}" for name, _ in model.named_modules()]
    if missing := [name for name in named if not every and not any(layer.endswith(f".{name}") for layer in layers)]:
        raise UserError(f"lora_targets = {config.lora_targets!r}: {config.model!r} has no layer {missing[0]!r}; {expected}")
    try:
        return cast(PeftModel, get_peft_model(model, lora))
    except ValueError as error:
        raise UserError(
            f"lora_targets = {config.lora_targets!r} does not fit {config.model!r} ({first_line(error)}): {expected}"
        ) from error


def lora_targets(config: TrainConfig) -> list[str]:
    """The names in `lora_targets`."""
    return [name.strip() for name in config.lora_targets.split(",")]


def _excluded(model: PreTrainedModel) -> list[str] | None:
    """What PEFT's all-linear would adapt and must not: see `_MAMBA`, and routers that are a kind of linear layer of their own."""
    routers = {name.rpartition(".")[2] for name, layer in model.named_modules() if _is_router(layer)}
    return sorted(routers | ({"out_proj"} if model.config.model_type in _MAMBA else set())) or None


def _is_router(layer: nn.Module) -> bool:
    """Whether a layer is a router that inherits from `nn.Linear` and returns more than a linear layer does."""
    return isinstance(layer, nn.Linear) and "Router" in type(layer).__name__


def without_dropout(model: PreTrainedModel) -> None:
    """Switches off the base's own dropout: acting has none, and learning must see the same distribution."""
    for path, layer in model.named_modules():
        if isinstance(layer, nn.Dropout) and "lora_dropout" not in path:
            layer.p = 0.0
        for name, value in vars(layer).items():
            if isinstance(value, float) and ("dropout" in name or name in ("jitter_noise", "input_jitter_noise")):
                setattr(layer, name, 0.0)


def learning_mode(model: nn.Module) -> None:
    """What `model.train()` does, but for routers, which would draw experts instead of taking the best: acting does not."""
    model.train()
    for layer in model.modules():
        if _is_router(layer):
            layer.eval()


def check_init_adapter(config: TrainConfig) -> None:
    """Raises `UserError` unless the adapter that a run starts from has the run's rank, layers, prompt format and switches."""
    name, revision = split_revision(config.init_adapter, None)
    found = fetch(list_files(located(name), revision))
    if found.adapter is None:
        raise UserError(f"init_adapter = {config.init_adapter!r} is not a LoRA adapter: expected adapter_config.json there")
    own = {
        "lora_rank": found.adapter.get("r"),
        "lora_alpha": found.adapter.get("lora_alpha"),
        "lora_dropout": float(found.adapter.get("lora_dropout") or 0),
        "rslora": bool(found.adapter.get("use_rslora")),
    }
    if others := {name: value for name, value in own.items() if getattr(config, name) != value}:
        flags = {name: f"--{name.replace('_', '-')} {value}" for name, value in others.items()}
        flags |= {"rslora": "--rslora" if own["rslora"] else "--no-rslora"} if "rslora" in others else {}
        raise UserError(
            f"init_adapter = {config.init_adapter!r} has {', '.join(f'{name} {value}' for name, value in others.items())}: "
            f"expected the same of the run, with {' '.join(flags.values())}"
        )
    stored = {"prompt_format": found.prompt_format, "chat_template_kwargs": found.chat_template_kwargs}
    run = {
        "prompt_format": config.prompt_format,
        "chat_template_kwargs": found.chat_template_kwargs | config.chat_template_kwargs,
    }
    if found.prompt_format and (others := {name: value for name, value in stored.items() if run[name] != value}):
        raise UserError(
            f"init_adapter = {config.init_adapter!r} was trained with {', '.join(f'{k} {v!r}' for k, v in others.items())}: "
            "expected the same of the run"
        )
    if config.lora_targets != "all-linear" and {*lora_targets(config)} != {*(found.adapter.get("target_modules") or ())}:
        raise UserError(
            f"lora_targets = {config.lora_targets!r}, and init_adapter = {config.init_adapter!r} has its own layers: "
            "expected --lora-targets all-linear, which takes those"
        )


def given_adapter(agent: LanguageModel, config: TrainConfig) -> PeftModel:
    """The adapter that a run starts from, its matrices in float32 and trainable."""
    adapted = cast(PeftModel, agent.model)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.float()
            parameter.requires_grad_(True)
    settings = adapted.peft_config["default"]
    settings.inference_mode = False
    settings.base_model_name_or_path = adapted.config._name_or_path
    settings.revision = split_revision(config.model, None)[1]
    return adapted
