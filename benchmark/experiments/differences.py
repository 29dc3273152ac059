"""How arms differ over training seeds, in intervals and in sentences.

Two arms differ if the 95 % interval of their difference over training seeds excludes zero. Fewer than three seeds have no
interval, and no sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmark.experiments.experiment import Values
from msgrpo_hub.evaluation.statistics import FEWEST_SEEDS, LEVEL, NO_INTERVAL, Interval, method_interval, over_seeds, welch
from msgrpo_hub.games import make_game

NOTHING = "nothing yet"
"""Shown for a comparison without seeds."""
MOST_NAMED = 5
"""The headline names up to this many arms without a significant difference, and counts more."""

Arms = Mapping[str, Mapping[int, Values]]
"""Arm → seed → values of `training.learning_curve`."""


def updates_of(seeds: Mapping[int, Values]) -> int:
    """The number of updates of all seeds; 0 for an untrained base."""
    return sum(values["curve"][-1][0] for values in seeds.values())


def means_of(seeds: Mapping[int, Values], game: str = "") -> dict[int, float]:
    """Seed → mean test reward, on another game or by default on its own."""
    return {seed: float(np.mean(values["also"][game] if game else values["test_rewards"])) for seed, values in seeds.items()}


def with_interval(of_seeds: Sequence[float], form: str = ".3f", game: str = "") -> str:
    """The mean with its 95 % interval over training seeds, clipped to the possible rewards on a lake.

    >>> with_interval([0.0, 1.0]), with_interval([0.9, 1.0, 0.95], ".2f", "FrozenLake-NotSlippery-v1")
    ('0.500 (no interval)', '0.95 [0.826, 1.000]')
    """
    bounds = make_game(game).reward_range if game.startswith("FrozenLake") else None  # other games: means stay far from bounds
    found = over_seeds(dict(enumerate(of_seeds)), bounds)
    return f"{found.mean:{form}} {found.interval or NO_INTERVAL}"


def mean_with_interval(seeds: Mapping[int, Values], game: str) -> str:
    """An arm's mean reward on a game, with its interval if it is trained."""
    of_seeds = list(means_of(seeds, game).values())
    return with_interval(of_seeds, game=game) if updates_of(seeds) else f"{of_seeds[0]:.3f}"


class Difference(NamedTuple):
    """An arm minus the first arm, over the seeds that both have."""

    arm: str
    mean: float
    interval: Interval | None
    """95 %; None for fewer than three seeds, or if all differences are equal."""

    @property
    def side(self) -> int:
        """1 above zero, -1 below, 0 if the interval contains zero or does not exist."""
        return int(self.interval.low > 0) - int(self.interval.high < 0) if self.interval else 0

    def __str__(self) -> str:
        return f"{self.mean:+.3f} {self.interval or NO_INTERVAL}"


def differences(arms: Arms, game: str = "", level: float = LEVEL) -> list[Difference]:
    """The difference of every arm that shares a seed with the first arm, the largest first.

    Seed by seed; an untrained arm has played once, so its sample is its episodes (Welch's interval).

    Args:
        arms: the first one is the reference.
        game: compares rewards on this game instead of the arm's own.
        level: of the intervals.
    """
    (_, reference), *others = arms.items()
    means, found = means_of(reference, game), []
    for arm, seeds in others:
        own = means_of(seeds, game)
        if common := [seed for seed in own if seed in means]:
            apart = [own[seed] - means[seed] for seed in common]
            if updates_of(reference) and updates_of(seeds):
                interval = method_interval(apart, level)
            else:
                before, after = (_sample(each, common, game) for each in (reference, seeds))
                interval = welch(before, after, level) if min(len(before), len(after)) >= FEWEST_SEEDS else None
            found.append(Difference(arm, float(np.mean(apart)), interval))
    return sorted(found, key=lambda each: -each.mean)


