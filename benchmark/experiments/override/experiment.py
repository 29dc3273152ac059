"""Does an adapter follow the words of the rules, and what cures it of its habits?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmark.experiments.arms import Comparison
from benchmark.experiments.differences import differences, mean_with_interval, means_of
from benchmark.experiments.experiment import Values
from msgrpo_hub.evaluation.statistics import FEWEST_SEEDS

POISON, NEW = "Snake-PoisonApple-v1", ("Snake-PoisonAppleBanana-v1", "Snake-Fire-v1")
"""The game whose words only `several rules` has trained on, and the games whose words no arm has trained on."""
CONTROL = ("Snake-Standard-v1", "Snake-Standard-v1:irrelevant-sentence")
"""The plain game, without and with an extra sentence that says nothing."""
KEPT = 0.95
"""The share of the skill on the plain game that must remain."""


class Override(Comparison):
    """The headline says how training on several rules changes play where apples are poison, and where the words are new.

    Criteria that were set beforehand: skill on the plain game kept, and more than the base where apples are poison.
    """

    def headline(self, rows: Mapping[str, Values]) -> str:
        arms = self.arms(rows)
        if not {"plain game", "several rules", "before", "the base"} <= arms.keys() or len(arms["several rules"]) < FEWEST_SEEDS:
            return ""

        pair = {name: arms[name] for name in ("before", "several rules")}
        poison, *new = (differences(pair, game)[0].side for game in (POISON, *NEW))
        verdict = "follows words that it has not trained on" if min(new) > 0 else "has not learned to read"
        order = ("the base", "before", *(arm for arm in arms if arm not in ("the base", "before")))
        measured = "; ".join(f"{name} {mean_with_interval(arms[name], POISON)}" for name in order)
        change = {1: "is better than before", 0: "does not differ significantly from before", -1: "is worse than before"}
        others = ", ".join(f"on {game.removesuffix('-v1')} it {change[side]}" for game, side in zip(NEW, new, strict=True))
        plain, extra = CONTROL
        means = {(arm, game): np.mean([*means_of(of, game).values()]) for arm, of in arms.items() for game in (plain, POISON)}
        before, after, alone = (means[name, plain] for name in ("before", "several rules", "plain game"))
        base, reached = (means[name, POISON] for name in ("the base", "several rules"))
        return (
            f"An adapter that trains on several rules {verdict}. Where apples are poison, an adapter that avoids them gets 0."
            f" Measured: {measured}. “before” is a former `snake-standard`, the adapter that all others start from. “several"
            f" rules” has trained on these words, and {change[poison]}; with words that are new to every arm, {others}. Its skill"
            f" on the plain game is {'kept' if after >= KEPT * before else 'not kept'} within 5 % ({after:.2f} of {before:.2f};"
            f" {alone:.2f} after as much training on only the plain game), and where apples are poison it gets"
            f" {'more' if reached > base else 'less'} than the base ({reached:.2f} and {base:.2f}). With one more sentence that"
            f" says nothing, the control, it gets {mean_with_interval(arms['several rules'], extra)} on the plain game."
        )


EXPERIMENT = Override("override", "Does training on several rules make an adapter follow the words?")
