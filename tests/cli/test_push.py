"""The flags of `msgrpo push`, and what is refused before anything is said to be pushed."""

from __future__ import annotations

import re

import pytest

from tests.cli.suites import Run

OWN = {
    "adapter": {"--message", "--base", "--rollouts"},
    "rollouts": {"--message"},
    "results": {"--message"},
    "base": set(),
    "space": {"--adapter", "--hardware"},
    "env": {"--game"},
}


@pytest.mark.parametrize("kind", OWN)
def test_the_help_of_a_kind_shows_its_own_flags_and_those_of_every_kind(run: Run, kind: str) -> None:
    shown = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", run("push", kind, "--help").out, re.MULTILINE))
    every = {"--help", "--private", "--public", "--revision", "--create-pr", "--dry-run", "--json"}
    assert shown == every | OWN[kind]


@pytest.mark.parametrize(
    "arguments",
    [("base", "ada"), ("space", "../demo"), ("adapter", "run", "ada/x", "--rollouts", "x"), ("rollouts", ".", "x y")],
)
def test_a_name_is_checked_before_anything_is_said_to_be_pushed(run: Run, arguments: tuple[str, ...]) -> None:
    ended = run("push", *arguments)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert "is not a repository name: expected USER/NAME" in ended.err
