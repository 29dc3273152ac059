"""The guide's table from `GRPOConfig` to our settings has the defaults of both."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.training import TrainConfig

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "other-trainers.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").partition("### A `GRPOConfig`")[2].partition("## ")[0].splitlines()
    if line.startswith("| `") and "msgrpo train" not in line
]


def told(cell: str) -> dict[str, str]:
    """The names in a cell, with what follows the last of them as the default of all, if it is one."""
    names = re.findall(r"`(?:--)?([a-z_-]+)`", cell)
    value = cell.rpartition("`")[2].strip().split(",")[0].strip('" ')
    return dict.fromkeys((name.replace("-", "_") for name in names), value)


def check(cells: list[str], defaults: Mapping[str, Any]) -> int:
    """How many defaults the cells tell, all of which are right."""
    values = {
        name: value
        for cell in cells
        for name, value in told(cell).items()
        if re.fullmatch(r"[\w.-]+", value) and name in defaults
    }
    for name, value in values.items():
        own = defaults[name]
        if isinstance(own, int | float):
            assert float(value) == own, name
        elif own is not None:
            assert value == own, name
    return len(values)


def test_our_defaults_are_right() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(TrainConfig)}
    ours = [row[1] for row in ROWS]
    assert check([cell for cell in ours if cell.startswith("`--")], defaults) >= 12


def test_those_of_trl_are_right() -> None:
    trl = pytest.importorskip("trl", reason="the extra trl is not installed")
    defaults = {field.name: field.default for field in dataclasses.fields(trl.GRPOConfig)}
    named = {name for row in ROWS for name in re.findall(r"`([a-z_]+)`", row[0])}
    assert named - {"reward_funcs"} <= defaults.keys(), "that one is an argument of the trainer"
    assert check([row[0] for row in ROWS], defaults) >= 8
