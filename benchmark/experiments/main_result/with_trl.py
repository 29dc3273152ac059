"""TRL's GRPO on the same base: its `GRPOTrainer` with our `trl_rollout`, so that a row is one step with its own prompt.

Our engine acts, which TRL's own `generate` would take most of the seconds for; TRL makes the advantages and learns.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback, TrainerControl
from trl.trainer.grpo_trainer import GRPOTrainer

from benchmark.experiments.experiment import Values
from benchmark.trl_settings import grpo_config, lora_config
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.episode import Episode
from msgrpo_hub.interop.trl import episode_return, rollout_dataset, trl_rollout
from msgrpo_hub.training.config import TrainConfig

MOST = 10
"""Most updates, in updates of our run."""

MICRO_BATCH = 32
"""Most rows per forward and backward pass."""


class Limit(TrainerCallback):
    """Ends the training after so many processor seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.spent, self.began = seconds, 0.0, time.process_time()

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.began = time.process_time()

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        self.spent = time.process_time() - self.began
        control.should_training_stop |= self.spent >= self.seconds


def grpo(config: TrainConfig, seconds: float, adapter: Path) -> Values:
    """Trains with the settings of a run of ours, from all episodes of a group, and saves the adapter.

    Args:
        config: of our run; its learning rate stays as it is after the warm-up, since the number of updates is not known.
        seconds: of the processor, after which no update begins.
        adapter: a new folder.
    """
    limit, played = Limit(seconds), list[Episode]()
    updates = MOST * config.updates
    arguments = grpo_config(
        config,
        most_rows=MICRO_BATCH,
        use_cpu=True,
        bf16=False,
        max_steps=updates,
        max_completion_length=config.max_new_tokens,
    )

    def keep(batch: Sequence[Episode]) -> None:
        played.extend(batch)

    trainer = cast(Any, GRPOTrainer)(
        model=AutoModelForCausalLM.from_pretrained(pocket_path()),
        processing_class=AutoTokenizer.from_pretrained(pocket_path()),
        args=arguments,
        reward_funcs=episode_return,
        train_dataset=rollout_dataset(config.game, config.groups * updates, run=config.seed),
        rollout_func=trl_rollout(format_penalty=config.format_penalty, on_episodes=keep),
        callbacks=[limit],
        peft_config=lora_config(config),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.train()
    trainer.model.save_pretrained(adapter)
    return {"seconds": limit.spent, "training_episodes": len(played), "updates": trainer.state.global_step}
