"""Does better credit learn faster and more steadily? Learning curves of the credits at equal seconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from benchmark.experiments.credit_curves.exact import OwnAdvantage
from benchmark.experiments.curves import Arms, curve_table, draw_curves
from benchmark.experiments.experiment import Experiment, Settings, Values, configuration
from benchmark.experiments.training import Prepare, learning_curve
from msgrpo_hub.training.trainer import Trainer

CONFIGURATION = configuration("credit_curves")


def units() -> dict[str, Settings]:
    """One per seed and arm, seed by seed, so that what has run can be compared at any time."""
    run = {name: CONFIGURATION[name] for name in ("preset", "seconds", "evaluations")}
    return {
        unit_name(arm, seed): {**run, "seed": seed, "settings": {**CONFIGURATION["settings"], **changes}, "arm": arm}
        for seed in CONFIGURATION["seeds"]
        for arm, changes in CONFIGURATION["arm"].items()
    }


def unit_name(arm: str, seed: int) -> str:
    """A name that can be that of a file."""
    plain = "".join(letter if (letter.isascii() and letter.isalnum()) or letter == "." else " " for letter in arm)
    return f"{'-'.join(plain.split())}-seed{seed}"


def with_exact_advantage(trainer: Trainer) -> None:
    trainer.credit = OwnAdvantage(trainer)


PREPARED: Mapping[str, Prepare] = {"exact advantage": with_exact_advantage}
"""What cannot be said by a configuration."""


def run(settings: Settings, scratch: Path) -> Values:  # noqa: ARG001
    return learning_curve(settings, PREPARED.get(settings["arm"], lambda trainer: None))  # noqa: ARG005


def arms(rows: Mapping[str, Values]) -> Arms:
    """The rows by arm and seed, of the arms that have any."""
    seeds, names = CONFIGURATION["seeds"], CONFIGURATION["arm"]
    found = {arm: {seed: rows[name] for seed in seeds if (name := unit_name(arm, seed)) in rows} for arm in names}
    return {arm: of_seeds for arm, of_seeds in found.items() if of_seeds}


def answer(rows: Mapping[str, Values]) -> str:
    runs = [len(of_seeds) for of_seeds in arms(rows).values()]
    return (
        f"Every arm trains for {CONFIGURATION['seconds']:g} s of processor time on one thread."
        f" {min(runs)} to {max(runs)} of {len(CONFIGURATION['seeds'])} seeds of each arm have run."
        " Test rewards are those of the last adapter."
    )


def tables(rows: Mapping[str, Values]) -> str:
    return curve_table(arms(rows))


def figure(rows: Mapping[str, Values]) -> Figure:
    return draw_curves(arms(rows))


EXPERIMENT = Experiment(
    question="Does better credit learn faster and more steadily?",
    units=units(),
    run=run,
    answer=answer,
    tables=tables,
    figure=figure,
)
