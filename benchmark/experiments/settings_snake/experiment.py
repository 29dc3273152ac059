"""Which settings learn Snake? The preset is chosen by this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from benchmark.experiments.arms import arms_of, best_on_validation, compare_arms, is_preset
from benchmark.experiments.experiment import Values, configuration

CONFIG = configuration("settings_snake")
COMPARED = compare_arms("settings_snake", "Which settings learn Snake?")
CASE = "quickstart-snake"
OTHER = ("updates", "eval_episodes", "test_episodes")
"""In what these runs are shorter than the preset."""


def headline(rows: Mapping[str, Values]) -> str:
    """The best arm by validation reward, of those that have run with every seed."""
    arms = {arm: seeds for arm, seeds in arms_of(CONFIG, CASE, rows).items() if len(seeds) == len(CONFIG["seeds"])}
    if len(arms) < 2:
        return ""
    best, reward = best_on_validation(arms)
    chosen = f"; it is what `{CASE}` has" if is_preset(CONFIG, CASE, best, OTHER) else ""
    return (
        f"After {CONFIG['updates'][CASE]} updates “{best}” is best of {len(arms)} on the validation boards, with {reward:.2f}"
        f" over {len(CONFIG['seeds'])} seeds, none of which is reported elsewhere{chosen}."
    )


EXPERIMENT = replace(COMPARED, headline=headline)
