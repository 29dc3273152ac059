"""Experiments that compare arms: every arm trains from every preset with every seed, for the same processor time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from matplotlib.figure import Figure

from benchmark.experiments.curves import Arms, curve_table, draw_curves, findings
from benchmark.experiments.experiment import Experiment, Settings, Values, configuration
from benchmark.experiments.training import Prepare, learning_curve


def compare_arms(name: str, question: str, prepared: Mapping[str, Prepare] = MappingProxyType({})) -> Experiment:
    """The experiment of a folder whose config.toml has `seeds`, `evaluations`, `seconds` by preset, `settings` of all and `arm`.

    Args:
        name: of the folder.
        question: the title of its page.
        prepared: arm → what changes its trainers beyond what a configuration can say.
    """
    config = configuration(name)
    return Experiment(
        question=question,
        units=units(config),
        run=partial(_run, prepared),
        answer=partial(_answer, config),
        tables=lambda rows: "\n\n".join(f"**{title}**\n\n{curve_table(of_preset)}" for title, of_preset in _titled(config, rows)),
        figure=partial(_figure, config),
    )


def units(config: Mapping[str, Any]) -> dict[str, Settings]:
    """One per seed, preset and arm, seed by seed, so that what has run can be compared at any time."""
    return {
        unit_name(preset, arm, seed): {
            "preset": preset,
            "seconds": seconds,
            "evaluations": config["evaluations"],
            "seed": seed,
            "settings": {**config["settings"], **changes},
            "arm": arm,
        }
        for seed in config["seeds"]
        for preset, seconds in config["seconds"].items()
        for arm, changes in config["arm"].items()
    }


def unit_name(preset: str, arm: str, seed: int) -> str:
    """A name that can be that of a file."""
    plain = "".join(letter if (letter.isascii() and letter.isalnum()) or letter == "." else " " for letter in arm)
    return f"{preset}-{'-'.join(plain.split())}-seed{seed}"


def arms_of(config: Mapping[str, Any], preset: str, rows: Mapping[str, Values]) -> Arms:
    """The rows of a preset by arm and seed, of the arms that have any."""
    found = {
        arm: {seed: rows[name] for seed in config["seeds"] if (name := unit_name(preset, arm, seed)) in rows}
        for arm in config["arm"]
    }
    return {arm: of_seeds for arm, of_seeds in found.items() if of_seeds}


def _run(prepared: Mapping[str, Prepare], settings: Settings, scratch: Path) -> Values:  # noqa: ARG001
    return learning_curve(settings, prepared.get(settings["arm"], lambda trainer: None))  # noqa: ARG005


def _titled(config: Mapping[str, Any], rows: Mapping[str, Values]) -> list[tuple[str, Arms]]:
    """Title and arms of each preset that has rows."""
    found = [(f"{preset}, {seconds:g} s", arms_of(config, preset, rows)) for preset, seconds in config["seconds"].items()]
    return [(title, arms) for title, arms in found if arms]


def _answer(config: Mapping[str, Any], rows: Mapping[str, Values]) -> str:
    head = (
        "Every arm trains for the same processor time of its updates on one thread, with the same seeds. Differences are of test"
        " rewards of the last adapter, seed by seed, with their 95 % interval over training seeds; none is corrected for the"
        f" number of arms. {len(rows)} of {len(units(config))} runs are in."
    )
    return "\n".join([head, "", *(f"- **{title}.** {findings(arms)}" for title, arms in _titled(config, rows))])


def _figure(config: Mapping[str, Any], rows: Mapping[str, Values]) -> Figure:
    return draw_curves(_titled(config, rows))
