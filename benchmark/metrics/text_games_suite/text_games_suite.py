"""The text games as a suite of the `evaluate` library: `EvaluationSuite.load(path).run("org/model")`."""

# One import per line: `evaluate` reads these lines one by one.
from typing import Any

import evaluate

from msgrpo_hub.evaluation import evaluate as play
from msgrpo_hub.evaluation.suites import load_suite

SUITE = "quick"


class Suite(evaluate.EvaluationSuite):
    """Plays the suite `quick`. Its tasks are games, not datasets, so it runs them itself."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.suite = list(load_suite(SUITE).tasks)

    def run(self, model_or_pipeline: str, output_dir: str = "runs/eval", **settings: Any) -> list[dict[str, object]]:
        """One row per game for a model: any player's name, such as a Hub id of a base or an adapter.

        Args:
            model_or_pipeline: the player's name; pipelines and model objects are not taken.
            output_dir: folder of the runs; a second run with the same folder plays nothing again.
            settings: fields of `PlayerSettings`.
        """
        from msgrpo_hub.players import PlayerSettings

        results = play(model_or_pipeline, SUITE, output_dir, settings=PlayerSettings(**settings))
        return [{"task_name": result.task, "data_preprocessor": None, **_flat(result.summary)} for result in results]


def _flat(summary: dict[str, object]) -> dict[str, object]:
    """Intervals as columns: `reward`, `reward_low`, `reward_high`."""
    row: dict[str, object] = {}
    for name, value in summary.items():
        if isinstance(value, dict) and "mean" in value:
            row |= {name: value["mean"], f"{name}_low": value["low"], f"{name}_high": value["high"]}
        elif not isinstance(value, dict):
            row[name] = value
    return row
