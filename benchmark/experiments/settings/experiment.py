"""Which settings decide the result, and its spread over seeds? The presets are chosen by this experiment."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmark.experiments.arms import Comparison, best_on_validation
from benchmark.experiments.differences import headline, means_of
from benchmark.experiments.experiment import Values
from benchmark.experiments.spread import boards_of_tests, by_chance, causes
from msgrpo_hub.training.config import preset

CASE = "quickstart"
COMMON = 3
"""The number of seeds, the first ones, that every arm has."""
NOTHING = 0.1
"""A run with a lower test reward has learned nothing."""
IN_WORDS = {
    "setting": "from the setting",
    "seed": "from the seed, whatever the setting",
    "both": "from luck of a seed that differs from setting to setting",
    "chance": "from chance in the test episodes",
}


class LakeSettings(Comparison):
    """The headline names the best arm by validation reward, the runs that learned nothing, and the causes of the spread."""

    def headline(self, rows: Mapping[str, Values]) -> str:
        every, first = self.arms(rows), self.config["seeds"][:COMMON]
        arms = {arm: {seed: seeds[seed] for seed in first} for arm, seeds in every.items() if seeds.keys() >= set(first)}
        if len(arms) < 2:
            return ""
        best, validation = best_on_validation(arms)
        test = np.mean(list(means_of(arms[best]).values()))
        chosen = f"; `{CASE}` has its settings" if self.is_preset(best, ("eval_episodes", "test_episodes")) else ""
        failed = {arm: sum(mean < NOTHING for mean in means_of(seeds).values()) for arm, seeds in every.items()}
        said = ", ".join(f"{count} of {len(every[arm])} with “{arm}”" for arm, count in failed.items() if count)
        failures = f"Runs that learned nothing: {said}. " if said else ""

        # The variance of the test rewards of arms that learned with all of the first seeds
        learned = {arm: means for arm, seeds in arms.items() if min((means := means_of(seeds)).values()) > NOTHING}
        rewards = [values["test_rewards"] for arm in learned for values in arms[arm].values()]
        chance = by_chance(rewards, boards_of_tests(preset(CASE).game, len(rewards[0])))
        shares = causes(np.array([list(means.values()) for means in learned.values()]), (chance or 0.0) ** 2).shares()
        parts = ", ".join(f"{share:.0%} come {IN_WORDS[name]}" for name, share in shares.items())
        left = len(arms) - len(learned)
        apart = f" (leaving out {left} with a seed that learned nothing)" if left else ""
        return (
            f"On the validation boards “{best}” is best of {len(arms)} over the first {COMMON} seeds, with {validation:.3f}"
            f" ({test:.3f} on the test boards){chosen}. On the test boards of all seeds: {headline(every)} {failures}"
            f"Of the variance of the test reward over {len(learned)} settings{apart} and the first {COMMON} seeds, {parts}."
        )


EXPERIMENT = LakeSettings("settings", "Which settings decide the result, and its spread over seeds?")
