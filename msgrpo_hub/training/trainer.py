"""The training loop: act, draw, learn; evaluate now and then; keep every update safe.

Several processes share the work and nothing else: each plays its part of the episodes and trains on its part of the
trees. In between, all of them see all episodes and compute the same advantages and the same drawn episodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

from msgrpo_hub.agent.prompt_formats import find_format
from msgrpo_hub.downloads.names import split_revision
from msgrpo_hub.episode import Episode, Group
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game, stream
from msgrpo_hub.models.attention import TRAINING, attention_of
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.weights import merged
from msgrpo_hub.msgrpo import NORMALISATIONS, SAMPLERS, LossTerms, policy_loss
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training.batch import Drawn, Pack, draw, pack, to_rows
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.log_probs import token_log_probs
from msgrpo_hub.training.metrics import Metrics, memory_mb, play_metrics
from msgrpo_hub.training.start_states import StartStates

Keep = Callable[[int, Sequence[Group], Sequence[Sequence[float]], Sequence[Drawn]], None]


class Trainer:
    """A base model with a LoRA adapter, its optimiser, and the steps of an update."""

    def __init__(self, config: TrainConfig, accelerator: Accelerator) -> None:
        self.config = config
        self.accelerator = accelerator
        self.game = make_game(config.game)
        self.starts = StartStates(config)
        self.agent = load_agent(config, accelerator)
        self.model = cast(PeftModel, self.agent.model)
        self.parameters: dict[str, nn.Parameter] = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(self.parameters.values(), lr=config.learning_rate, weight_decay=0.0)

    def update(self, index: int, keep: Keep | None = None) -> Metrics:
        """Update number `index` (the first is 1): plays the groups, draws episodes, takes one optimiser step.

        Last of all, `keep` gets (index, groups, advantages per group, drawn episodes), if it is given.
        """
        config = self.config
        started = time.monotonic()
        groups = self.act(self.starts.of_update(index))
        acted = time.monotonic()
        generator = torch.Generator().manual_seed(int(stream(config.seed, "drawing", index).integers(2**62)))
        advantages, drawn = draw(groups, config.drawn, SAMPLERS[config.sampler], config.format_penalty, generator)
        metrics = {"update": float(index), **play_metrics(groups, advantages, acted - started)}
        if drawn:
            metrics |= self.learn(pack(to_rows(drawn, NORMALISATIONS[config.normalisation]), config.token_budget), index)
        else:
            metrics |= {"kl": 0.0, "clip_fraction": 0.0, "gradient_norm": 0.0, "learning_rate": 0.0}
        metrics |= {"seconds_training": time.monotonic() - acted, "memory_mb": memory_mb()}
        if keep:
            keep(index, groups, advantages, drawn)
        return metrics

    def act(self, seeds: Sequence[int]) -> list[Group]:
        """Plays G episodes from each seed; every process plays its share and gets all."""
        size = self.config.group_size
        episode_keys = [(seed, member) for seed in seeds for member in range(size)]
        mine = episode_keys[self.accelerator.process_index :: self.accelerator.num_processes]
        with _memory("acting", "--max-rows"), merged(self.model):
            episodes: list[Episode] = play_episodes(self.game, self.agent, mine)
        if self.accelerator.num_processes > 1:
            episodes = gather_object(episodes)
        played = {(episode.seed, episode.member): episode for episode in episodes}
        return [
            Group(game_id=self.game.id, seed=seed, episodes=tuple(played[seed, member] for member in range(size)))
            for seed in seeds
        ]

    def learn(self, packs: Sequence[Pack], index: int) -> Metrics:
        """One optimiser step on the summed loss of all trees."""
        rate = learning_rate(self.config, index)
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.zero_grad()
        loss, kl, clipped = self.backward(packs)
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), self.config.gradient_clip).item()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise UserError(
                f"the loss of update {index} is {loss} and its gradient norm {norm}, expected finite numbers: "
                f"lower --learning-rate (it was {rate:g}); update {index - 1} is kept"
            )
        self.optimizer.step()
        return {"loss": loss, "kl": kl, "clip_fraction": clipped, "gradient_norm": norm, "learning_rate": rate}

    def backward(self, packs: Sequence[Pack]) -> tuple[float, float, float]:
        """Adds the gradient of all packs, over all processes. Returns loss, KL and clipped share."""
        totals = torch.zeros(3, dtype=torch.float64)
        self.model.train()
        knob = "--token-budget, or add --gradient-checkpointing"
        with _memory("training", knob), attention_of(self.model, TRAINING):  # checkpointing computes again in backward
            for packed in packs[self.accelerator.process_index :: self.accelerator.num_processes]:
                terms = self.loss(packed)
                terms.loss.backward()
                totals += torch.stack([terms.loss.detach(), terms.kl, terms.clipped]).double().cpu()
        self.model.eval()
        if self.accelerator.num_processes > 1:
            totals = self.accelerator.reduce(totals.to(self.accelerator.device), "sum").cpu()
            for parameter in self.parameters.values():
                own = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                parameter.grad = self.accelerator.reduce(own, "sum")
        loss, kl, clipped = totals.tolist()
        return loss, kl, clipped

    def loss(self, packed: Pack) -> LossTerms:
        """The loss terms of one tree; the reference is the base, that is the adapter switched off."""
        config = self.config
        reference = None
        if config.beta:
            with torch.no_grad(), self.model.disable_adapter():
                reference = token_log_probs(self.model, packed, config.temperature)
        log_probs = token_log_probs(self.model, packed, config.temperature)
        return policy_loss(
            log_probs,
            packed.old_log_probs.to(log_probs.device),
            reference,
            packed.weights.to(log_probs.device),
            epsilon_low=config.epsilon_low,
            epsilon_up=config.epsilon_up,
            beta=config.beta,
        )

    def evaluate(self) -> Metrics:
        """Plays the validation episodes, the same each time, with the adapter as it is."""
        agent = replace(self.agent, temperature=self.config.eval_temperature)
        episode_keys = [(seed, 0) for seed in self.starts.validation]
        with merged(self.model):
            episodes = play_episodes(self.game, agent, episode_keys)
        return {
            "validation_reward": sum(episode.reward for episode in episodes) / len(episodes),
            "validation_success": sum(episode.success for episode in episodes) / len(episodes),
        }


def load_agent(config: TrainConfig, accelerator: Accelerator) -> LanguageModel:
    """The base with a fresh LoRA adapter on all its linear layers."""
    agent = LanguageModel.from_pretrained(
        config.model,
        dtype=config.dtype,
        device=str(accelerator.device),
        chat_template=config.chat_template or None,
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
        prompt_format=find_format(config.prompt_format, may_import=True),  # a file's names were checked where it was read
    )
    torch.manual_seed(config.seed)
    lora = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
        revision=split_revision(config.model, None)[1],  # of the base: the adapter is loaded on just this commit
    )
    if config.gradient_checkpointing:
        agent.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        agent.model.enable_input_require_grads()
    return replace(agent, model=get_peft_model(agent.model, lora), max_rows=config.max_rows)


def learning_rate(config: TrainConfig, index: int) -> float:
    """Linear warm-up, then linear decay to `learning_rate_end` of the peak at the last update."""
    warm = min(index / config.warmup, 1.0) if config.warmup else 1.0
    done = (index - 1) / max(config.updates - 1, 1)
    return config.learning_rate * warm * (1.0 - (1.0 - config.learning_rate_end) * done)


@contextmanager
def _memory(what: str, knob: str) -> Iterator[None]:
    """Says which knob to turn when the GPU's memory is exhausted."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"the GPU's memory is exhausted while {what} ({reason}): lower {knob}, then go on with --resume"
        ) from error
