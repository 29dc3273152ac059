"""Which settings decide the result, and its spread over seeds? Presets are chosen by this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from benchmark.experiments.arms import arms_of, best_on_validation, compare_arms, is_preset
from benchmark.experiments.curves import Arms, means_of
from benchmark.experiments.experiment import Values, configuration
from benchmark.experiments.headlines import headline as of_arms
from benchmark.experiments.spread import boards_of_tests, by_chance, causes
from msgrpo_hub.training.config import preset

CONFIG = configuration("settings")
COMPARED = compare_arms("settings", "Which settings decide the result, and its spread over seeds?")
CASE = "quickstart"
SEEDS = CONFIG["seeds"][:3]
"""Those that every arm has."""
NOTHING = 0.1
"""A test reward below which a run has learned nothing."""
IN_WORDS = {
    "setting": "from the setting",
    "seed": "from the seed, whatever the setting",
    "both": "from luck of a seed that differs from setting to setting",
    "chance": "from chance in the test episodes",
}


def headline(rows: Mapping[str, Values]) -> str:
    """The best arm by validation reward, and what makes the spread."""
    arms = _with_all_seeds(rows)
    if len(arms) < 2:
        return ""
    best, validation = best_on_validation(arms)
    test = np.mean(list(means_of(arms[best]).values()))
    chosen = f", which is what `{CASE}` has" if is_preset(CONFIG, CASE, best, ("eval_episodes", "test_episodes")) else ""
    return (
        f"On the validation boards “{best}” is best of {len(arms)} over the first {len(SEEDS)} seeds, with"
        f" {validation:.3f} ({test:.3f} on the test boards){chosen}. On the test boards of all seeds:"
        f" {of_arms(arms_of(CONFIG, CASE, rows))} {_failures(arms_of(CONFIG, CASE, rows))}{_causes(arms)}"
    )


def _failures(arms: Arms) -> str:
    """The runs that learned nothing, of those with any."""
    found = {arm: sum(mean < NOTHING for mean in means_of(seeds).values()) for arm, seeds in arms.items()}
    said = ", ".join(f"{failed} of {len(arms[arm])} with “{arm}”" for arm, failed in found.items() if failed)
    return f"Runs that learned nothing: {said}. " if said else ""


def _with_all_seeds(rows: Mapping[str, Values]) -> Arms:
    """The arms that have run with `SEEDS`, and these alone."""
    arms = arms_of(CONFIG, CASE, rows)
    return {arm: {seed: seeds[seed] for seed in SEEDS} for arm, seeds in arms.items() if seeds.keys() >= set(SEEDS)}


def _causes(arms: Arms) -> str:
    """What makes the variance of the test rewards, the largest part first."""
    learned = {arm: seeds for arm, seeds in arms.items() if min(means_of(seeds).values()) > NOTHING}
    left = len(arms) - len(learned)
    means = np.array([list(means_of(seeds).values()) for seeds in learned.values()])
    rewards = [values["test_rewards"] for seeds in learned.values() for values in seeds.values()]
    chance = by_chance(rewards, boards_of_tests(preset(CASE).game, len(rewards[0])))
    found = causes(means, (chance or 0.0) ** 2).shares()
    parts = ", ".join(f"{share:.0%} come {IN_WORDS[name]}" for name, share in found.items())
    apart = f" (without {left}, of which one of these seeds learned nothing)" if left else ""
    return f"Of the variance of the test reward over {len(learned)} settings{apart} and the first {len(SEEDS)} seeds, {parts}."


EXPERIMENT = replace(COMPARED, headline=headline)
