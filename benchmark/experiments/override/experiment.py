"""Does an adapter follow the words of the rules, and what cures it of its habits?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from benchmark.experiments.arms import arms_of, compare_arms
from benchmark.experiments.curves import Arms, differences, mean_with_interval, means_of
from benchmark.experiments.experiment import Values, configuration
from benchmark.experiments.headlines import LEAST

CONFIG = configuration("override")
COMPARED = compare_arms("override", "Does training on several rules make an adapter follow the words?")
POISON, NEW = "Snake-PoisonApple-v1", ("Snake-PoisonAppleBanana-v1", "Snake-Fire-v1")
"""The game whose words `several rules` has trained on and `plain game` has not, and those whose words no arm has trained on."""


CONTROL = ("Snake-Standard-v1", "Snake-Standard-v1:irrelevant-sentence")
"""The plain game, without and with a sentence more that says nothing."""

KEPT = 0.95
"""Least share of the skill on the plain game that counts as kept."""


def headline(rows: Mapping[str, Values]) -> str:
    """What training on several rules does where apples are poison, and where the words are new."""
    arms = arms_of(CONFIG, next(iter(CONFIG["updates"])), rows)
    if not {"plain game", "several rules", "before", "the base"} <= arms.keys() or len(arms["several rules"]) < LEAST:
        return ""
    poison, *new = (_side(arms, game) for game in (POISON, *NEW))
    verdict = (
        "An adapter that trains on several rules follows words that it has not trained on"
        if min(new) > 0
        else "An adapter that trains on several rules has not learned to read"
    )
    first = ("the base", "before")
    told = [f"{name} {mean_with_interval(arms[name], POISON)}" for name in (*first, *(arm for arm in arms if arm not in first))]
    change = {1: "is better than before", 0: "is not told apart from before", -1: "is worse than before"}
    others = ", ".join(f"on {game.removesuffix('-v1')} it {change[side]}" for game, side in zip(NEW, new, strict=True))
    return (
        f"{verdict}. Where apples are poison, an adapter that leaves them alone gets 0. Measured: {'; '.join(told)}. “before” is"
        f" a former `snake-standard`, from which all others go on. “several rules” has trained on these words, and"
        f" {change[poison]}; on games with words that no arm has trained on, {others}. {_criteria(arms)}"
    )


def _criteria(arms: Arms) -> str:
    """What was asked for beforehand: skill on the plain game kept, more than the base where apples are poison; and a control."""
    plain, told = CONTROL
    before, after, alone = (_mean(arms[name], plain) for name in ("before", "several rules", "plain game"))
    base, poison = (_mean(arms[name], POISON) for name in ("the base", "several rules"))
    kept = "kept" if after >= KEPT * before else "not kept"
    above = "more" if poison > base else "less"
    return (
        f"Its skill on the plain game is {kept} within 5 % ({after:.2f} of {before:.2f}; {alone:.2f} after training"
        f" on the plain game alone for as long), and where apples are poison it gets"
        f" {above} than the base ({poison:.2f} and {base:.2f}). The control, a sentence that says nothing, leaves it"
        f" {mean_with_interval(arms['several rules'], told)} on the plain game."
    )


def _mean(seeds: Mapping[int, Values], game: str) -> float:
    return float(np.mean([*means_of(seeds, game).values()]))


def _side(arms: Arms, game: str) -> int:
    """Whether “several rules” is above, below or like the adapter that it goes on from."""
    [difference] = differences({name: arms[name] for name in ("before", "several rules")}, game)
    return difference.side


EXPERIMENT = replace(COMPARED, headline=headline)
