"""What an experiment is: a question, units of work that can run in any order, and a page made from their rows."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from msgrpo_hub.errors import unknown

HERE = Path(__file__).parent

Settings = Mapping[str, Any]
"""Everything that decides the row of a unit, seeds included: plain values, as JSON has them."""

Values = dict[str, Any]
"""What a unit found: plain values, as JSON has them."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question and how it is answered. Each folder here has one, as `EXPERIMENT` of its experiment.py."""

    question: str
    """The title of its page."""
    units: Mapping[str, Settings]
    """Name of a unit → its settings. A stored row is used only while its settings are these."""
    run: Callable[[Settings, Path], Values]
    """(settings of a unit, a folder for files that are kept between units and not committed) → its values."""
    headline: Callable[[Mapping[str, Values]], str]
    """Values of the units that have run → the answer in a few sentences; empty while there are too few for one."""
    answer: Callable[[Mapping[str, Values]], str]
    """The same → all that was found, as Markdown."""
    tables: Callable[[Mapping[str, Values]], str]
    """The same → the tables behind it, as Markdown."""
    figure: Callable[[Mapping[str, Values]], Figure]
    """Values of the units that have run → the figure of the page."""


def names() -> list[str]:
    """The experiments of the tree."""
    return sorted(path.parent.name for path in HERE.glob("*/experiment.py"))


def load(name: str) -> Experiment:
    """The experiment of a name. Raises `UserError` for a name that is not a folder here."""
    if name not in names():
        raise unknown("experiment", name, names())
    experiment: Experiment = importlib.import_module(f"benchmark.experiments.{name}.experiment").EXPERIMENT
    return experiment


def configuration(name: str) -> dict[str, Any]:
    """The config.toml of an experiment."""
    return tomllib.loads((HERE / name / "config.toml").read_text(encoding="utf-8"))
