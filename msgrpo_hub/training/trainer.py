"""The training loop's step: play, credit, select, learn; and the validation.

Of several processes, each plays its part of the episodes and trains on its part of the packs. All compute the same selection.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from peft import PeftModel
from torch import Tensor, nn
from tqdm import tqdm

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.credit import LearningCredit
from msgrpo_hub.downloads.names import POCKET
from msgrpo_hub.episode import Episode, Group
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.runner import advance, progress
from msgrpo_hub.games import Game, episode_seed, make_game, stream
from msgrpo_hub.models.attention import prefix_states
from msgrpo_hub.models.devices import return_freed_memory
from msgrpo_hub.models.weights import without_adapter
from msgrpo_hub.msgrpo import CreditContext, LossTerms, SelectedEpisode, Selection, k3, policy_loss, select
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training.acting import LARGEST_K3, LARGEST_RATIO, Actor, EngineActor, MakeActor, VllmActor
from msgrpo_hub.training.adapter import learning_mode, load_agent
from msgrpo_hub.training.batch import Pack, pack, to_samples
from msgrpo_hub.training.callbacks import Update
from msgrpo_hub.training.config import TrainConfig, parse_games
from msgrpo_hub.training.machine import sharding, token_budget
from msgrpo_hub.training.sft import ReplyData, Teacher, careful_thought
from msgrpo_hub.training.summary import Metrics, memory_mb, play_metrics, ratio_metrics, reply_rates

Start = tuple[str, int]
"""(game id, seed of the initial state)."""


class StartStates:
    """The games of a run, as `parse_games` reads them, and the initial states of its updates on boards of the train split.

    Successive groups play the games in `order`, spread as evenly as the weights allow (smooth weighted round robin).

    >>> StartStates("Snake-Solo-v1=3,Snake-Short-v1=1").order
    ['Snake-Solo-v1', 'Snake-Solo-v1', 'Snake-Short-v1', 'Snake-Solo-v1']
    """

    def __init__(self, games: str, seed: int = 0, groups: int = 1) -> None:
        weights = parse_games(games)
        self.games: dict[str, Game] = {name: make_game(name) for name in weights}
        self.seed, self.groups, self.order = seed, groups, list[str]()
        due = dict.fromkeys(weights, 0)
        for _ in range(sum(weights.values())):
            due = {name: value + weights[name] for name, value in due.items()}
            self.order.append(max(due, key=due.__getitem__))
            due[self.order[-1]] -= sum(weights.values())

    def of_update(self, index: int) -> list[Start]:
        """The starts of the groups of update `index`, from 1."""
        numbers = range((index - 1) * self.groups, index * self.groups)
        games = [(self.order[number % len(self.order)], number) for number in numbers]
        return [(game, episode_seed(game, "train", number, self.seed)) for game, number in games]


class Trainer:
    """A base model with a LoRA adapter, its optimiser, and the updates of a run. `make_actor` creates who plays the episodes."""

    def __init__(self, config: TrainConfig, accelerator: Accelerator, make_actor: MakeActor = EngineActor) -> None:
        self.config, self.accelerator = config, accelerator
        self.credit = deepcopy(config.choice("credit"))  # a credit that learns belongs to one run
        self.sampler, self.scale = config.choice("sampler"), config.choice("advantage_scale")
        self.normalisation = config.choice("loss_normalisation")
        self.starts, self.agent = StartStates(config.game, config.seed, config.groups), load_agent(config, accelerator)
        self.is_sharded = sharding() is not None
        self.actor: Actor = make_actor(self.agent)
        self.teacher: EngineActor | None = None
        self.data = ReplyData(config, self.agent) if config.sft else None
        self.ahead: Future[list[Episode]] | None = None  # the next update's episodes, which servers play already
        self.behind: dict[str, Tensor] = {}  # the weights that the servers play them with
        self.index, self.hidden = 0, True  # the current update; whether its progress bars are hidden
        if config.taught and not config.sft:
            player = ScriptedPolicy(SCRIPTED[config.teaching_player])
            thoughts = partial(careful_thought, cells=config.model != POCKET) if config.teacher_thoughts else None
            self.teacher = EngineActor(Teacher(self.agent, player, thoughts))
        self.model, self.engine, self.temperature = cast(PeftModel, self.agent.model), self.agent.engine, config.temperature
        self.parameters: dict[str, nn.Parameter] = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(self.parameters.values(), lr=config.learning_rate, weight_decay=0.0)

    def update(self, index: int) -> Update:
        """Update number `index`, from 1: plays the groups, credits their steps, selects episodes and learns from them."""
        # 1) G episodes from each initial state; in a taught update the teacher plays one, or the data has replies
        started, processor, config, self.index = time.monotonic(), time.process_time(), self.config, index
        taught = index <= config.taught
        if taught and self.data:
            groups = self.data.of_update(index)
        else:
            with without_adapter(self.model) if taught else nullcontext():  # a teacher's thoughts come from the base model
                groups = self.act(self.starts.of_update(index), self.teacher if taught else None)
        behind, self.behind = self.behind, {}
        if config.staleness and not taught and index < config.updates:
            self.ahead = self.start(self.starts.of_update(index + 1))
            self.behind = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        return_freed_memory()
        acted = time.monotonic()  # if servers play ahead, the update waited only for the rest of its episodes

        # 2) returns → advantages → credit → selection
        if taught:  # all episodes, with advantage 1
            ones = [[torch.ones(len(episode.steps)) for episode in group.episodes] for group in groups]
            selected = [SelectedEpisode(e, (1.0,) * len(e.steps)) for group in groups for e in group.episodes]
            plan = Selection([], CreditContext(), [torch.ones(len(group.episodes)) for group in groups], ones, selected)
        else:
            plan = self.select(groups, index)

        # 3) one optimiser step per minibatch
        count = 1 if taught else config.minibatches
        parts = [plan.selected[number::count] for number in range(count)]
        batches = [self.packed(part) for part in parts if part]
        with self.with_weights(behind):  # otherwise the distance would include an optimiser step
            learned = self.sampler_distance(batches, index) if not (taught or self.actor.is_exact) else {}
        if config.lora_dropout:  # the only use of torch's global generator; own credits and callbacks may use it too
            torch.manual_seed(int(stream(config.seed, "dropout", index).integers(2**62)))
        steps = [self.step(self.gradient(packs, taught), index) for packs in batches]
        return_freed_memory()
        nothing = dict.fromkeys(("kl", "clip_fraction", "gradient_norm", "learning_rate"), 0.0)
        learned |= {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]} if steps else nothing

        # 4) a credit that learns
        if isinstance(self.credit, LearningCredit) and not taught:
            own = self.credit.update(groups, plan.returns, plan.context)
            learned |= {f"credit/{name}": value for name, value in own.items()}

        # 5) metrics
        if taught:
            episodes = [episode for group in groups for episode in group.episodes]
            means = {name: sum(getattr(e, name) for e in episodes) / len(episodes) for name in ("reward", "success")}
            measured = {"sft_replies": float(len(episodes))} if self.data else {f"teacher_{n}": mean for n, mean in means.items()}
            measured["seconds_acting"] = acted - started
            learned = {name: learned[name] for name in ("loss", "gradient_norm", "learning_rate")}
        else:
            played = play_metrics(groups, plan.returns, plan.step_advantages, acted - started, len(self.starts.games))
            measured = {"temperature": self.temperature, **played}
        cost = {"seconds_training": time.monotonic() - acted, "processor_seconds": time.process_time() - processor}
        cost["memory_mb"] = memory_mb(self.model.device.type)
        metrics = {"update": float(index), **measured, **learned, **cost}
        return Update(index=index, groups=groups, selection=plan, metrics=metrics)

    def bar(self, task: str, total: int, unit: str = "episode") -> AbstractContextManager[tqdm[Any]]:
        """The progress bar of a part of an update."""
        return progress(f"  update {self.index}, {task}", total, unit=unit, hidden=self.hidden, brief=True)

    def act(self, starts: Sequence[Start], teacher: EngineActor | None = None) -> list[Group]:
        """Plays G episodes from each start, or one by a teacher. Each process plays its share; on servers the first plays all.

        If servers play ahead, this waits for their episodes.
        """
        actor, size = (teacher, 1) if teacher else (self.actor, self.config.group_size)
        processes, episodes = self.accelerator.num_processes, list[Episode]()
        with out_of_memory("sampling", "--max-rows"):
            if isinstance(actor, VllmActor):
                playing, self.ahead = self.ahead or self.start(starts), None
                with self.bar("sampling", len(starts) * size) as bar:
                    while wait([playing], timeout=0.5).not_done:
                        bar.update(actor.ended - bar.n)
                episodes = playing.result()
            else:
                keys = [(game, seed, member) for game, seed in starts for member in range(size)]
                mine = keys[self.accelerator.process_index :: processes]
                with self.bar("sampling", len(mine)) as bar:
                    episodes = actor.play(self.starts.games, mine, bar)
        if processes > 1:
            episodes = gather_object(episodes)
        played = {(episode.game_id, episode.seed, episode.member): episode for episode in episodes}
        return [
            Group(game_id=game, seed=seed, episodes=tuple(played[game, seed, member] for member in range(size)))
            for game, seed in starts
        ]

    def start(self, starts: Sequence[Start]) -> Future[list[Episode]]:
        """Publishes the weights on the servers and starts to play G episodes from each start. All processes call this."""
        actor = cast(VllmActor, self.actor)
        if self.accelerator.is_main_process:
            keys = [(game, seed, member) for game, seed in starts for member in range(self.config.group_size)]
            return actor.start(self.starts.games, keys)
        if self.is_sharded:  # takes part in what the first process computes
            actor.expect(self.starts.games)
            self.model.state_dict()  # as saving does: gathered weights are dropped in all processes or in none
        none = Future[list[Episode]]()
        none.set_result([])
        return none

    @contextmanager
    def with_weights(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """A context in which the trained parameters have these values."""
        views = {name: self.parameters[name].detach() for name in weights}
        before = {name: view.clone() for name, view in views.items()}
        try:
            for name, view in views.items():
                view.copy_(weights[name])
            yield
        finally:
            for name, view in views.items():
                view.copy_(before[name])

    def select(self, groups: Sequence[Group], index: int) -> Selection:
        """Returns, advantages, credit and selection of update `index`."""
        config = self.config
        context = CreditContext(format_penalty=config.format_penalty, scale=self.scale, update=index)
        return select(groups, self.credit, self.sampler, context, config.selected_per_group, config.seed)

    def packed(self, selected: Sequence[SelectedEpisode]) -> list[Pack]:
        """The steps of these episodes as batches for the engine: trees with shared prefixes, or rows."""
        samples = to_samples(selected, self.normalisation)
        longest = max((sample.completion for sample in samples), key=lambda reply: len(reply.prompt_ids))
        trees = self.engine.choose(longest.prompt_ids, self.config.max_new_tokens).shares_prefixes
        return pack(samples, token_budget(self.config, self.model), trees)

    def share(self, packs: Sequence[Pack]) -> Iterator[tuple[Pack, bool]]:
        """The packs of this process. With FSDP all processes get as many, and false beside one that counts elsewhere."""
        process, processes = self.accelerator.process_index, self.accelerator.num_processes
        rounds = -(-len(packs) // processes) * processes if self.is_sharded else len(packs)
        yield from ((packs[min(number, len(packs) - 1)], number < len(packs)) for number in range(process, rounds, processes))

    def gradient(self, packs: Sequence[Pack], taught: bool = False) -> Metrics:
        """Sums the gradient over all packs and processes; a taught update has the loss −Σ n·log p_θ. Returns the loss terms."""
        config, processes = self.config, self.accelerator.num_processes
        totals, ratios = torch.zeros(3, dtype=torch.float64), list[Tensor]()
        self.optimizer.zero_grad()
        learning_mode(self.model)
        refers, prefix, frozen = bool(config.beta) and not taught, packs[0].prefix, None
        own = [*self.share(packs)]
        with (
            self.bar("training", len(own), "batch") as bar,
            out_of_memory("training", "--token-budget, or add --gradient-checkpointing"),
            self.engine.learning(),
            self.engine.sharing(prefix) as states,
        ):
            if refers:
                with without_adapter(self.model):
                    frozen = prefix_states(self.model, prefix)
            for packed, is_mine in own:
                reference = None
                if refers:
                    with without_adapter(self.model):
                        reference = self.engine.log_probs(packed, self.temperature, frozen)
                log_probs = self.engine.log_probs(packed, self.temperature, states)
                if not is_mine:
                    (0.0 * log_probs.sum()).backward()
                    continue
                entries = (packed.tokens, packed.old_log_probs, packed.advantages, packed.weights)
                tokens, old, advantages, weights = (part.to(log_probs.device) for part in entries)
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
                        epsilon_low=config.epsilon_low,
                        epsilon_up=config.epsilon_up,
                        beta=config.beta,
                        largest_ratio=math.inf if self.actor.is_exact else LARGEST_RATIO,
                    )
                terms.loss.backward()
                totals += torch.stack([terms.loss.detach(), terms.kl, terms.clipped]).cpu().double()
                bar.update()
        self.model.eval()
        if processes > 1:
            totals = torch.stack(gather_object([totals])).sum(0)  # as objects: not every device has float64
            for parameter in self.parameters.values():
                mine = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                parameter.grad = self.accelerator.reduce(mine, "sum")
        loss, kl, clipped = totals.tolist()
        return {"loss": loss, "kl": kl, "clip_fraction": clipped, **ratio_metrics(ratios, processes)}

    def step(self, terms: Metrics, index: int) -> Metrics:
        """One step of the optimiser with the present gradient. Raises `UserError` if it is not finite."""
        rate = scheduled_rate(self.config, index)
        self.optimizer.param_groups[0]["lr"] = rate
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), self.config.gradient_clip).item()
        if not (math.isfinite(terms["loss"]) and math.isfinite(norm)):
            remedy = f"lower --learning-rate (it was {rate:g}); update {index - 1} is kept"
            given = f"the loss of update {index} is {terms['loss']} and its gradient norm {norm}"
            raise UserError(f"{given}, expected finite numbers: {remedy}")
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
        with out_of_memory("measuring", "--token-budget"), self.engine.sharing(packs[0].prefix) as states:
            for packed, is_mine in self.share(packs):
                log_probs = self.engine.log_probs(packed, self.temperature, states).cpu().double()[packed.tokens]
                weights = packed.weights.double() * is_mine
                totals += torch.stack([weights @ k3(packed.old_log_probs.double(), log_probs), weights.sum()])
        if self.accelerator.num_processes > 1:
            totals = torch.stack(gather_object([totals])).sum(0)
        distance = float(totals[0] / totals[1])
        if not distance <= LARGEST_K3:  # also for NaN
            given = f"the servers have another distribution than the trainer: k3 {distance:.3g} nats per token in update {index}"
            remedy = "so the same base and temperature. The weights are unchanged; continue with --resume"
            raise UserError(f"{given}; expected at most {LARGEST_K3}, {remedy}")
        return {"sampler_k3": distance}

    def evaluate(self) -> Metrics:
        """Plays the validation episodes with the current adapter: the mean over games, and each game if there are several."""
        agent, games = replace(self.agent, temperature=self.config.eval_temperature), self.starts.games
        size = self.config.eval_episodes
        keys = {name: [(episode_seed(name, "validation", k), 0) for k in range(size)] for name in games}
        with self.bar("validating", size * len(games)) as bar:
            wait([self.ahead] if self.ahead else [])  # for the tokenizer, which is not thread-safe
            played = {name: play_episodes(game, agent, keys[name], advance(bar, game, size)) for name, game in games.items()}
        rates = reply_rates([episode for episodes in played.values() for episode in episodes])
        metrics = {f"validation_{name}": rate for name, rate in rates.items() if name != "illegal_rate"}
        for figure in ("reward", "success"):
            means = {name: sum(getattr(e, figure) for e in episodes) / len(episodes) for name, episodes in played.items()}
            metrics[f"validation_{figure}"] = sum(means.values()) / len(means)
            metrics |= {f"validation_{figure}/{name}": mean for name, mean in means.items() if len(means) > 1}
        return metrics


def scheduled_rate(config: TrainConfig, index: int) -> float:
    """The learning rate of an update: linear warm-up × linear decay, over the taught updates and again over the rest."""
    before, last, peak = config.taught, config.updates, config.learning_rate
    if index <= config.taught:
        before, last, peak = 0, config.taught, config.sft_learning_rate or peak
    warm = min((index - before) / config.warmup, 1.0) if config.warmup else 1.0
    done = (index - before - 1) / max(last - before - 1, 1)
    return peak * warm * (1.0 - (1.0 - config.learning_rate_end) * done)


@contextmanager
def out_of_memory(task: str, flag: str) -> Iterator[None]:
    """Names the flag to lower if the GPU runs out of memory."""
    try:
        yield
    except RuntimeError as error:  # MPS raises this class, CUDA a subclass
        if "out of memory" not in str(error):
            raise
        reason = str(error).splitlines()[0]
        why = f"the GPU's memory is exhausted while {task} ({reason})"
        raise UserError(f"{why}: lower {flag}, then continue with --resume") from error
