"""Which credit is right? The exact policy gradient on Frozen Lake against the estimators of it."""

from __future__ import annotations

from benchmark.experiments.exact_gradient.drawing import figure
from benchmark.experiments.exact_gradient.findings import answer, headline, tables
from benchmark.experiments.exact_gradient.measurement import measure
from benchmark.experiments.experiment import Experiment, Settings, configuration


def units() -> dict[str, Settings]:
    """One per run and checkpoint, and one more for estimators that came later."""
    common = configuration("exact_gradient")
    runs, later = common.pop("run"), common.pop("later")
    first: dict[str, Settings] = {
        f"{run['game'].removeprefix('FrozenLake-').removesuffix('-v1')}-seed{run['seed']}-update{checkpoint}": {
            **common,
            **run,
            "checkpoint": checkpoint,
        }
        for run in runs
        for checkpoint in common["checkpoints"]
    }
    more: dict[str, Settings] = {
        f"{unit}-{added['estimators']}": {**settings, **added} for added in later for unit, settings in first.items()
    }
    return first | more


EXPERIMENT = Experiment(
    question="Which credit is right?",
    units=units(),
    run=measure,
    headline=headline,
    answer=answer,
    tables=tables,
    figure=figure,
)
