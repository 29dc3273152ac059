"""Which credit is right? The exact policy gradient on Frozen Lake against the estimators of it."""

from __future__ import annotations

from benchmark.experiments.exact_gradient.findings import answer, figure, tables
from benchmark.experiments.exact_gradient.measurement import measure
from benchmark.experiments.experiment import Experiment, Settings, configuration


def units() -> dict[str, Settings]:
    """One per run and checkpoint."""
    common = configuration("exact_gradient")
    runs = common.pop("run")
    return {
        f"{run['game'].removeprefix('FrozenLake-').removesuffix('-v1')}-seed{run['seed']}-update{checkpoint}": {
            **common,
            **run,
            "checkpoint": checkpoint,
        }
        for run in runs
        for checkpoint in common["checkpoints"]
    }


EXPERIMENT = Experiment(
    question="Which credit is right?", units=units(), run=measure, answer=answer, tables=tables, figure=figure
)
