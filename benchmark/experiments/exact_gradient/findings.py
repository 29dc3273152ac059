"""What was found, from the raw results: the answer and the tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmark.experiments.exact_gradient.comparison import TARGET
from benchmark.experiments.exact_gradient.estimators import EXACT, MS_GRPO, Estimator
from benchmark.experiments.exact_gradient.results import (
    ALL,
    CONFIGURATION,
    EPISODES,
    PAPER,
    RESOLVED,
    Checkpoint,
    checkpoints_of,
    measured,
    relative,
    span,
)
from benchmark.experiments.experiment import Values
from msgrpo_hub.evaluation.tables import markdown

SAME = 0.001
"""Largest relative difference of |∇J| between two trainings of a checkpoint that count as the same policy."""

CREDITS = {
    "the exact advantage": EXACT,
    "the best of three critics": "critic, λ = 0.5",
    "anchor states": "anchor states / std",
    "reward-to-go": "reward-to-go / std",
}
"""Credits in words, the best first."""


def summary(points: Sequence[Checkpoint]) -> str:
    """A line per estimator, over all checkpoints."""
    head = ["estimator", "cosine of one update", "lowest of the expectation", "episodes needed", "seconds needed"]
    lines = [
        [
            estimator.name,
            span([point.of(estimator, "cosine") for point in points]),
            _lowest(points, estimator).partition(" (")[0],
            relative(points, Checkpoint.episodes, estimator),
            relative(points, Checkpoint.seconds, estimator),
        ]
        for estimator in measured(points)
    ]
    return markdown(head, lines)


def headline(rows: Mapping[str, Values]) -> str:
    """What better credit saves, and what selection costs, in episodes."""
    points = checkpoints_of(rows)
    if not points:
        return ""
    needed = ", ".join(f"{_needed(points, Estimator(credit))} with {name}" for name, credit in CREDITS.items())
    resolved = sum(point.resolves(ALL) for point in points)
    return (
        f"Episodes that an update needs until its cosine with the exact gradient is {TARGET:g}, as a multiple of what the paper's"
        f" credit needs: {needed}. Learning from the few that AAW selects needs {_needed(points, PAPER)} the episodes of learning"
        f" from all. These are geometric means over {resolved} of {len(points)} checkpoints of one seed per game, in brackets the"
        " least and the most at one of them; where these have 1 between them, the credit is better at one checkpoint and worse at"
        " another. At the other checkpoints the noise is too large to say."
    )


def answer(rows: Mapping[str, Values]) -> str:
    points = checkpoints_of(rows)
    found = [part(points) for part in (_credits, _history, _spread, _selection, _noise)]
    return "\n".join([_policy(points), "", *filter(None, found), LIMITS, "", summary(points), NOTES])


def _policy(points: Sequence[Checkpoint]) -> str:
    inside = max(1 - point.values["mass_outside"] for point in points)
    return (
        "The policy is the built-in base with an adapter, restricted to five replies: one per action, and one without an action"
        " (⊥). Its probabilities are renormalised over the five, so the policy, its Q and its gradient are exact. Without the"
        f" restriction the model would write something else: the five replies have a probability of at most {inside:.0e} in all."
        f" The {len(points)} checkpoints are those of runs of MS-GRPO with AAW on this policy."
    )


def _cosines(points: Sequence[Checkpoint], estimator: Estimator) -> str:
    return span([point.of(estimator, "cosine") for point in points], 2)


def _needed(points: Sequence[Checkpoint], estimator: Estimator) -> str:
    return relative(points, Checkpoint.episodes, estimator)


def _lowest(points: Sequence[Checkpoint], estimator: Estimator) -> str:
    """The lowest cosine of the expectation, with its standard error, and where it is."""
    lowest = min((point for point in points if point.resolves(ALL)), key=lambda point: point.of(estimator, "cosine_of_mean"))
    value, error = lowest.of(estimator, "cosine_of_mean"), lowest.error(estimator, "cosine_of_mean")
    return f"{value:.3f} ± {error:.3f} ({lowest.name} updates)"


def _credits(points: Sequence[Checkpoint]) -> str:
    critic = Estimator("critic, λ = 0.5")
    return (
        f"- **Credit.** With the exact advantage, one update has cosine {_cosines(points, Estimator(EXACT))} to the exact"
        " gradient,"
        f" {_cosines(points, critic)} with a critic (λ = 0.5, the best of three), {_cosines(points, ALL)} with the paper's credit"
        " on all episodes."
        f" For a cosine of {TARGET:g}, the exact advantage needs {_needed(points, Estimator(EXACT))} the episodes of the paper's"
        f" credit, the critic {_needed(points, critic)}, anchor states {_needed(points, Estimator('anchor states / std'))},"
        f" reward-to-go {_needed(points, Estimator('reward-to-go / std'))}."
    )


def _history(points: Sequence[Checkpoint]) -> str:
    """HGPO beside the credit that it refines; empty until it has been measured."""
    scaled, plain, state = (Estimator(name) for name in ("HGPO / std", "HGPO", "anchor states / std"))
    if scaled not in measured(points):
        return ""
    return (
        f"- **History.** HGPO compares a step with those that show the same last one, two and three boards, on any turn, and has"
        f" no term of the whole episode. It needs {_needed(points, scaled)} the episodes of the paper's credit and has a lowest"
        f" cosine of the expectation of {_lowest(points, scaled)}; without the standard deviation {_needed(points, plain)} and"
        f" {_lowest(points, plain)}. Anchor states, which compare the board and the turn, need {_needed(points, state)}. HGPO"
        f" was measured later, on the same episodes of checkpoints that were trained again{_moved(points)}."
    )


def _moved(points: Sequence[Checkpoint]) -> str:
    """Where training again did not give the same policy."""
    pairs = [(point, norm, point.values["gradient_norm"]) for point in points for norm in point.values["later_norms"]]
    moved = [f"{p.name} (|∇J| is {a:.3g}, not {b:.3g})" for p, a, b in pairs if abs(a / b - 1) > SAME]
    return f"; on another machine, other rounding made them other policies at {', '.join(moved)}" if moved else ""


def _spread(points: Sequence[Checkpoint]) -> str:
    plain = Estimator("whole episode")
    return (
        "- **The group's standard deviation.** Dividing by it turns the expected direction: the lowest cosine of the expectation"
        f" is {_lowest(points, ALL)}, and {_lowest(points, plain)} without it. Without it, {_needed(points, plain)} the episodes"
        " are needed."
    )


def _selection(points: Sequence[Checkpoint]) -> str:
    fixed, uniform = Estimator(MS_GRPO, "AAW, corrected"), Estimator(MS_GRPO, "uniform")
    kept, size = CONFIGURATION["selected_per_group"], CONFIGURATION["group_size"]
    acting, every, few = (
        np.mean([point.values["seconds"][part] for point in points]) for part in ("acting", "learning all", "learning selected")
    )
    return (
        f"- **AAW.** Selecting {kept} of {size} by AAW has a lowest cosine of the expectation of {_lowest(points, PAPER)}, and"
        f" {_lowest(points, fixed)} if corrected by inclusion probabilities. AAW needs {_needed(points, PAPER)} the episodes of"
        f" learning from all, AAW corrected {_needed(points, fixed)}, uniform selection {_needed(points, uniform)}. Per update,"
        f" acting takes {acting:.2f} s of processor time, learning from all episodes {every:.2f} s, and from the selected ones"
        f" {few:.2f} s: equal prompts and replies are computed once, so selection saves little here."
    )


def _noise(points: Sequence[Checkpoint]) -> str:
    """What is known of the checkpoints at which the reference is too noisy."""
    noisy = [point for point in points if not point.resolves(ALL)]
    head = (
        f"- **Noise.** {CONFIGURATION['simulated_updates']} updates resolve the expectation of the paper's credit to {RESOLVED:g}"
        f" at {len(points) - len(noisy)} of {len(points)} checkpoints; minima and costs are over these."
    )
    if not noisy:
        return head
    return (
        f"{head} At the others ({'; '.join(point.name for point in noisy)} updates), one update has cosine {_cosines(noisy, ALL)}"
        f" with the paper's credit, {_cosines(noisy, Estimator('critic, λ = 0.5'))} with the critic and"
        f" {_cosines(noisy, Estimator(EXACT))} with the exact advantage: credit matters most there. We take it that the luck"
        " of the game hides what the actions are worth; that was not measured."
    )


LIMITS = (
    "- **Limits.** One training seed per game. Each checkpoint is measured on the starts of the run's next update: J differs"
    " between checkpoints because the starts do, and the noise is that of play and selection alone. The critic first learned"
    f" from {CONFIGURATION['warmup']} updates of the same policy, which favours it over a critic within a run. The"
    f" limit of {RESOLVED:g} was chosen after the results were seen. Seconds are of a busy machine. Whether a better cosine"
    " learns faster is the question of [credit_curves](../credit_curves/README.md). HGPO is that of its authors' code without"
    " their discount; it is made for agents with a memory, and this policy has none. ECPO (arXiv 2606.05885) is not among the"
    " estimators: we found neither its code nor its full text, and summaries leave open how it standardises the advantage of an"
    " action and what its τ and ω are."
)

NOTES = f"""
Cosines are to the exact gradient: ranges, and minima with their standard errors, over checkpoints. The last two columns are
geometric means over checkpoints, with the least and the most, as multiples of the first line, of what it takes until the mean
of several updates has cosine {TARGET:g}; it is not reached where the expectation, as it was measured, has a lower cosine. Fewer
than {EPISODES} episodes mean fewer starts, with groups of the same size. Seconds are processor time of acting, crediting and
learning. A question mark below stands for an expectation with a standard error over {RESOLVED:g}."""


def tables(rows: Mapping[str, Values]) -> str:
    points = checkpoints_of(rows)
    games = dict.fromkeys(point.game for point in points)
    parts = ["## Checkpoints", checkpoint_table(points), "## Bias, variance and cosine at every checkpoint"]
    for game in games:
        of_game = [point for point in points if point.game == game]
        parts += [f"**{game}**: cosine of one update / of the expectation", by_checkpoint(of_game, _both_cosines)]
        parts += [f"**{game}**: bias / bias after the best scaling / variance", by_checkpoint(of_game, _errors)]
        parts += [f"**{game}**: episodes (processor seconds) until the cosine is {TARGET:g}", by_checkpoint(of_game, _cost)]
    return "\n\n".join(parts)


def checkpoint_table(points: Sequence[Checkpoint]) -> str:
    """The policies that the estimators were measured on."""
    head = ["game, updates", "J", "optimum", "prompts", "groups without variance", "⊥", "mass outside the replies", "norm of ∇J"]
    lines = []
    for point in points:
        values = point.values
        shares = [f"{values[name]:.3g}" for name in ("groups_without_variance", "no_action", "mass_outside", "gradient_norm")]
        lines.append([point.name, f"{values['value']:.3f}", f"{values['optimal']:.3f}", str(values["prompts"]), *shares])
    return markdown(head, lines)


def by_checkpoint(points: Sequence[Checkpoint], cell: Callable[[Checkpoint, Estimator], str]) -> str:
    """A table of estimators by checkpoints."""
    head = ["estimator", *(f"{point.update} updates" for point in points)]
    return markdown(head, [[e.name, *(cell(point, e) for point in points)] for e in measured(points)])


def _both_cosines(point: Checkpoint, estimator: Estimator) -> str:
    mean = f"{point.of(estimator, 'cosine_of_mean'):.3f}" if point.resolves(estimator) else "?"
    return f"{point.of(estimator, 'cosine'):.3f} / {mean}"


def _errors(point: Checkpoint, estimator: Estimator) -> str:
    if not point.resolves(estimator):
        return "?"
    return " / ".join(f"{point.of(estimator, name):.3g}" for name in ("bias", "scaled_bias", "variance"))


def _cost(point: Checkpoint, estimator: Estimator) -> str:
    if not point.resolves(estimator):
        return "?"
    episodes = point.episodes(estimator)
    return "not reached" if math.isinf(episodes) else f"{episodes:,.0f} ({point.seconds(estimator):.2g} s)"
