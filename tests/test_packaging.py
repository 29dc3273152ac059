"""Dependencies: the pins satisfy the ranges, and the lowest versions tested are the ranges' lower ends."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENTS = [Requirement(line) for line in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]]
UNTESTED_LOWER_ENDS = {"torch"}


def pins(name: str) -> dict[str, Version]:
    """Name → version of a constraints file, whose lines must be exact pins."""
    lines = [line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    pairs = [line.split("==") for line in lines]
    assert all(len(pair) == 2 for pair in pairs)
    return {canonicalize_name(name): Version(version) for name, version in pairs}


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-lowest.txt"])
def test_every_dependency_is_pinned_within_its_range(file: str) -> None:
    pinned = pins(file)
    for requirement in REQUIREMENTS:
        assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, requirement
    assert not any(version.local for version in pinned.values())


def test_the_lowest_versions_tested_are_the_lower_ends_promised() -> None:
    lowest = pins("constraints-lowest.txt")
    for requirement in REQUIREMENTS:
        (lower,) = [Version(part.version) for part in requirement.specifier if part.operator == ">="]
        if requirement.name not in UNTESTED_LOWER_ENDS:
            assert lowest[canonicalize_name(requirement.name)] == lower, requirement


def test_the_wheel_asks_for_no_more_than_users_have() -> None:
    """The ranges allow versions of hosted notebooks."""
    promised = {"torch": "2.11", "transformers": "5.17", "huggingface-hub": "1.33", "peft": "0.18"}
    for requirement in REQUIREMENTS:
        if limit := promised.get(canonicalize_name(requirement.name)):
            assert Version(limit) in requirement.specifier
    assert PROJECT["requires-python"] == ">=3.11"
