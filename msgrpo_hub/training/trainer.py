"""The training loop's step: play, credit, select, learn; and the validation.

Several processes share the work: each plays its part of the episodes and trains on its part of the packs. All of them see
all episodes and compute the same advantages and the same selection.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from peft import PeftModel
from torch import Tensor, nn

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.credit import LearningCredit
from msgrpo_hub.episode import Episode, Group
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import stream
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.weights import without_adapter
from msgrpo_hub.msgrpo import (
    Credit,
    CreditContext,
    CreditFunction,
    LossNormalisation,
    LossTerms,
    Sampler,
    Scale,
    SelectedEpisode,
    Selection,
    credit_function,
    k3,
    policy_loss,
    select,
)
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training.acting import LARGEST_RATIO, Actor, EngineActor, MakeActor, Teacher, careful_thought, check_distance
from msgrpo_hub.training.adapter import learning_mode, load_agent
from msgrpo_hub.training.batch import Pack, largest_tree, pack, shared_prefix, to_samples
from msgrpo_hub.training.callbacks import Update
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.metrics import Metrics, mean_over_games, memory_mb, play_metrics, ratio_metrics, teacher_metrics
from msgrpo_hub.training.starts import Start, StartStates


@dataclass(frozen=True, kw_only=True)
class Method:
    """The settings of MS-GRPO; fields as in `TrainConfig`."""

    group_size: int
    selected_per_group: int
    sampler: Sampler
    credit: Credit | CreditFunction
    scale: Scale
    normalisation: LossNormalisation
    format_penalty: float
    epsilon_low: float
    epsilon_up: float
    beta: float


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """The settings of AdamW and of its batches; fields as in `TrainConfig`."""

    learning_rate: float
    learning_rate_end: float = 1.0
    warmup: int = 0
    updates: int = 1
    taught: int = 0
    minibatches: int = 1
    gradient_clip: float = 1.0
    token_budget: int = 2048

    def rate(self, index: int) -> float:
        """The learning rate of update `index`: linear warm-up × linear decay, over the taught updates and again over the rest."""
        before, last = (0, self.taught) if index <= self.taught else (self.taught, self.updates)
        warm = min((index - before) / self.warmup, 1.0) if self.warmup else 1.0
        done = (index - before - 1) / max(last - before - 1, 1)
        return self.learning_rate * warm * (1.0 - (1.0 - self.learning_rate_end) * done)


class Trainer:
    """A base model with a LoRA adapter, its optimiser, and the updates of a run.

    Args:
        agent: the model with its adapter; the loss uses its temperature.
        starts: the games and initial states.
        method: settings of MS-GRPO.
        optimisation: settings of the optimiser.
        actor: plays the episodes of updates.
        teacher: plays the episodes of taught updates.
        accelerator: the processes.
        seed: seed of the run.
        eval_temperature: sampling temperature of validation episodes.
    """

    def __init__(
        self,
        agent: LanguageModel,
        starts: StartStates,
        method: Method,
        optimisation: Optimisation,
        *,
        actor: Actor,
        teacher: Actor | None = None,
        accelerator: Accelerator,
        seed: int = 0,
        eval_temperature: float = 1.0,
    ) -> None:
        self.agent, self.starts, self.method, self.optimisation = agent, starts, method, optimisation
        self.actor, self.teacher, self.accelerator = actor, teacher, accelerator
        self.seed, self.temperature, self.eval_temperature = seed, agent.temperature, eval_temperature
        self.model, self.engine = cast(PeftModel, agent.model), agent.engine
        self.parameters: dict[str, nn.Parameter] = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(self.parameters.values(), lr=optimisation.learning_rate, weight_decay=0.0)

    @classmethod
    def from_config(cls, config: TrainConfig, accelerator: Accelerator, make_actor: MakeActor = EngineActor) -> Self:
        """Loads the model of a configuration and creates its trainer. Raises `UserError` if the model cannot be loaded."""
        credit = deepcopy(config.choice("credit"))  # a credit that learns belongs to one run
        credit_function(credit)
        variants = {"sampler": config.choice("sampler"), "credit": credit, "scale": config.choice("advantage_scale")}
        variants["normalisation"] = config.choice("loss_normalisation")
        agent, teacher = load_agent(config, accelerator), None
        if config.taught:
            thoughts = careful_thought if config.teacher_thoughts else None
            teacher = EngineActor(Teacher(agent, ScriptedPolicy(SCRIPTED[config.teaching_player]), thoughts))
        episodes = {"validation": config.eval_episodes, "test": config.test_episodes}
        return cls(
            agent,
            StartStates(config.game, seed=config.seed, groups=config.groups, **episodes),
            Method(**variants, **_fields(config, "group_size selected_per_group format_penalty epsilon_low epsilon_up beta")),
            Optimisation(
                **_fields(config, "learning_rate learning_rate_end warmup updates taught minibatches gradient_clip token_budget")
            ),
            actor=make_actor(agent),
            teacher=teacher,
            accelerator=accelerator,
            seed=config.seed,
            eval_temperature=config.eval_temperature,
        )

    def update(self, index: int) -> Update:
        """Update number `index`, from 1: plays the groups, credits their steps, selects episodes and learns from them."""
        # 1) G episodes from each initial state; in a taught update the teacher plays one
        started, method = time.monotonic(), self.method
        taught = index <= self.optimisation.taught
        if taught:
            assert self.teacher
            with without_adapter(self.model):  # thoughts come from the base model
                groups = self.played_by(self.teacher, self.starts.of_update(index), 1)
        else:
            groups = self.act(self.starts.of_update(index))
        acted = time.monotonic()

        # 2) returns → advantages → credit → selection
        plan = imitation(groups) if taught else self.select(groups, index)

        # 3) one optimiser step per minibatch
        count = 1 if taught else self.optimisation.minibatches
        parts = [plan.selected[number::count] for number in range(count)]
        batches = [self.packed(part) for part in parts if part]
        learned = self.sampler_distance(batches, index) if not (taught or self.actor.is_exact) else {}
        if any(isinstance(layer, nn.Dropout) and layer.p for layer in self.model.modules()):
            torch.manual_seed(int(stream(self.seed, "dropout", index).integers(2**62)))
        steps = []
        for packs in batches:
            steps.append(self.step(self.gradient(packs, taught), index))
        nothing = dict.fromkeys(("kl", "clip_fraction", "gradient_norm", "learning_rate"), 0.0)
        learned |= {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]} if steps else nothing

        # 4) a credit that learns
        if isinstance(method.credit, LearningCredit) and not taught:
            own = method.credit.update(groups, plan.returns, plan.context)
            learned |= {f"credit/{name}": value for name, value in own.items()}

        # 5) metrics
        if taught:
            measured = {**teacher_metrics(groups), "seconds_acting": acted - started}
            learned = {name: learned[name] for name in ("loss", "gradient_norm", "learning_rate")}
        else:
            played = play_metrics(groups, plan.returns, plan.step_advantages, acted - started, len(self.starts.games))
            measured = {"temperature": self.temperature, **played}
        cost = {"seconds_training": time.monotonic() - acted, "memory_mb": memory_mb(self.model.device.type)}
        metrics = {"update": float(index), **measured, **learned, **cost}
        return Update(
            index=index,
            groups=groups,
            advantages=plan.advantages,
            step_advantages=plan.step_advantages,
            selected=plan.selected,
            metrics=metrics,
        )

    def act(self, starts: Sequence[Start]) -> list[Group]:
        """Plays G episodes from each start."""
        return self.played_by(self.actor, starts, self.method.group_size)

    def played_by(self, actor: Actor, starts: Sequence[Start], size: int) -> list[Group]:
        """Groups of `size` episodes; every process plays its share and receives all."""
        keys = [(game, seed, member) for game, seed in starts for member in range(size)]
        mine = actor.share(keys, self.accelerator.process_index, self.accelerator.num_processes)
        with out_of_memory("sampling", "--max-rows"):
            episodes: list[Episode] = actor.play(self.starts.games, mine)
        if self.accelerator.num_processes > 1:
            episodes = gather_object(episodes)
        played = {(episode.game_id, episode.seed, episode.member): episode for episode in episodes}
        return [
            Group(game_id=game, seed=seed, episodes=tuple(played[game, seed, member] for member in range(size)))
            for game, seed in starts
        ]

    def select(self, groups: Sequence[Group], index: int) -> Selection:
        """Returns, advantages, credit and selection of update `index`."""
        method = self.method
        context = CreditContext(format_penalty=method.format_penalty, scale=method.scale, update=index)
        return select(groups, method.credit, method.sampler, context, method.selected_per_group, self.seed)

    def packed(self, selected: Sequence[SelectedEpisode]) -> list[Pack]:
        """The steps of these episodes as batches for the engine: trees with shared prefixes, or rows."""
        samples = to_samples(selected, self.method.normalisation)
        longest = max(samples, key=lambda sample: len(sample.token_ids))
        tail, width = len(longest.token_ids) - shared_prefix(samples), self.model.config.get_text_config().hidden_size
        trees = self.engine.shares_prefixes(longest.completion.prompt_ids, len(longest.completion.token_ids))
        return pack(samples, self.optimisation.token_budget, largest_tree(tail, width) if trees else 0)

    def gradient(self, packs: Sequence[Pack], taught: bool = False) -> Metrics:
        """Computes the gradient of an optimiser step, summed over all packs and processes. Returns loss, KL and clip fraction.

        Args:
            packs: the whole batch; each process takes its share.
            taught: the loss is −Σ n·log p_θ instead of the policy loss.
        """
        method, process, processes = self.method, self.accelerator.process_index, self.accelerator.num_processes
        totals, ratios = torch.zeros(3, dtype=torch.float64), list[Tensor]()
        self.optimizer.zero_grad()
        learning_mode(self.model)
        with out_of_memory("training", "--token-budget, or add --gradient-checkpointing"), self.engine.learning():
            for packed in packs[process::processes]:
                reference = None
                if method.beta and not taught:
                    with without_adapter(self.model):
                        reference = self.engine.log_probs(packed, self.temperature)
                log_probs = self.engine.log_probs(packed, self.temperature)
                tokens, old, advantages, weights = packed.entries(log_probs.device)
                if taught:
                    none = torch.zeros((), device=log_probs.device)
                    terms = LossTerms(-(weights * log_probs[tokens]).sum(), none, none)
                else:
                    ratios.append((log_probs.detach()[tokens] - old).exp().cpu())
                    terms = policy_loss(
                        log_probs[tokens],
                        old,
                        None if reference is None else reference[tokens],
                        advantages,
                        weights,
                        epsilon_low=method.epsilon_low,
                        epsilon_up=method.epsilon_up,
                        beta=method.beta,
                        largest_ratio=math.inf if self.actor.is_exact else LARGEST_RATIO,
                    )
                terms.loss.backward()
                totals += torch.stack([terms.loss.detach(), terms.kl, terms.clipped]).cpu().double()
        self.model.eval()
        if processes > 1:
            totals = torch.stack(gather_object([totals])).sum(0)  # as objects: not every device has float64
            for parameter in self.parameters.values():
                own = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                parameter.grad = self.accelerator.reduce(own, "sum")
        loss, kl, clipped = totals.tolist()
        return {"loss": loss, "kl": kl, "clip_fraction": clipped, **ratio_metrics(ratios, processes)}

    def step(self, terms: Metrics, index: int) -> Metrics:
        """One step of the optimiser with the present gradient. Raises `UserError` if it is not finite."""
        rate = self.optimisation.rate(index)
        self.optimizer.param_groups[0]["lr"] = rate
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), self.optimisation.gradient_clip).item()
        if not (math.isfinite(terms["loss"]) and math.isfinite(norm)):
            raise UserError(
                f"the loss of update {index} is {terms['loss']} and its gradient norm {norm}, expected finite numbers: "
                f"lower --learning-rate (it was {rate:g}); update {index - 1} is kept"
            )
        self.optimizer.step()
        return {**terms, "gradient_norm": norm, "learning_rate": rate}

    @torch.no_grad()
    def sampler_distance(self, batches: Sequence[Sequence[Pack]], index: int) -> Metrics:
        """The k3 estimate of KL(p_old ‖ p_θ) before the weights move, per token. Raises `UserError` if it is too large."""
        totals = torch.zeros(2, dtype=torch.float64)
        packs = [packed for batch in batches for packed in batch]
        if not packs:
            return {"sampler_k3": 0.0}
        self.model.eval()
        with out_of_memory("measuring", "--token-budget"):
            for packed in packs[self.accelerator.process_index :: self.accelerator.num_processes]:
                log_probs = self.engine.log_probs(packed, self.temperature).cpu().double()[packed.tokens]
                weights = packed.weights.double()
                totals += torch.stack([weights @ k3(packed.old_log_probs.double(), log_probs), weights.sum()])
        if self.accelerator.num_processes > 1:
            totals = torch.stack(gather_object([totals])).sum(0)
        distance = float(totals[0] / totals[1])
        check_distance(distance, index)
        return {"sampler_k3": distance}

    def evaluate(self) -> Metrics:
        """Plays the validation episodes of every game with the current adapter."""
        agent, metrics = replace(self.agent, temperature=self.eval_temperature), Metrics()
        for name, game in self.starts.games.items():
            episodes = play_episodes(game, agent, [(seed, 0) for seed in self.starts.validation(name)])
            metrics[f"validation_reward/{name}"] = sum(episode.reward for episode in episodes) / len(episodes)
            metrics[f"validation_success/{name}"] = sum(episode.success for episode in episodes) / len(episodes)
        return mean_over_games(metrics)


def _fields(config: TrainConfig, names: str) -> dict[str, Any]:
    return {name: getattr(config, name) for name in names.split()}


def imitation(groups: Sequence[Group]) -> Selection:
    """A selection of all episodes with advantage 1, for behaviour cloning."""
    ones = [[torch.ones(len(episode.steps)) for episode in group.episodes] for group in groups]
    selected = [SelectedEpisode(e, (1.0,) * len(e.steps)) for group in groups for e in group.episodes]
    return Selection([], CreditContext(), [torch.ones(len(group.episodes)) for group in groups], ones, selected)


@contextmanager
def out_of_memory(task: str, flag: str) -> Iterator[None]:
    """Names the flag to lower if the GPU runs out of memory."""
    try:
        yield
    except RuntimeError as error:  # MPS raises this class, CUDA a subclass
        if "out of memory" not in str(error):
            raise
        reason = str(error).splitlines()[0]
        raise UserError(
            f"the GPU's memory is exhausted while {task} ({reason}): lower {flag}, then continue with --resume"
        ) from error