def _sample(seeds: Mapping[int, Values], common: Sequence[int], game: str) -> NDArray[np.float64]:
    """The mean per seed of a trained arm; the episode rewards of an untrained one.

    Rewards of 0 and 1 get one of each more (Agresti and Caffo, 2000): where success is rare, a few episodes spread too little.
    """
    if updates_of(seeds):
        return np.array([means_of(seeds, game)[seed] for seed in common])
    values = seeds[common[0]]
    rewards = values["also"][game] if game else values["test_rewards"]
    return np.array([*rewards, 0.0, 1.0] if {*rewards} <= {0.0, 1.0} else rewards, dtype=float)


def after_holm(arms: Arms, level: float = LEVEL) -> list[str]:
    """The arms that still differ from the first with Holm's correction for the number of arms that have an interval.

    An interval of level 1 − s excludes zero if p < s; Holm's s are 0.05 / m, then 0.05 / (m − 1) and so on.
    """
    family = sum(each.interval is not None for each in differences(arms))
    kept: list[str] = []
    while len(kept) < family:
        strict = differences(arms, level=1 - (1 - level) / (family - len(kept)))
        found = [each.arm for each in strict if each.side and each.arm not in kept]
        if not found:
            break
        kept += found
    return kept


def findings(arms: Arms, game: str = "") -> str:
    """The mean of the first arm, and every difference from it; `game` as for `differences`."""
    first, reference = next(iter(arms.items()))
    others = "; ".join(f"{each.arm} {each}" for each in differences(arms, game))
    return f"{first}: {np.mean(list(means_of(reference, game).values())):.3f}. Against it: {others or NOTHING}."


def headline(arms: Arms) -> str:
    """The first arm's mean test reward, and how the others differ from it; empty if there are too few seeds."""
    found = [difference for difference in differences(arms) if difference.interval]
    if not found:
        return ""
    (first, seeds), *others = arms.items()
    means, named = means_of(seeds), dict[int, str]()
    for side in (1, -1, 0):
        named[side] = ", ".join(f"“{each.arm}” ({each.mean:+.2f} {each.interval})" for each in found if each.side == side)
    rest = [each.interval for each in found if each.interval and not each.side]
    if len(rest) > MOST_NAMED:
        low, high = min(interval.low for interval in rest), max(interval.high for interval in rest)
        named[0] = f"{len(rest)} others, whose intervals span {low:+.2f} to {high:+.2f}"
    same, reaches = len(rest) == len(found), f"{sum(means.values()) / len(means):.2f} over {len(means)} seeds"
    said = f"{'No significant difference. ' * same}“{first}” reaches {reaches}."
    said += f" Better: {named[1]}." if named[1] else ""
    said += f" Worse: {named[-1]}." if named[-1] else ""
    if len(found) > 1 and not same:
        kept = ", ".join(f"“{arm}”" for arm in after_holm(arms)) or "none"
        said += f" After Holm's correction for {len(found)} arms: {kept}."
    said += f" Not significant: {named[0]}." if rest else ""
    few = len(others) - len(found)
    return f"{said} {few} more {'have' if few > 1 else 'has'} fewer than three seeds." if few else said


def headline_of_games(arms: Arms, games: Sequence[str]) -> str:
    """On which games each other arm is better or worse than the first, or shows no difference; empty with too few seeds."""
    words = {1: "better on", -1: "worse on", 0: "no significant difference on"}
    found: dict[str, dict[int, list[str]]] = {}
    for game in games:
        for each in differences(arms, game):
            if each.interval:
                name = game.replace("-v1", "") + (f" ({each.mean:+.2f})" if each.side else "")
                found.setdefault(each.arm, {side: [] for side in words})[each.side].append(name)
    parts = {arm: [f"{words[side]} {', '.join(named)}" for side, named in sides.items() if named] for arm, sides in found.items()}
    return " ".join(f"“{arm}” against “{next(iter(arms))}”: {'; '.join(told)}." for arm, told in parts.items())
