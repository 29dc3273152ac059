"""The settings of one of our runs as those of TRL's `GRPOTrainer`, for the sides and arms that it trains."""

from __future__ import annotations

import tempfile
from typing import Any

from peft import LoraConfig
from trl.trainer.grpo_config import GRPOConfig

from msgrpo_hub.training.config import TrainConfig


def grpo_config(config: TrainConfig, *, most_rows: int, **further: Any) -> GRPOConfig:
    """One optimiser step per update, from all G of every group, at a rate that stays as it is after the warm-up.

    Args:
        config: of our run.
        most_rows: in a forward and backward pass; fewer, where the episodes of an update need it.
        further: fields that are not our run's, or are TRL's alone.
    """
    episodes = config.groups * config.group_size
    rows = next(size for size in range(most_rows, 0, -1) if episodes % size == 0)
    return GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        seed=config.seed,
        gradient_checkpointing=False,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=episodes // rows,
        num_generations=config.group_size,
        beta=config.beta,
        epsilon=config.epsilon_low,
        temperature=config.temperature,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=config.warmup,
        max_grad_norm=config.gradient_clip,
        loss_type="dapo",
        shuffle_dataset=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        **further,
    )


def lora_config(config: TrainConfig) -> LoraConfig:
    """LoRA on all linear layers."""
    return LoraConfig(r=config.lora_rank, lora_alpha=config.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM")
