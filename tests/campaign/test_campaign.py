"""Kills at random moments change nothing, and the campaign reports a command for which they do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaign.__main__ import RESULTS, campaign, trial
from tests.campaign.victims import VICTIMS, Stage

CHEAP = ["training", "evaluation of scripted players", "training with rollouts", "push of results"]
CHEAP += ["training of two seeds", "training on other hosts", "training on two threads", "the final test of a training"]
"""The victims that take about a second."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("campaign"))
    yield stage
    stage.stop()


@pytest.mark.slow
def test_ten_kills_at_random_moments_change_nothing(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "kills.json"
    campaign(10, lambda seed: stage.victim(CHEAP[seed % len(CHEAP)]), file, tmp_path, "a test")
    written = json.loads(file.read_text())
    assert sum(len(trial["kills"]) for trial in written["trials"]) == written["kills"] >= 10
    assert [trial for trial in written["trials"] if trial["unequal"]] == written["unequal"] == []


@pytest.mark.slow
def test_a_resume_that_changes_a_file_is_reported_with_its_seed(stage: Stage, tmp_path: Path) -> None:
    sound = stage.victim("training")

    def faulty(place: Path) -> object:
        if (place / "checkpoint.safetensors").exists():
            (place / "notes.txt").touch()
        return sound.start(place)

    changed = replace(sound, start=faulty, name="a faulty training", uninterrupted=tmp_path / "uninterrupted")
    trials = campaign(12, lambda _: changed, tmp_path / "kills.json", tmp_path, "a test")
    found = next(trial for trial in trials if trial["unequal"])
    assert found["unequal"] == ["notes.txt"]
    assert trial(sound, found["seed"], tmp_path / "again")["unequal"] == []


@pytest.mark.slow
def test_a_push_that_leaves_neither_the_old_nor_the_new_files_is_reported(stage: Stage) -> None:
    victim = stage.victim("push of results")
    victim.prepare(Path())
    assert victim.torn(Path()) == []
    stored = stage.hub.stored(victim.repo, victim.kind)
    lost = sorted(set(victim.complete) - set(victim.before))
    stored.put("refs/heads/main", {lost[0]: stored.head.files["README.md"]}, "Half a push", "ada")
    assert {*lost} <= {*victim.torn(Path())}
    assert "commits" in victim.unequal(Path())


def test_a_hundred_kills_of_every_victim_changed_nothing() -> None:
    written = json.loads(RESULTS.read_text())
    assert sum(len(trial["kills"]) for trial in written["trials"]) == written["kills"] >= 100
    assert {trial["victim"] for trial in written["trials"]} == set(VICTIMS)
    assert [trial for trial in written["trials"] if trial["unequal"]] == written["unequal"] == []
