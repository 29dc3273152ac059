"""Kills at random moments change nothing; where they would, the campaign says so."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from msgrpo_hub.cli import main
from tests.campaign.__main__ import RESULTS
from tests.campaign.stage import TRAINING, VICTIMS, Stage
from tests.campaign.trials import Record, campaign, trial
from tests.campaign.victims import IntoFolder, OntoHub, left_by_evaluation, left_by_training, updates_safe
from tests.cli.suites import FIRM, write_suite

CHEAP = ["training", "evaluation of scripted players", "training with rollouts", "push of results"]
"""The victims that take about a second."""

LOSES_AN_UPDATE = """
import sys
from dataclasses import replace
from msgrpo_hub.cli import main
from msgrpo_hub.training import run

load = run.load_checkpoint

def one_too_many(path, *given):
    progress, credit = load(path, *given)
    updates = run.read_metrics(path.with_name("metrics.jsonl"))
    return replace(progress, updates=min(progress.updates + (progress.updates > 0), len(updates))), credit

run.load_checkpoint = one_too_many
main(sys.argv[1:])
"""
"""The `msgrpo` command with a resume that takes the update in progress for a finished one."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("campaign"))
    yield stage
    stage.stop()


@pytest.mark.slow
def test_ten_kills_at_random_moments_change_nothing_and_none_is_done_twice(stage: Stage, tmp_path: Path) -> None:
    file, asked = tmp_path / "kills.json", []

    def of_seed(seed: int) -> object:
        asked.append(seed)
        return stage.victim(CHEAP[seed % len(CHEAP)])

    campaign(5, of_seed, Record(file, "the first half"), tmp_path)
    campaign(10, of_seed, Record(file, "the second half"), tmp_path)
    written = json.loads(file.read_text())
    assert [trial["seed"] for trial in written["trials"]] == asked == list(range(len(asked)))
    assert sum(len(trial["kills"]) for trial in written["trials"]) == written["kills"] >= 10
    assert [trial for trial in written["trials"] if trial["unequal"]] == written["unequal"] == []


@pytest.mark.long
def test_a_resume_that_loses_an_update_is_reported_with_its_seed(stage: Stage, tmp_path: Path) -> None:
    sound = stage.victim("training")
    assert isinstance(sound, IntoFolder)

    def losing(place: Path) -> object:
        return stage.commands.start(*TRAINING.split(), "--model", stage.model, "--output-dir", place, program=LOSES_AN_UPDATE)

    faulty = replace(sound, start=losing, name="a faulty training", uninterrupted=tmp_path / "uninterrupted")
    assert faulty.expected == sound.expected  # the fault is in the resume alone
    record = Record(tmp_path / "kills.json", "a test")
    while not any(trial["unequal"] for trial in record.trials):
        campaign(record.kills + 1, lambda _: faulty, record, tmp_path)
        assert record.kills < 12
    found = record.trials[-1]
    assert json.loads((tmp_path / "kills.json").read_text())["unequal"] == [found["seed"]]
    assert re.match(r"exit 2: error: .*metrics.jsonl. has no readable line of update", found["unequal"][0])
    assert (tmp_path / f"seed-{found['seed']}" / "metrics.jsonl").exists()  # to be looked at
    assert trial(sound, found["seed"], tmp_path / "again")["unequal"] == []


@pytest.mark.slow
def test_a_push_that_is_neither_as_before_nor_complete_is_reported(stage: Stage) -> None:
    victim = stage.victim("push of results")
    assert isinstance(victim, OntoHub)
    victim.prepare(Path())
    assert victim.torn(Path()) == []
    stored = stage.hub.stored(victim.repo, victim.kind)
    lost = sorted(set(victim.complete) - set(victim.before))
    stored.put("refs/heads/main", {lost[0]: stored.head.files["README.md"]}, "Half a push", "ada")
    assert {lost[0], *lost[1:]} <= {*victim.torn(Path())}
    assert "commits" in victim.unequal(Path())


def test_a_hundred_kills_of_every_victim_changed_nothing() -> None:
    written = json.loads(RESULTS.read_text())
    assert sum(len(trial["kills"]) for trial in written["trials"]) == written["kills"] >= 100
    assert {trial["victim"] for trial in written["trials"]} == set(VICTIMS)
    assert [trial for trial in written["trials"] if trial["unequal"]] == written["unequal"] == []


def test_every_file_of_an_evaluation_counts_but_the_seconds(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite.toml", 4, FIRM)
    main(["eval", "random", "--suite", str(suite), "--output-dir", str(tmp_path / "runs")])
    expected = left_by_evaluation(tmp_path / "runs")
    files = [path for path in sorted((tmp_path / "runs").rglob("*")) if path.is_file()]
    counted = [path for path in files if path.name != "timing.json"]
    assert len(counted) == len(files) - 1 == 4
    for path in counted:
        before = path.read_bytes()
        path.write_bytes(before + b" ")
        assert left_by_evaluation(tmp_path / "runs") != expected, path
        path.write_bytes(before)
    assert left_by_evaluation(tmp_path / "runs") == expected


@pytest.mark.slow
def test_every_file_of_a_training_counts(finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "run")
    expected = left_by_training(tmp_path / "run")
    assert expected == left_by_training(finished_run)
    assert updates_safe(finished_run) == 6
    for path in [path for path in (tmp_path / "run").rglob("*") if path.is_file() and not path.name.startswith(".lock")]:
        before = path.read_bytes()
        path.unlink()
        assert left_by_training(tmp_path / "run") != expected, path
        path.write_bytes(before)
