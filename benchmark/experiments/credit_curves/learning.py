"""A run of the policy restricted to fixed replies, with one credit, for a given number of updates; its values are exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmark.experiments.exact_gradient.checkpoint import Starts, optimizer_step, starts_of, trainer_of
from benchmark.experiments.exact_gradient.critic import Critic
from benchmark.experiments.exact_gradient.estimators import (
    EXACT,
    Estimation,
    Estimator,
    ScaledCredit,
    built_in_credits,
    hgpo,
    returns_of,
)
from benchmark.experiments.exact_gradient.exact import Floats, solve_policy
from benchmark.experiments.exact_gradient.exact_credit import ExactCredit
from benchmark.experiments.exact_gradient.selection import selections
from benchmark.experiments.exact_gradient.simulation import Simulator
from benchmark.experiments.experiment import Settings, Values
from benchmark.experiments.training import drawn
from msgrpo_hub.credit import CreditContext, LearningCredit
from msgrpo_hub.episode import Group
from msgrpo_hub.training.schedule import learning_rate
from msgrpo_hub.training.start_states import StartStates
from msgrpo_hub.training.trainer import Trainer


def learning_curve(settings: Settings, scratch: Path) -> Values:  # noqa: ARG001
    """Trains for some updates, and evaluates in between.

    Args:
        settings: the game as `case`, `seed`, `updates` and `evaluations`, and those of config.toml.
        scratch: not used.

    Returns:
        `curve`: (update, mean of the exact J over the validation starts), the first before training; `seconds`, the processor
        time of all updates; and `test_rewards`: J of the last policy at each test start, the probability of success.
    """
    updates = settings["updates"]
    run = {**settings["settings"], "game": settings["case"], "seed": settings["seed"], "updates": updates}
    trainer, rng, credit = trainer_of(run), np.random.default_rng([run["seed"], 1]), Credit(run)
    trainer.config = replace(trainer.config, eval_episodes=run["eval_episodes"], test_episodes=run["test_episodes"])
    trainer.starts = StartStates(trainer.config)
    held_out = Starts(trainer, trainer.starts.validation(run["game"]))
    curve, seconds = drawn(
        updates,
        settings["evaluations"],
        lambda number: update(trainer, credit, number, rng),
        lambda: float(np.mean(values(held_out))),
    )
    return {"curve": curve, "seconds": seconds, "test_rewards": values(Starts(trainer, trainer.starts.test(run["game"])))}


class Credit:
    """The credit and the selection of a run."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.estimator = Estimator(settings["credit"], settings["selection"])
        penalty = settings["format_penalty"]
        self.context = CreditContext(format_penalty=penalty)
        self.critic = Critic(settings["trace"])
        self.credits = {
            **built_in_credits(penalty),
            **hgpo(settings["history"], penalty),
            "critic": ScaledCredit(self.critic, self.context),
        }

    def weights(self, starts: Starts, simulator: Simulator, groups: Sequence[Group], number: int) -> Floats:
        """(N · O,) the weight of each ∇log π(a | s) in the gradient."""
        if self.estimator.credit == EXACT:
            solutions = [solve_policy(starts.game, s, simulator.policy, self.context.format_penalty) for s in starts.states]
            self.credits[EXACT] = ScaledCredit(ExactCredit(starts.game, solutions), self.context)
        estimation = Estimation(
            simulator=simulator,
            credits=self.credits,
            selections=selections(self.settings["inclusion_draws"]),
            count=self.settings["selected_per_group"],
            generator=torch.Generator().manual_seed(self.settings["seed"] + number),
        )
        return estimation.weights(groups, [self.estimator])[0]

    def learn(self, groups: Sequence[Group]) -> None:
        """Lets a critic learn from the episodes, after they were credited."""
        credit = self.credits[self.estimator.credit].credit
        if isinstance(credit, LearningCredit):
            credit.update(groups, [returns_of(group, self.context) for group in groups], self.context)


def update(trainer: Trainer, credit: Credit, number: int, rng: np.random.Generator) -> None:
    """Acts, credits and learns; the first update is 1."""
    starts = starts_of(trainer, number)
    simulator = starts.simulator(starts.probabilities())
    groups = starts.groups(simulator, trainer.config.group_size, rng)
    weights = credit.weights(starts, simulator, groups, number)
    credit.learn(groups)
    optimizer_step(starts, weights, learning_rate(trainer.config, number))


def values(starts: Starts) -> list[float]:
    """The exact J of the policy as it is at each start: the expected reward, without format penalty."""
    simulator = starts.simulator(starts.probabilities())
    return [solve_policy(starts.game, state, simulator.policy, 0.0).value for state in starts.states]
