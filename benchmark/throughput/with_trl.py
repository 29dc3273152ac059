"""The other side (b): TRL's `GRPOTrainer` (`pip install trl==1.16.0 datasets`) on the same games, through `rollout_func`.

How the work is matched. TRL trains on one row per episode: its prompt is the first prompt, its completion the rest of the
conversation, with the environment's tokens masked out. Sampling uses the same lockstep `model.generate` as side (a), without
the history, so that generated tokens and environment steps have equal distributions. Sampling with the whole history, as TRL's
rows suggest, would only cost TRL more. TRL trains on every row of a group, since it cannot select G' of G;
`selected_per_group = group_size` on our side is the same amount of training. Each update is one optimiser step with the
same loss: token mean, clip 0.2, the same β, advantages per group.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from peft import LoraConfig
from safetensors.torch import load_file
from transformers import TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from benchmark.throughput.cases import Case, ForcedReply, adapter_file, make_trainer
from benchmark.throughput.naive import GeneratePolicy
from benchmark.throughput.rows import clock
from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.episode import Episode, Group
from msgrpo_hub.games import stream
from msgrpo_hub.msgrpo import composite_return
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.summary import Metrics

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


def trainer_of(config: TrainConfig, further: dict[str, Any], *, rows: int, **parts: Any) -> Any:
    """A `GRPOTrainer` with the settings of our run: one optimiser step per update on all G of every group, LoRA on all layers.

    Args:
        config: of our run; the learning rate is constant after the warm-up.
        further: other fields of `GRPOConfig`.
        rows: most rows per forward and backward pass; the largest divisor of an update's episodes up to it is used.
        parts: arguments of `GRPOTrainer`.
    """
    episodes = config.groups * config.group_size
    size = next(size for size in range(rows, 0, -1) if episodes % size == 0)
    arguments = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        seed=config.seed,
        gradient_checkpointing=False,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=episodes // size,
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
    lora = LoraConfig(r=config.lora_rank, lora_alpha=config.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    return cast(Any, GRPOTrainer)(args=arguments, peft_config=lora, **parts)


class Clock(TrainerCallback):
    """Records the seconds of each optimiser step and of its sampling."""

    def __init__(self) -> None:
        self.began, self.steps, self.acting = 0.0, list[Metrics](), list[float]()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.began = clock()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        spent, acting = clock() - self.began, self.acting[-1]
        self.steps.append({"seconds_acting": acting, "seconds_training": spent - acting})


class TrlRun:
    """A `GRPOTrainer` on the episodes of a case.

    Args:
        case: the game, sizes and replies.
        models: a folder with the shapes and adapters of cases.
        updates: optimiser steps.
    """

    def __init__(self, case: Case, models: Path, updates: int) -> None:
        self.ours = make_trainer(case, models)  # for its game, tokenizer and starts
        self.agent: Any = getattr(self.ours.agent, "policy", self.ours.agent)
        self.played: list[list[Group]] = []
        self.clock = Clock()
        seeds = [seed for index in range(1, updates + 1) for _, seed in self.ours.starts.of_update(index)]
        device = {"use_cpu": not torch.cuda.is_available(), "bf16": case.dtype == "bfloat16"}
        self.trainer = trainer_of(
            self.ours.config,
            {"max_steps": updates, "max_completion_length": 100_000, **device},
            rows=8,  # few, since they are long
            model=self.ours.model.unload(),
            processing_class=self.agent.tokenizer,
            reward_funcs=lambda composite, **_: composite,
            train_dataset=Dataset.from_list([{"prompt": str(seed)} for seed in seeds]),
            rollout_func=self._rollout,
            callbacks=[self.clock],
        )
        if case.policy_updates:
            parameters = dict(self.trainer.model.named_parameters())
            for name, tensor in load_file(adapter_file(case, models)).items():
                parameters[name].data.copy_(tensor)
        # The system message occurs once per conversation: its number of tokens
        prompt = build_prompt(self.ours.game, self.ours.game.initial_state(stream(0, "initial_state")), self.agent.prompt_format)
        text = self.agent.tokenizer.apply_chat_template(prompt.messages[:1], tokenize=False)
        self.rules = len(self.agent.tokenizer(text, add_special_tokens=False)["input_ids"])

    def updates(self) -> tuple[list[Metrics], list[list[Group]]]:
        """Trains. Returns the seconds of every update and the episodes played."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.trainer.train()
        return self.clock.steps, self.played

    def _rollout(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Plays one episode per prompt, the seed of its start, and turns each into one row."""
        began, model = clock(), trainer.model
        was_training = model.training
        model.eval()
        self.agent.model = model
        policy: Any = GeneratePolicy(self.agent)
        if isinstance(self.ours.agent, ForcedReply):
            policy = ForcedReply(policy, self.ours.agent.actions)
            model.generation_config.eos_token_id = None  # the trainer has set the tokenizer's
        size = self.ours.config.group_size
        groups = play_groups(self.ours.game, policy, [int(seed) for seed in prompts[::size]], size)
        model.train(was_training)
        self.played.append(groups)
        rows = [self.row(episode) for group in groups for episode in group.episodes]
        self.clock.acting.append(clock() - began)
        return {key: [row[key] for row in rows] for key in rows[0]}

    def row(self, episode: Episode) -> dict[str, Any]:
        """The conversation: the first prompt, then the user message and the reply of each turn."""
        first = episode.steps[0].completion
        tokens, mine = list(first.token_ids), [1] * len(first.token_ids)
        for step in episode.steps[1:]:
            turn, reply = step.completion.prompt_ids[self.rules :], step.completion.token_ids
            tokens += [*turn, *reply]
            mine += [0] * len(turn) + [1] * len(reply)
        return {
            "prompt_ids": list(first.prompt_ids),
            "completion_ids": tokens,
            "env_mask": mine,
            "logprobs": [0.0] * len(tokens),  # unused: with one optimiser step TRL takes the training pass's
            "composite": composite_return(episode, self.ours.config.format_penalty),
        }
