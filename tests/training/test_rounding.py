"""A run keeps what decides its rounding, or says that it did not."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from msgrpo_hub.training.machine import choose_threads, read_provenance
from tests.training.interrupted import assert_same_run, resumed, updates_safe

if TYPE_CHECKING:
    from tests.command import Command

pytestmark = pytest.mark.slow


SMALL, LARGE = 800_000, 500_000_000
"""Parameters of the built-in base, and of a small chat model."""


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of threads that torch is set to; it stays as it is."""
    numbers: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    return numbers


@pytest.mark.parametrize(("given", "parameters", "expected"), [(0, SMALL, [1]), (0, LARGE, []), (2, SMALL, [2]), (2, LARGE, [2])])
def test_a_new_run_takes_the_threads_given_else_those_for_its_model(
    given: int, parameters: int, expected: list[int], chosen: list[int]
) -> None:
    choose_threads(given, {}, parameters)
    assert chosen == expected


@pytest.fixture
def stopped(msgrpo: Command, flags: list[str], tmp_path: Path) -> Path:
    """A run on one thread that was killed after two updates."""
    done = msgrpo("train", *flags, "--threads", 1, "--output-dir", tmp_path / "run", die_at=("Trainer.act", "call", 3))
    assert (done.code, updates_safe(tmp_path / "run")) == (-signal.SIGKILL, 2)
    return tmp_path / "run"


def test_a_resume_takes_the_threads_that_the_run_began_with(
    msgrpo: Command, finished_run: Path, stopped: Path, chosen: list[int]
) -> None:
    choose_threads(0, read_provenance(stopped / "provenance.json"), LARGE)
    assert chosen == [1]
    assert resumed(msgrpo, stopped, "--threads", 0).code == 0
    assert_same_run(stopped, finished_run)
    assert "resumed_otherwise" not in json.loads((stopped / "summary.json").read_text())


def test_another_number_of_threads_is_refused_until_it_is_accepted_and_then_told(msgrpo: Command, stopped: Path) -> None:
    refused = resumed(msgrpo, stopped, "--threads", 2)
    assert refused.code == 2
    assert refused.said == [
        "error: the run began with threads = 1 and would go on with 2: expected the same, or its adapter is not that of an "
        "uninterrupted run; accept that with --accept-rounding"
    ]
    assert updates_safe(stopped) == 2
    assert resumed(msgrpo, stopped, "--threads", 2, "--accept-rounding").code == 0
    assert json.loads((stopped / "summary.json").read_text())["resumed_otherwise"] == [{"threads": [1, 2]}]
