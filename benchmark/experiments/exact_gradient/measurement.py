"""One unit: every estimator against the exact gradient, at one checkpoint of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmark.experiments.exact_gradient.checkpoint import Starts, seconds_of_update, starts_of, trainer_at
from benchmark.experiments.exact_gradient.comparison import compare
from benchmark.experiments.exact_gradient.critic import Critic
from benchmark.experiments.exact_gradient.estimators import (
    ESTIMATORS,
    EXACT,
    LATER,
    Estimation,
    Estimator,
    ScaledCredit,
    built_in_credits,
    hgpo,
    returns_of,
)
from benchmark.experiments.exact_gradient.exact import Solution, gradient_weights, solve_policy
from benchmark.experiments.exact_gradient.exact_credit import ExactCredit
from benchmark.experiments.exact_gradient.policy import ExactPolicy
from benchmark.experiments.exact_gradient.selection import selections
from benchmark.experiments.exact_gradient.simulation import Simulator
from benchmark.experiments.experiment import Settings, Values
from msgrpo_hub.credit import CreditContext
from msgrpo_hub.episode import Group
from msgrpo_hub.games.solving import solve


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A policy with its exact gradients and values, on the starts that its run would take next."""

    starts: Starts
    policy: ExactPolicy
    simulator: Simulator
    solutions: Sequence[Solution]
    """Of each start."""

    def groups(self, size: int, rng: np.random.Generator) -> list[Group]:
        """A group from each start."""
        return self.starts.groups(self.simulator, size, rng)


def checkpoint_of(settings: Settings, scratch: Path) -> Checkpoint:
    """The checkpoint of a unit."""
    run = {name: value for name, value in settings.items() if name != "checkpoint"}
    folder = scratch / f"{settings['game']}-seed{settings['seed']}"
    trainer = trainer_at(run, settings["checkpoints"], settings["checkpoint"], folder)
    starts = starts_of(trainer, settings["checkpoint"] + 1)
    policy = starts.model.gradients(list(trainer.parameters.values()))
    simulator = starts.simulator(policy.probabilities)
    penalty = settings["format_penalty"]
    solutions = [solve_policy(starts.game, state, simulator.policy, penalty) for state in starts.states]
    return Checkpoint(starts=starts, policy=policy, simulator=simulator, solutions=solutions)


def measure(settings: Settings, scratch: Path) -> Values:
    """The values of a unit; see `experiment.py`."""
    checkpoint = checkpoint_of(settings, scratch)
    rng = np.random.default_rng([settings["seed"], settings["checkpoint"]])
    return later(checkpoint, settings, rng) if "estimators" in settings else first(checkpoint, settings, rng)


def first(checkpoint: Checkpoint, settings: Settings, rng: np.random.Generator) -> Values:
    """The policy of a checkpoint, `ESTIMATORS`, and what an update costs."""
    critics = {f"critic, λ = {trace:g}": Critic(trace) for trace in (1.0, 0.9, 0.5)}
    context = CreditContext(format_penalty=settings["format_penalty"])
    learning = warm_up(checkpoint, list(critics.values()), context, settings, rng)
    credits = {
        **built_in_credits(settings["format_penalty"]),
        **{name: ScaledCredit(critic, context) for name, critic in critics.items()},
        EXACT: ScaledCredit(ExactCredit(checkpoint.starts.game, checkpoint.solutions), context),
    }
    estimators = estimated(checkpoint, ESTIMATORS, credits, settings, rng)
    return {
        **description(checkpoint),
        "critics": {name: critic_errors(checkpoint, critic) for name, critic in critics.items()},
        **estimators,
        "seconds": {**seconds_of_update(checkpoint.starts, settings, settings["checkpoint"] + 1), "critic update": learning},
    }


def later(checkpoint: Checkpoint, settings: Settings, rng: np.random.Generator) -> Values:
    """Estimators that came later, on the episodes that `first` plays; the exact advantage again, as their control variate."""
    for _ in range(settings["warmup"]):
        checkpoint.groups(settings["group_size"], rng)
    penalty = settings["format_penalty"]
    exact = ScaledCredit(ExactCredit(checkpoint.starts.game, checkpoint.solutions), CreditContext(format_penalty=penalty))
    credits = {**built_in_credits(penalty), **hgpo(settings["history"], penalty), EXACT: exact}
    return estimated(checkpoint, [*LATER[settings["estimators"]], Estimator(EXACT)], credits, settings, rng)


