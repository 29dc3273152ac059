"""What arms show, in a sentence: which are above the first, which below, and which are not told apart from it.

Two arms are told apart where the 95 % interval of their difference over training seeds leaves out zero. With fewer than three
seeds there is no interval, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmark.experiments.curves import Arms, Difference, differences, means_of

NONE = "No other arm is told apart from it."


def headline(arms: Arms) -> str:
    """The first arm's mean test reward, and how each other one differs from it; empty while there are too few seeds."""
    told = [difference for difference in differences(arms) if difference.interval]
    if not told:
        return ""
    (first, seeds), *others = arms.items()
    means = means_of(seeds)
    above, below, rest = _parted(told)
    said = [f"“{first}” reaches {sum(means.values()) / len(means):.2f} over {len(means)} seeds."]
    said += [f"Better: {_listed(above)}."] if above else []
    said += [f"Worse: {_listed(below)}."] if below else []
    if rest:
        said.append(f"Not told apart from it: {len(rest)} other{'s' * (len(rest) > 1)}." if above or below else NONE)
    if few := len(others) - len(told):
        said.append(f"{few} more {'have' if few > 1 else 'has'} fewer than three seeds.")
    return " ".join(said)


def headline_of_games(arms: Arms, games: Sequence[str]) -> str:
    """On which games each other arm is above the first, below it, and not told apart; empty while there are too few seeds."""
    found: dict[str, dict[str, Difference]] = {}
    for game in games:
        for difference in differences(arms, game):
            if difference.interval:
                found.setdefault(difference.arm, {})[game.replace("-v1", "")] = difference
    first = next(iter(arms))
    return " ".join(f"“{arm}” against “{first}”: {_of_games(of_arm)}." for arm, of_arm in found.items())


def _of_games(differences: Mapping[str, Difference]) -> str:
    above, below, rest = _parted(list(differences.values()))
    names = {difference: game for game, difference in differences.items()}
    said = [
        f"{word} on {', '.join(f'{names[each]} ({each.mean:+.2f})' for each in part)}"
        for word, part in (("better", above), ("worse", below))
        if part
    ]
    said += [f"not told apart on {', '.join(names[each] for each in rest)}"] if rest else []
    return "; ".join(said)


def _parted(told: Sequence[Difference]) -> tuple[list[Difference], list[Difference], list[Difference]]:
    """Those above zero, below zero, and those whose interval holds it."""
    above = [each for each in told if each.interval and each.interval.low > 0]
    below = [each for each in told if each.interval and each.interval.high < 0]
    return above, below, [each for each in told if each not in above and each not in below]


def _listed(part: Sequence[Difference]) -> str:
    return ", ".join(f"“{each.arm}” ({each.mean:+.2f})" for each in part)
