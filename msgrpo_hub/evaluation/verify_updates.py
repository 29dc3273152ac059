"""Verification of what a training run made of its episodes: whole groups, advantages, and the episodes that it learned from."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from itertools import groupby
from typing import TYPE_CHECKING, Any

from msgrpo_hub.episode import Group
from msgrpo_hub.games import episode_seed
from msgrpo_hub.storage.schema import UpdateRules
from msgrpo_hub.storage.tables import Rollout

if TYPE_CHECKING:
    from msgrpo_hub.msgrpo import Selection

ROUNDING = 1e-5
"""Tolerance of advantages, relative to 1 or to their size: they are computed in float32."""

_SURE = ("top", "max-variance")
"""Samplers that draw nothing at random."""


def update_problems(rollouts: Sequence[Rollout], rules: UpdateRules) -> list[str]:
    """What disagrees with the rules of a run's updates, as readable messages.

    Args:
        rollouts: the episodes of whole updates, in the order in which they were stored.
        rules: how the run computed advantages and selected episodes.

    Raises:
        UserError: the advantages of steps are not one finite number per step.
    """
    messages = []
    for update, own in groupby(rollouts, key=lambda rollout: rollout.update):
        groups = [list(group) for _, group in groupby(own, key=lambda rollout: (rollout.episode.game_id, rollout.episode.seed))]
        found = _group_problems(int(update or 0), groups, rules) or _recomputed_problems(int(update or 0), groups, rules)
        messages += [f"update {update}: {problem}" for problem in found]
    return messages


def unchecked_updates(rules: UpdateRules | None) -> list[str]:
    """What cannot be computed again, as readable messages."""
    from msgrpo_hub.credit import CREDITS
    from msgrpo_hub.msgrpo import ADVANTAGE_SCALES, SAMPLERS

    if rules is None:
        return ["advantages and selection not checked: the file does not say how its run computed them"]
    if rules.advantage_scale not in ADVANTAGE_SCALES:
        return [f"advantages and selection not checked: the scale {rules.advantage_scale} is not built in"]
    own_credit, own_sampler = rules.credit not in CREDITS, rules.sampler not in SAMPLERS
    made, here = f"torch {rules.torch} on {rules.machine}", f"torch {version('torch')} on {platform.machine()}"
    elsewhere = not own_sampler and not _is_repeatable(rules)
    return [
        *([f"advantages of steps not checked: the credit {rules.credit} is not built in"] if own_credit else []),
        *([f"selection not checked: the sampler {rules.sampler} is not built in"] if own_sampler else []),
        *([f"only the number of selected episodes checked: they were drawn by {made}, this is {here}"] if elsewhere else []),
    ]


def _is_repeatable(rules: UpdateRules) -> bool:
    """Whether this machine draws the same random numbers as that of the run."""
    return rules.sampler in _SURE or (rules.torch, rules.machine) == (version("torch"), platform.machine())


def _group_problems(update: int, groups: Sequence[Sequence[Rollout]], rules: UpdateRules) -> list[str]:
    """Missing, additional or exchanged episodes."""
    if len(groups) != rules.groups:
        return [f"it has {len(groups)} groups, its run plays {rules.groups}"]
    messages, first = [], (update - 1) * rules.groups
    for number, group in enumerate(groups, start=first):
        episode = group[0].episode
        if [rollout.episode.member for rollout in group] != list(range(rules.group_size)):
            messages.append(f"the group of seed {episode.seed} has not each of its {rules.group_size} members once and in order")
        if episode.seed != episode_seed(episode.game_id, "train", number, rules.seed):
            messages.append(f"the group of seed {episode.seed} does not start where its run starts group {number}")
    return messages


def _recomputed_problems(update: int, groups: Sequence[Sequence[Rollout]], rules: UpdateRules) -> list[str]:
    """Advantages and selection that do not follow from the returns."""
    from msgrpo_hub.msgrpo import ADVANTAGE_SCALES

    if rules.advantage_scale not in ADVANTAGE_SCALES:
        return []
    expected, messages = _selection(update, groups, rules), []
    for group, advantages, of_steps in zip(groups, expected.advantages, expected.step_advantages, strict=True):
        for rollout, advantage, steps in zip(group, advantages.tolist(), of_steps, strict=True):
            place = f"seed {rollout.episode.seed}, member {rollout.episode.member}"
            if not _equal(rollout.advantage, advantage):
                messages.append(f"{place}: its advantage is {rollout.advantage}, the returns of its group give {advantage:g}")
            if not all(map(_equal, rollout.step_advantages or (), steps.tolist())):
                messages.append(f"{place}: its steps have other advantages than the credit {rules.credit} gives them")
    return [*messages, *_selection_problems(groups, expected, rules)]


def _selection(update: int, groups: Sequence[Sequence[Rollout]], rules: UpdateRules) -> Selection:
    """What the run must have computed; a credit that is not built in has given what is stored."""
    from msgrpo_hub.credit import CREDITS, CreditContext
    from msgrpo_hub.msgrpo import ADVANTAGE_SCALES, SAMPLERS, sample_top, select

    played = [
        Group(game_id=group[0].episode.game_id, seed=group[0].episode.seed, episodes=tuple(rollout.episode for rollout in group))
        for group in groups
    ]
    stored = [[rollout.step_advantages for rollout in group] for group in groups]
    credit: Any = CREDITS.get(rules.credit, lambda *_: stored)
    context = CreditContext(format_penalty=rules.format_penalty, scale=ADVANTAGE_SCALES[rules.advantage_scale], update=update)
    return select(played, credit, SAMPLERS.get(rules.sampler, sample_top), context, rules.selected_per_group, rules.seed)


def _selection_problems(groups: Sequence[Sequence[Rollout]], expected: Selection, rules: UpdateRules) -> list[str]:
    from msgrpo_hub.msgrpo import SAMPLERS

    if rules.sampler not in SAMPLERS:
        return []
    chosen = {(item.episode.game_id, item.episode.seed, item.episode.member) for item in expected.selected}
    messages = []
    for group in groups:
        keys = [(rollout.episode.game_id, rollout.episode.seed, rollout.episode.member) for rollout in group]
        stored, computed = [rollout.selected for rollout in group], [key in chosen for key in keys]
        agrees = stored == computed if _is_repeatable(rules) else stored.count(True) == sum(computed)
        if not agrees:
            messages.append(f"seed {group[0].episode.seed}: it selected other episodes than the sampler {rules.sampler}")
    return messages


def _equal(a: float | None, b: float) -> bool:
    return a is not None and abs(a - b) <= ROUNDING * max(1.0, abs(b))
