"""The training loop: act, credit, select, learn; evaluate now and then.

Several processes share the work and nothing else: each plays its part of the episodes and trains on its part of the
trees. In between, all of them see all episodes and compute the same advantages and the same selection.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from peft import PeftModel
from torch import Tensor, nn

from msgrpo_hub.agent.policy import format_of
from msgrpo_hub.credit import CreditContext, LearningCredit, Selection, as_credit, select
from msgrpo_hub.episode import Episode, Group
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import stream
from msgrpo_hub.models.weights import without_adapter
from msgrpo_hub.msgrpo import LossTerms, SelectedEpisode, k3, policy_loss
from msgrpo_hub.players.sample_play import longest_prompts
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training.acting import LARGEST_RATIO, Actor, EngineActor, MakeActor, check_distance
from msgrpo_hub.training.adapter import learning_mode, load_agent
from msgrpo_hub.training.batch import Pack, largest_tree, pack, to_samples
from msgrpo_hub.training.callbacks import Update
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.metrics import Metrics, mean_over_games, memory_mb, play_metrics, ratio_metrics, teacher_metrics
from msgrpo_hub.training.schedule import learning_rate
from msgrpo_hub.training.start_states import Start, StartStates
from msgrpo_hub.training.teacher import careful_thought, teacher_of

PackLoss = Callable[[Pack], LossTerms]
"""The loss terms of one tree."""


class Trainer:
    """A base model with a LoRA adapter, its optimiser, and the steps of an update."""

    def __init__(self, config: TrainConfig, accelerator: Accelerator, make_actor: MakeActor = EngineActor) -> None:
        self.config = config
        self.accelerator = accelerator
        self.starts = StartStates(config)
        self.sampler, self.credit = config.choice("sampler"), as_credit(deepcopy(config.choice("credit")))
        self.scale, self.normalisation = config.choice("advantage_scale"), config.choice("loss_normalisation")
        self.agent = load_agent(config, accelerator)
        self.temperature = config.temperature
        self.actor = make_actor(self.agent)
        thoughts = careful_thought if config.teacher_thoughts else None
        self.teacher = EngineActor(teacher_of(config.teaching_player, self.agent, thoughts)) if config.taught else None
        self.model, self.engine = cast(PeftModel, self.agent.model), self.agent.engine
        self.parameters: dict[str, nn.Parameter] = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self.ratios: list[Tensor] = []
        """p_θ / p_old of the tokens of an optimiser step, before it."""
        self.optimizer = torch.optim.AdamW(self.parameters.values(), lr=config.learning_rate, weight_decay=0.0)

    def chosen_engine(self) -> str:
        """The engine that acts and trains: `fast`, `plain` or `plain without cache`."""
        return self.agent.chosen_engine(longest_prompts(self.starts.games.values(), format_of(self.agent)))

    def update(self, index: int) -> Update:
        """Update number `index` (the first is 1): plays the groups, credits their steps, selects episodes, learns from them."""
        if index <= self.config.taught:
            return self.teach(index)
        started = time.monotonic()
        groups = self.act(self.starts.of_update(index))
        acted = time.monotonic()
        chosen = self.select(groups, index)
        learned = self.learn(chosen.selected, index)
        if isinstance(self.credit, LearningCredit):
            own = self.credit.update(groups, chosen.returns, chosen.context)
            learned |= {f"credit/{name}": value for name, value in own.items()}
        metrics = {
            "update": float(index),
            "temperature": self.temperature,
            **play_metrics(groups, chosen.returns, chosen.step_advantages, acted - started, len(self.starts.games)),
            **learned,
            **self.cost(acted),
        }
        return Update(
            index=index,
            groups=groups,
            advantages=chosen.advantages,
            step_advantages=chosen.step_advantages,
            selected=chosen.selected,
            metrics=metrics,
        )

    def teach(self, index: int) -> Update:
        """Update `index` of those that are taught: the most likely weights for the moves of a teacher, one episode a group."""
        assert self.teacher
        started = time.monotonic()
        with without_adapter(self.model):  # the thoughts are those of the base
            groups = self.played_by(self.teacher, self.starts.of_update(index), 1)
        acted = time.monotonic()
        selected = [SelectedEpisode(episode, (1.0,) * len(episode.steps)) for group in groups for episode in group.episodes]
        learned = self.fit([self.packed(selected)], index, self.likelihood)
        metrics = {
            "update": float(index),
            **teacher_metrics(groups),
            "loss": learned["loss"],
            "gradient_norm": learned["gradient_norm"],
            "learning_rate": learned["learning_rate"],
            "seconds_acting": acted - started,
            **self.cost(acted),
        }
        return Update(
            index=index,
            groups=groups,
            advantages=[torch.ones(1) for _ in groups],
            step_advantages=[[torch.ones(len(episode.steps)) for episode in group.episodes] for group in groups],
            selected=selected,
            metrics=metrics,
        )

    def cost(self, acted: float) -> Metrics:
        """What learning has cost since the time at which acting had ended."""
        return {"seconds_training": time.monotonic() - acted, "memory_mb": memory_mb(self.model.device.type)}

    def select(self, groups: Sequence[Group], index: int) -> Selection:
        """What update `index` makes of its episodes, and those that it learns from."""
        config = self.config
        context = CreditContext(format_penalty=config.format_penalty, scale=self.scale, update=index)
        return select(groups, self.credit, self.sampler, context, config.selected_per_group, config.seed)

    def act(self, starts: Sequence[Start]) -> list[Group]:
        """Plays G episodes from each start."""
        return self.played_by(self.actor, starts, self.config.group_size)

    def played_by(self, actor: Actor, starts: Sequence[Start], size: int) -> list[Group]:
        """Groups of an actor; every process plays its share and gets all."""
        keys = [(game, seed, member) for game, seed in starts for member in range(size)]
        mine = actor.share(keys, self.accelerator.process_index, self.accelerator.num_processes)
        with _memory("acting", "--max-rows"):
            episodes: list[Episode] = actor.play(self.starts.games, mine)
        if self.accelerator.num_processes > 1:
            episodes = gather_object(episodes)
        played = {(episode.game_id, episode.seed, episode.member): episode for episode in episodes}
        return [
            Group(game_id=game, seed=seed, episodes=tuple(played[game, seed, member] for member in range(size)))
            for game, seed in starts
        ]

    def learn(self, selected: Sequence[SelectedEpisode], index: int) -> Metrics:
        """One optimiser step for each minibatch of the selected episodes, which are dealt out; means of their metrics."""
        parts = [selected[number :: self.config.minibatches] for number in range(self.config.minibatches)]
        batches = [self.packed(part) for part in parts if part]
        distance = {} if self.actor.is_exact else {"sampler_k3": self.sampler_distance(batches, index) if batches else 0.0}
        if not batches:
            return {"kl": 0.0, "clip_fraction": 0.0, "gradient_norm": 0.0, "learning_rate": 0.0, **distance}
        return self.fit(batches, index, self.loss) | distance

    def fit(self, batches: Sequence[Sequence[Pack]], index: int, loss: PackLoss) -> Metrics:
        """One optimiser step for each batch; means of their metrics."""
        if self.config.lora_dropout:
            torch.manual_seed(int(stream(self.config.seed, "dropout", index).integers(2**62)))
        steps = [self.optimizer_step(packs, index, loss) for packs in batches]
        return {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}

    @torch.no_grad()
    def sampler_distance(self, batches: Sequence[Sequence[Pack]], index: int) -> float:
        """The k3 estimate of KL(p_old ‖ p_θ) before the weights move, in nats per token.

        Raises:
            UserError: it is too large for these replies to be learned from.
        """
        totals = torch.zeros(2, dtype=torch.float64)
        packs = [packed for batch in batches for packed in batch]
        self.model.eval()
        with _memory("measuring", "--token-budget"):
            for packed in packs[self.accelerator.process_index :: self.accelerator.num_processes]:
                log_probs = self.engine.log_probs(packed, self.temperature).cpu().double()[packed.tokens]
                weights = packed.weights.double()
                totals += torch.stack([weights @ k3(packed.old_log_probs.double(), log_probs), weights.sum()])
        if self.accelerator.num_processes > 1:
            totals = torch.stack(gather_object([totals])).sum(0)
        distance = float(totals[0] / totals[1])
        check_distance(distance, index)
        return distance

    def packed(self, selected: Sequence[SelectedEpisode]) -> list[Pack]:
        """The steps of these episodes, as the engine computes them: trees that share prefixes, or rows."""
        samples = to_samples(selected, self.normalisation)
        longest = max(samples, key=lambda sample: len(sample.token_ids)).completion
        trees = self.engine.shares_prefixes(longest.prompt_ids, len(longest.token_ids))
        width = self.model.config.get_text_config().hidden_size
        return pack(samples, self.config.token_budget, largest_tree(samples, width) if trees else 0)

    def optimizer_step(self, packs: Sequence[Pack], index: int, loss_of: PackLoss) -> Metrics:
        """One optimiser step on the summed loss of all trees."""
        rate = learning_rate(self.config, index)
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.zero_grad()
        self.ratios.clear()
        loss, kl, clipped = self.backward(packs, loss_of)
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), self.config.gradient_clip).item()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise UserError(
                f"the loss of update {index} is {loss} and its gradient norm {norm}, expected finite numbers: "
                f"lower --learning-rate (it was {rate:g}); update {index - 1} is kept"
            )
        self.optimizer.step()
        return {
            **{"loss": loss, "kl": kl, "clip_fraction": clipped, "gradient_norm": norm, "learning_rate": rate},
            **ratio_metrics(self.ratios, self.accelerator.num_processes),
        }

    def backward(self, packs: Sequence[Pack], loss_of: PackLoss) -> tuple[float, float, float]:
        """Adds the gradient of all packs, over all processes. Returns loss, KL and clipped share."""
        totals = torch.zeros(3, dtype=torch.float64)
        learning_mode(self.model)
        knob = "--token-budget, or add --gradient-checkpointing"
        with _memory("training", knob), self.engine.learning():
            for packed in packs[self.accelerator.process_index :: self.accelerator.num_processes]:
                terms = loss_of(packed)
                terms.loss.backward()
                totals += torch.stack([terms.loss.detach(), terms.kl, terms.clipped]).cpu().double()
        self.model.eval()
        if self.accelerator.num_processes > 1:
            totals = torch.stack(gather_object([totals])).sum(0)  # as objects: not every device has float64
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
            with without_adapter(self.model):
                reference = self.engine.log_probs(packed, self.temperature)
        log_probs = self.engine.log_probs(packed, self.temperature)
        tokens, *entries = (
            part.to(log_probs.device) for part in (packed.tokens, packed.old_log_probs, packed.advantages, packed.weights)
        )
        old, advantages, weights = entries
        self.ratios.append((log_probs.detach()[tokens] - old).exp().cpu())
        return policy_loss(
            log_probs[tokens],
            old,
            None if reference is None else reference[tokens],
            advantages,
            weights,
            epsilon_low=config.epsilon_low,
            epsilon_up=config.epsilon_up,
            beta=config.beta,
            largest_ratio=math.inf if self.actor.is_exact else LARGEST_RATIO,
        )

    def likelihood(self, packed: Pack) -> LossTerms:
        """The loss terms of one tree that is taught: −Σ n·log p_θ, at the temperature that the run then acts at."""
        log_probs = self.engine.log_probs(packed, self.temperature)
        tokens, weights = packed.tokens.to(log_probs.device), packed.weights.to(log_probs.device)
        none = torch.zeros((), device=log_probs.device)
        return LossTerms(loss=-(weights * log_probs[tokens]).sum(), kl=none, clipped=none)

    def evaluate(self) -> Metrics:
        """Plays the validation episodes of every game, the same each time, with the adapter as it is."""
        agent, metrics = replace(self.agent, temperature=self.config.eval_temperature), Metrics()
        for name, game in self.starts.games.items():
            episodes = play_episodes(game, agent, [(seed, 0) for seed in self.starts.validation(name)])
            metrics[f"validation_reward/{name}"] = sum(episode.reward for episode in episodes) / len(episodes)
            metrics[f"validation_success/{name}"] = sum(episode.success for episode in episodes) / len(episodes)
        return mean_over_games(metrics)


@contextmanager
def _memory(what: str, knob: str) -> Iterator[None]:
    """Names the flag to lower if the GPU runs out of memory."""
    try:
        yield
    except RuntimeError as error:  # of MPS: CUDA has a class of its own below this one
        if "out of memory" not in str(error):
            raise
        reason = str(error).splitlines()[0]
        raise UserError(
            f"the GPU's memory is exhausted while {what} ({reason}): lower {knob}, then continue with --resume"
        ) from error
