"""The checkpoints of a run of MS-GRPO whose replies are restricted to the fixed list, trained once and kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from filelock import FileLock
from safetensors.torch import load_file, save_file

from benchmark.experiments.exact_gradient.estimators import MS_GRPO, Estimation, Estimator, built_in_credits
from benchmark.experiments.exact_gradient.exact import Floats, observations_of
from benchmark.experiments.exact_gradient.policy import FixedReplies
from benchmark.experiments.exact_gradient.selection import selections
from benchmark.experiments.exact_gradient.simulation import Simulator
from benchmark.experiments.experiment import Settings
from msgrpo_hub.agent.policy import format_of
from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.episode import Group
from msgrpo_hub.games import stream
from msgrpo_hub.storage.files import write_atomically
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.schedule import learning_rate
from msgrpo_hub.training.trainer import Trainer

TRAINED = Estimator(MS_GRPO, "AAW")
"""The estimator of the run: the paper's."""


@dataclass
class Starts:
    """Some starts, those of the next update of a run or others, and the policy on all states that can be reached from them."""

    trainer: Trainer
    seeds: Sequence[int]

    @cached_property
    def game(self) -> Any:
        (game,) = self.trainer.starts.games.values()
        return game

    @cached_property
    def states(self) -> list[Any]:
        """The initial states."""
        return [self.game.initial_state(stream(seed, "initial_state")) for seed in self.seeds]

    @cached_property
    def model(self) -> FixedReplies:
        shown, prompt_format = observations_of(self.game, self.states), format_of(self.trainer.agent)
        assert not prompt_format.history  # a prompt is a function of the observation
        return FixedReplies(self.trainer.agent, [build_prompt(self.game, state, prompt_format) for state in shown.values()])

    def simulator(self, probabilities: Floats) -> Simulator:
        """Plays the game with these probabilities of the replies, (N, O)."""
        return Simulator(
            game=self.game,
            row_of={prompt.observation: row for row, prompt in enumerate(self.model.prompts)},
            probabilities=probabilities,
            replies=self.model.replies,
            prompt_ids=self.model.prompt_ids,
        )

    def probabilities(self) -> Floats:
        """(N, O) of the policy as it is."""
        with torch.no_grad():
            table = self.model.shared_log_probabilities(range(len(self.model.prompts)))
        return np.asarray(table.double().exp().numpy(), np.float64)

    def groups(self, simulator: Simulator, size: int, rng: np.random.Generator) -> list[Group]:
        """A group from each start."""
        return [simulator.group(state, size, rng) for state in self.states]


def starts_of(trainer: Trainer, update: int) -> Starts:
    """Those of an update of a run; the first update is 1."""
    return Starts(trainer, [seed for _, seed in trainer.starts.of_update(update)])


def trainer_of(settings: Settings) -> Trainer:
    """A fresh adapter with the settings of the quickstart; replies are an action alone."""
    names = ("game", "seed", "groups", "group_size", "selected_per_group", "learning_rate", "updates")
    fields = {name: settings[name] for name in names}
    return Trainer(replace(preset("quickstart"), prompt_format="action-only", **fields), Accelerator(cpu=True))


def trainer_at(settings: Settings, checkpoints: Sequence[int], checkpoint: int, folder: Path) -> Trainer:
    """A trainer with the adapter that a run has after some updates; its optimiser is a fresh one.

    Args:
        settings: of the run.
        checkpoints: all that are asked for of this run; they are trained in one go.
        checkpoint: the number of updates.
        folder: where they are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{checkpoint}.safetensors"
    with FileLock(folder / "training.lock"):
        if not path.exists():
            _train(settings, checkpoints, folder)
    trainer = trainer_of(settings)
    with torch.no_grad():
        for name, tensor in load_file(path).items():
            trainer.parameters[name].copy_(tensor)
    return trainer


def _train(settings: Settings, checkpoints: Sequence[int], folder: Path) -> None:
    trainer, rng = trainer_of(settings), np.random.default_rng([settings["seed"], 1])
    for update in range(max(checkpoints) + 1):
        if update:
            starts = starts_of(trainer, update)
            simulator = starts.simulator(starts.probabilities())
            groups = starts.groups(simulator, settings["group_size"], rng)
            learn(starts, simulator, groups, settings, TRAINED, update)
        if update in checkpoints:
            tensors = {name: parameter.detach().clone() for name, parameter in trainer.parameters.items()}
            write_atomically(folder / f"{update}.safetensors", partial(save_file, tensors))


def learn(
    starts: Starts, simulator: Simulator, groups: Sequence[Group], settings: Settings, estimator: Estimator, update: int
) -> None:
    """Update number `update` of MS-GRPO from some groups, on the policy restricted to the replies; without KL penalty."""
    estimation = Estimation(
        simulator=simulator,
        credits=built_in_credits(settings["format_penalty"]),
        selections=selections(settings["inclusion_draws"]),
        count=settings["selected_per_group"],
        generator=torch.Generator().manual_seed(settings["seed"] + update),
    )
    optimizer_step(starts, estimation.weights(groups, [estimator])[0], learning_rate(starts.trainer.config, update))


def optimizer_step(starts: Starts, weights: Floats, rate: float) -> None:
    """One optimiser step along a gradient.

    Args:
        starts: the policy.
        weights: (N · O,) the weight of each ∇log π(a | s) in the gradient.
        rate: the learning rate.
    """
    trainer, table = starts.trainer, torch.from_numpy(weights).reshape(len(starts.model.prompts), -1)
    rows = table.any(1).nonzero()[:, 0].tolist()
    trainer.optimizer.param_groups[0]["lr"] = rate
    trainer.optimizer.zero_grad()
    if rows:
        with trainer.engine.learning():
            loss = -(table[rows].float() * starts.model.shared_log_probabilities(rows)).sum()
            loss.backward()
        torch.nn.utils.clip_grad_norm_(trainer.parameters.values(), trainer.config.gradient_clip)
        trainer.optimizer.step()


def seconds_of_update(starts: Starts, settings: Settings, update: int, repeats: int = 3) -> dict[str, float]:
    """Processor time of acting, and of learning from all episodes of a group and from those selected; changes the adapter."""
    spent, rng = dict[str, float](), np.random.default_rng(0)
    for _ in range(repeats):
        began = time.process_time()
        simulator = starts.simulator(starts.probabilities())
        groups = starts.groups(simulator, settings["group_size"], rng)
        spent["acting"] = spent.get("acting", 0.0) + time.process_time() - began
        for name, estimator in (("learning all", Estimator(MS_GRPO)), ("learning selected", TRAINED)):
            began = time.process_time()
            learn(starts, simulator, groups, settings, estimator, update)
            spent[name] = spent.get(name, 0.0) + time.process_time() - began
    return {name: seconds / repeats for name, seconds in spent.items()}
