"""The other side (b): TRL's `GRPOTrainer` (`pip install trl==1.16.0 datasets`) on the same games, through `rollout_func`.

How the work is matched. TRL learns from one row per episode: its prompt is the first prompt, its completion the rest of
the conversation, with the environment's tokens masked out. Acting is without memory, by the same lockstep `model.generate`
as side (a), so that generated tokens and environment steps have equal distributions. Sampling with the whole history, as
TRL's rows suggest, would only cost TRL more. TRL trains on every row of a group, since it cannot select G' of G;
`selected_per_group = group_size` on our side is the same amount of training. Each update is one optimiser step with the
same loss: token mean, clip 0.2, the same β, advantages per group.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from safetensors.torch import load_file
from transformers import TrainerCallback
from trl.trainer.grpo_trainer import GRPOTrainer

from benchmark.throughput.cases import Case, ForcedReply, adapter_file, make_trainer
from benchmark.throughput.machine import clock
from benchmark.throughput.naive import GeneratePolicy
from benchmark.trl_settings import grpo_config, lora_config
from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.episode import Episode, Group
from msgrpo_hub.games import stream
from msgrpo_hub.msgrpo import composite_return
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.training.metrics import Metrics

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

MICRO_BATCH = 8
"""Rows (episodes) per forward and backward pass; few, since they are long."""


class Clock(TrainerCallback):
    """Records the seconds of each optimiser step and of its acting."""

    def __init__(self) -> None:
        self.began = 0.0
        self.steps: list[Metrics] = []
        self.acting: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.began = clock()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        spent, acting = clock() - self.began, self.acting[-1]
        self.steps.append({"seconds_acting": acting, "seconds_training": spent - acting})


class TrlRun:
    """A `GRPOTrainer` on the episodes of a case.

    Args:
        case: what is played and learned.
        models: a folder with the shapes and adapters of cases.
        updates: optimiser steps.
    """

    def __init__(self, case: Case, models: Path, updates: int) -> None:
        self.ours = make_trainer(case, models)  # for its game, tokenizer and starts
        config = self.ours.config
        self.played: list[list[Group]] = []
        self.clock = Clock()
        seeds = [seed for index in range(1, updates + 1) for _, seed in self.ours.starts.of_update(index)]
        arguments = grpo_config(
            config,
            most_rows=MICRO_BATCH,
            use_cpu=not torch.cuda.is_available(),
            bf16=case.dtype == "bfloat16",
            max_steps=updates,
            max_completion_length=100_000,
        )
        base = self.ours.model.unload()
        self.trainer = cast(Any, GRPOTrainer)(
            model=base,
            args=arguments,
            processing_class=self._agent.tokenizer,
            reward_funcs=lambda composite, **_: composite,
            train_dataset=Dataset.from_list([{"prompt": str(seed)} for seed in seeds]),
            rollout_func=self._rollout,
            callbacks=[self.clock],
            peft_config=lora_config(config),
        )
        if case.policy_updates:
            parameters = dict(self.trainer.model.named_parameters())
            for name, tensor in load_file(adapter_file(case, models)).items():
                parameters[name].data.copy_(tensor)

    @property
    def _agent(self) -> Any:
        return self.ours.agent.policy if isinstance(self.ours.agent, ForcedReply) else self.ours.agent

    def updates(self) -> tuple[list[Metrics], list[list[Group]]]:
        """Trains. Returns the seconds of every update and the episodes played."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.trainer.train()
        return self.clock.steps, self.played

    def _rollout(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Plays one episode per prompt (the seed of its start) and turns each into one row."""
        began = clock()
        model = trainer.model
        was_training = model.training
        model.eval()
        self._agent.model = model
        policy: Any = GeneratePolicy(self._agent)
        if isinstance(self.ours.agent, ForcedReply):
            policy = ForcedReply(policy, self.ours.agent.actions)
            model.generation_config.eos_token_id = None  # which the trainer has set to the tokenizer's
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
        rules = len(self._rules)
        for step in episode.steps[1:]:
            turn, reply = step.completion.prompt_ids[rules:], step.completion.token_ids
            tokens += [*turn, *reply]
            mine += [0] * len(turn) + [1] * len(reply)
        returned = composite_return(episode, self.ours.config.format_penalty)
        return {
            "prompt_ids": list(first.prompt_ids),
            "completion_ids": tokens,
            "env_mask": mine,
            "logprobs": [0.0] * len(tokens),  # not used: with one optimiser step TRL takes those of the training pass
            "composite": returned,
        }

    @property
    def _rules(self) -> list[int]:
        """The tokens of the system message, which occurs once per conversation."""
        game = self.ours.game
        prompt = build_prompt(game, game.initial_state(stream(0, "initial_state")))
        tokenizer = self._agent.tokenizer
        text = tokenizer.apply_chat_template(prompt.messages[:1], tokenize=False)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def trl_updates(case: Case, models: Path, updates: int) -> tuple[list[Metrics], list[list[Group]]]:
    """Metrics and play of some updates by TRL."""
    return TrlRun(case, models, updates).updates()