def warm_up(
    checkpoint: Checkpoint, critics: Sequence[Critic], context: CreditContext, settings: Settings, rng: np.random.Generator
) -> float:
    """Lets the critics learn from updates of this policy. Returns the processor time of one critic for one update."""
    spent = 0.0
    for _ in range(settings["warmup"]):
        groups = checkpoint.groups(settings["group_size"], rng)
        returns = [returns_of(group, context) for group in groups]
        began = time.process_time()
        for critic in critics:
            critic.update(groups, returns, context)
        spent += time.process_time() - began
    return float(spent / (settings["warmup"] * len(critics)))


def estimated(
    checkpoint: Checkpoint,
    estimators: Sequence[Estimator],
    credits: Mapping[str, ScaledCredit],
    settings: Settings,
    rng: np.random.Generator,
) -> Values:
    """Simulates the updates and compares every estimator with the exact gradient."""
    estimation = Estimation(
        simulator=checkpoint.simulator,
        credits=credits,
        selections=selections(settings["inclusion_draws"]),
        count=settings["selected_per_group"],
        generator=torch.Generator().manual_seed(settings["seed"]),
    )
    exact = gradient_weights(checkpoint.solutions, checkpoint.simulator.policy, checkpoint.simulator.row).flatten()
    gram, updates = checkpoint.policy.gram(), settings["simulated_updates"]
    weights = np.empty((len(estimators), updates, len(exact)))
    idle = 0
    for number in range(updates):
        groups = checkpoint.groups(settings["group_size"], rng)
        idle += sum(len(set(returns_of(group, credits[EXACT].context).tolist())) == 1 for group in groups)
        weights[:, number] = estimation.weights(groups, estimators)
    control = weights[[estimator.credit for estimator in estimators].index(EXACT)]
    found = {e.name: compare(of, exact, gram, control) for e, of in zip(estimators, weights, strict=True)}
    return {
        "gradient_norm": float(np.sqrt(exact @ gram @ exact)),
        "groups_without_variance": idle / (updates * len(checkpoint.solutions)),
        "estimators": {name: {key: list(map(plain, pair)) for key, pair in of.items()} for name, of in found.items()},
        "credit_seconds": {name: seconds / updates for name, seconds in estimation.seconds.items()},
    }


def plain(value: float) -> float | None:
    """Six digits; None for what is infinite or unknown, which JSON does not have."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def description(checkpoint: Checkpoint) -> Values:
    """The policy at a checkpoint, over its starts."""
    visits = np.zeros(len(checkpoint.simulator.row_of))
    for solution in checkpoint.solutions:
        for state, chance in solution.visits.items():
            visits[checkpoint.simulator.row(state)] += chance
    optimal = [solve(checkpoint.starts.game, state).best(state) for state in checkpoint.starts.states]
    return {
        "value": float(np.mean([solution.value for solution in checkpoint.solutions])),
        "optimal": float(np.mean(optimal)),
        "prompts": len(visits),
        "no_action": float(visits @ checkpoint.policy.probabilities[:, -1] / visits.sum()),
        "mass_outside": float(visits @ checkpoint.policy.outside / visits.sum()),
    }


def critic_errors(checkpoint: Checkpoint, critic: Critic) -> float:
    """Σ d(s) (V̂(s) − V(s))² / Σ d(s) (V(s) − mean V)²: 0 for a perfect critic, 1 for the mean value of all states."""
    chances, exact, learned = zip(*((d, s.v[state], _value(checkpoint, critic, state)) for s in checkpoint.solutions
                                    for state, d in s.visits.items()), strict=True)  # fmt: skip
    weights, v = np.array(chances) / sum(chances), np.array(exact)
    return float(weights @ (np.array(learned) - v) ** 2 / (weights @ (v - weights @ v) ** 2))


def _value(checkpoint: Checkpoint, critic: Critic, state: Any) -> float:
    return critic.value((checkpoint.simulator.prompt_ids[checkpoint.simulator.row(state)], state.turn))
