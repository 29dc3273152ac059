"""What arms show, in a sentence: which are above the first, which below, and which are not told apart from it.

Two arms are told apart where the 95 % interval of their difference over training seeds leaves out zero. With fewer than three
seeds there is no interval, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.experiments.curves import Arms, Difference, after_holm, differences, means_of

LEAST = 3
"""Seeds without which nothing is said."""


MOST_TOLD = 5
"""Arms that are named though they are not told apart; more are only counted."""


def headline(arms: Arms) -> str:
    """The first arm's mean test reward, and how each other one differs from it; empty while there are too few seeds."""
    told = [difference for difference in differences(arms) if difference.interval]
    if not told:
        return ""
    (first, seeds), *others = arms.items()
    means = means_of(seeds)
    above, below, rest = ([each for each in told if each.side == side] for side in (1, -1, 0))
    said = [] if above or below else ["No difference is shown."]
    said.append(f"“{first}” reaches {sum(means.values()) / len(means):.2f} over {len(means)} seeds.")
    for word, part in (("Better", above), ("Worse", below)):
        said += [f"{word}: {_named(part)}."] if part else []
    if (above or below) and len(told) > 1:
        kept = ", ".join(f"“{arm}”" for arm in after_holm(arms)) or "none"
        said.append(f"After Holm's correction for {len(told)} arms: {kept}.")
    if rest:
        said.append(f"Not told apart from it: {_named(rest) if len(rest) <= MOST_TOLD else _counted(rest)}.")
    if few := len(others) - len(told):
        said.append(f"{few} more {'have' if few > 1 else 'has'} fewer than three seeds.")
    return " ".join(said)


def _counted(found: Sequence[Difference]) -> str:
    """How many, and what all their intervals span."""
    intervals = [each.interval for each in found if each.interval]
    low, high = min(each.low for each in intervals), max(each.high for each in intervals)
    return f"{len(found)} others, whose intervals span {low:+.2f} to {high:+.2f}"


def _named(found: Sequence[Difference]) -> str:
    return ", ".join(f"“{each.arm}” ({each.mean:+.2f} {each.interval})" for each in found)


def headline_of_games(arms: Arms, games: Sequence[str]) -> str:
    """On which games each other arm is above the first, below it, and not told apart; empty while there are too few seeds."""
    found: dict[str, list[tuple[str, Difference]]] = {}
    for game in games:
        for difference in differences(arms, game):
            if difference.interval:
                found.setdefault(difference.arm, []).append((game.replace("-v1", ""), difference))
    first = next(iter(arms))
    return " ".join(f"“{arm}” against “{first}”: {_of_games(of_arm)}." for arm, of_arm in found.items())


def _of_games(found: Sequence[tuple[str, Difference]]) -> str:
    sides = {
        side: [f"{game} ({each.mean:+.2f})" if side else game for game, each in found if each.side == side] for side in (1, -1, 0)
    }
    words = {1: "better on", -1: "worse on", 0: "not told apart on"}
    return "; ".join(f"{words[side]} {', '.join(games)}" for side, games in sides.items() if games)
