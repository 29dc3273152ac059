"""Which settings learn Snake? The preset is chosen by this experiment."""

from __future__ import annotations

from collections.abc import Mapping

from benchmark.experiments.arms import Comparison, best_on_validation
from benchmark.experiments.experiment import Values

CASE = "quickstart-snake"
SHORTER = ("updates", "eval_episodes", "test_episodes")
"""Fields with smaller values than the preset's."""


class SnakeSettings(Comparison):
    """The headline names the best arm by validation reward; arms without all seeds do not count."""

    def headline(self, rows: Mapping[str, Values]) -> str:
        seeds = len(self.config["seeds"])
        arms = {arm: of_arm for arm, of_arm in self.arms(rows).items() if len(of_arm) == seeds}
        if len(arms) < 2:
            return ""
        best, reward = best_on_validation(arms)
        chosen = f"; `{CASE}` has its settings" if self.is_preset(best, SHORTER) else ""
        return (
            f"After {self.config['updates'][CASE]} updates “{best}” is best of {len(arms)} on the validation boards, with"
            f" {reward:.2f} over {seeds} seeds that no reported result uses{chosen}."
        )


EXPERIMENT = SnakeSettings("settings_snake", "Which settings learn Snake?")
