"""The model that is trained: a base with a LoRA adapter on all its linear layers, fresh or one to begin with."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from accelerate import Accelerator
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from msgrpo_hub.agent.prompt_formats import find_format
from msgrpo_hub.downloads.fetching import fetch, list_files
from msgrpo_hub.downloads.names import split_revision
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.loading import load_adapter
from msgrpo_hub.players.sample_play import prompts_of
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.curriculum import parse_games


def load_agent(config: TrainConfig, accelerator: Accelerator) -> LanguageModel:
    """The base with the adapter that will be trained.

    Raises:
        UserError: the base or the adapter cannot be loaded, or the adapter is not of this base, rank and alpha.
    """
    agent = LanguageModel.from_pretrained(
        config.model,
        dtype=config.dtype,
        device=training_device(config.device, accelerator),
        load_in_4bit=config.load_in_4bit,
        chat_template=config.chat_template or None,
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
        prompt_format=find_format(config.prompt_format, may_import=True),
        expected_prompts=prompts_of([make_game(name) for name in parse_games(config.game)]),
        chat_template_kwargs=config.chat_template_kwargs,
    )
    torch.manual_seed(config.seed)
    if config.gradient_checkpointing:
        agent.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        agent.model.enable_input_require_grads()
    adapted = given_adapter(agent, config) if config.init_adapter else get_peft_model(agent.model, fresh_lora(config))
    return replace(agent, model=adapted, max_rows=config.max_rows)


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


def fresh_lora(config: TrainConfig) -> LoraConfig:
    """LoRA on all linear layers, as the paper has it."""
    return LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
        revision=split_revision(config.model, None)[1],  # of the base: the adapter is loaded on just this commit
    )


def given_adapter(agent: LanguageModel, config: TrainConfig) -> PeftModel:
    """The adapter that a run begins with, its matrices in float32 and trainable."""
    name, revision = split_revision(config.init_adapter, None)
    found = fetch(list_files(name, revision))
    if found.adapter is None:
        raise UserError(f"init_adapter = {config.init_adapter!r} is not a LoRA adapter: expected adapter_config.json there")
    rank, alpha = found.adapter.get("r"), found.adapter.get("lora_alpha")
    if (rank, alpha) != (config.lora_rank, config.lora_alpha):
        raise UserError(
            f"init_adapter = {config.init_adapter!r} has rank {rank} and alpha {alpha}: "
            f"expected the same of the run, with --lora-rank {rank} --lora-alpha {alpha}"
        )
    adapted = load_adapter(cast(PreTrainedModel, agent.model), found)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.float()
            parameter.requires_grad_(True)
    settings = adapted.peft_config["default"]
    settings.inference_mode = False
    settings.base_model_name_or_path = agent.model.config._name_or_path
    settings.revision = split_revision(config.model, None)[1]
    return adapted
