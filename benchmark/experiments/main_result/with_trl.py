"""TRL's GRPO on the same base, with our `trl_rollout`: a row is one step with its own prompt.

Our engine samples, since TRL's `generate` would take most of the seconds. TRL computes the advantages and trains.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback, TrainerControl

from benchmark.experiments.experiment import Values
from benchmark.throughput.with_trl import trainer_of
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.episode import Episode
from msgrpo_hub.interop.trl import episode_return, rollout_dataset, trl_rollout
from msgrpo_hub.training.config import TrainConfig

MOST = 10
"""Most updates, in multiples of our run's."""


class Limit(TrainerCallback):
    """Ends the training after a number of processor seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.spent, self.began = seconds, 0.0, time.process_time()

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.began = time.process_time()

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        self.spent = time.process_time() - self.began
        control.should_training_stop |= self.spent >= self.seconds


def grpo(config: TrainConfig, seconds: float, adapter: Path) -> Values:
    """Trains with the settings of our run, on all episodes of a group, and saves the adapter.

    Args:
        config: of our run; after the warm-up the learning rate is constant, since the number of updates is unknown.
        seconds: processor seconds, after which no update starts.
        adapter: a new folder.
    """
    limit, played, updates = Limit(seconds), list[Episode](), MOST * config.updates
    trainer = trainer_of(
        config,
        {"max_steps": updates, "max_completion_length": config.max_new_tokens, "use_cpu": True, "bf16": False},
        rows=32,
        model=AutoModelForCausalLM.from_pretrained(pocket_path()),
        processing_class=AutoTokenizer.from_pretrained(pocket_path()),
        reward_funcs=episode_return,
        train_dataset=rollout_dataset(config.game, config.groups * updates, run=config.seed),
        rollout_func=trl_rollout(format_penalty=config.format_penalty, on_episodes=played.extend),
        callbacks=[limit],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.train()
    trainer.model.save_pretrained(adapter)
    return {"seconds": limit.spent, "training_episodes": len(played), "updates": trainer.state.global_step}
