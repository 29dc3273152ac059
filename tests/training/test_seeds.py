"""`msgrpo train --seeds`: every seed is the run that it would be alone; a set can be interrupted, resumed and enlarged."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from msgrpo_hub.cli.training import add_train, train_config
from msgrpo_hub.errors import UserError
from msgrpo_hub.training.config import TrainConfig, stored_config
from msgrpo_hub.training.run_folder import RunFolder
from msgrpo_hub.training.run_lock import locked
from msgrpo_hub.training.seeds import check_set, state_of
from tests.files import hashes, once, sha256
from tests.training.interrupted import assert_same_run, updates_safe
from tests.training.seed_runs import write_run, write_set

if TYPE_CHECKING:
    from tests.command import Command

WEIGHTS = "adapter/adapter_model.safetensors"

# ---- what a folder may hold


def test_a_set_is_refused_in_the_folder_of_a_run_and_beside_other_settings(tmp_path: Path) -> None:
    config = stored_config(write_run(tmp_path / "one", 0) / "config.toml")
    with pytest.raises(UserError, match="holds a run of one seed: name another --output-dir for several"):
        check_set(tmp_path / "one", {0: config}, resume=True)
    write_set(tmp_path / "set", 2)
    with pytest.raises(UserError, match="seed-0' already holds a run: continue it with --resume"):
        check_set(tmp_path / "set", {0: config}, resume=False)
    other = replace(config, seed=7, beta=0.5)
    with pytest.raises(UserError, match=r"seed-0' holds a run with beta = 0\.01, not 0\.5"):
        check_set(tmp_path / "set", {7: other}, resume=True)
    check_set(tmp_path / "set", {7: replace(config, seed=7)}, resume=False)


def test_a_run_of_one_seed_is_refused_in_the_folder_of_a_set_before_anything_is_written(
    msgrpo: Command, flags: list[str], tmp_path: Path
) -> None:
    write_set(tmp_path / "set", 2)
    before = hashes(tmp_path / "set")
    done = msgrpo("train", *flags, "--resume", "--output-dir", tmp_path / "set")
    assert done.code == 2
    assert "holds a run with several seeds (seed-0, seed-1): name them with --seeds" in done.err
    assert hashes(tmp_path / "set") == before
    (tmp_path / "set" / "seed-0").rename(tmp_path / "study")
    RunFolder(tmp_path).check_run(TrainConfig(), resume=True)
    (tmp_path / "study").rename(tmp_path / "seed-study")  # not a seed
    RunFolder(tmp_path).check_run(TrainConfig(), resume=True)


def test_new_seeds_of_a_set_have_its_configuration(tmp_path: Path) -> None:
    write_set(tmp_path / "set", 2)
    parser = ArgumentParser()
    add_train(parser)
    options = parser.parse_args(["--resume", "--seeds", "5-6", "--output-dir", str(tmp_path / "set")])
    config = stored_config(tmp_path / "set" / "seed-0" / "config.toml")
    assert replace(train_config(options), seed=0) == config != TrainConfig()


def test_the_state_of_a_set_names_what_is_finished_and_how_far_the_others_are(tmp_path: Path, finished_run: Path) -> None:
    write_set(tmp_path, 2)
    config = stored_config(finished_run / "config.toml")
    write_run(tmp_path / "seed-2", 2, done=3)
    shutil.copy(finished_run / "checkpoint.safetensors", tmp_path / "seed-2")
    configs = {seed: replace(config, seed=seed, updates=20) for seed in range(4)}
    assert state_of(tmp_path, configs) == "2 of 4 seeds are finished; seed 2 has 6 of 20 updates; continue with --resume"


def test_a_set_that_another_process_trains_is_refused_in_one_line_and_stays_as_it_is(msgrpo: Command, tmp_path: Path) -> None:
    write_set(tmp_path / "set", 2)
    before = hashes(tmp_path / "set")
    with locked(tmp_path / "set"):
        done = msgrpo("train", "--resume", "--seeds", "0-2", "--output-dir", tmp_path / "set")
    assert (done.code, len(done.said)) == (2, 1), done.err
    assert f"set' is in use by process {os.getpid()} on " in done.err
    assert {name: was for name, was in hashes(tmp_path / "set").items() if not name.startswith(".lock")} == before


def test_a_set_under_a_launcher_of_several_processes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="expected one process"):
        check_set(tmp_path, {}, resume=False)


# ---- whole sets


@pytest.fixture(scope="module")
def trained(msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seeds 1 and 0, trained in this order. Not to be changed: copy it."""

    def train(folder: Path) -> None:
        done = msgrpo("train", *flags, "--seeds", "1,0", "--output-dir", folder)
        assert done.code == 0, done.err
        (folder / "said.txt").write_text(done.out)

    return once(tmp_path_factory, "seeds-0-and-1", train)


@pytest.mark.slow
def test_each_seed_is_bit_for_bit_the_run_that_it_is_alone(trained: Path, finished_run: Path) -> None:
    assert_same_run(trained / "seed-0", finished_run)
    assert sha256(trained / "seed-0" / WEIGHTS) != sha256(trained / "seed-1" / WEIGHTS)
    assert stored_config(trained / "seed-1" / "config.toml").seed == 1


@pytest.mark.slow
def test_the_summary_over_seeds_has_the_figures_of_every_run(trained: Path) -> None:
    data = json.loads((trained / "seeds.json").read_text())
    for seed in ("0", "1"):
        summary = json.loads((trained / f"seed-{seed}" / "summary.json").read_text())
        assert data["players"]["adapter"][summary["game"]]["reward"]["by_seed"][seed] == summary["adapter"]["reward"]
        assert data["runs"][seed]["finished"]
    assert (trained / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "an interval needs 3 finished seeds" in (trained / "said.txt").read_text()


@pytest.mark.slow
def test_finished_seeds_are_not_run_again_an_interrupted_one_resumes_and_a_new_one_joins(
    trained: Path, stopped: Path, msgrpo: Command, finished_run: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "set")
    shutil.rmtree(tmp_path / "set" / "seed-0")
    shutil.copytree(stopped, tmp_path / "set" / "seed-0")
    before = hashes(tmp_path / "set" / "seed-1")
    done = msgrpo("train", "--seeds", "0-2", "--resume", "--output-dir", tmp_path / "set")
    assert done.code == 0, done.err
    assert hashes(tmp_path / "set" / "seed-1") == before
    assert_same_run(tmp_path / "set" / "seed-0", finished_run)
    assert [*json.loads((tmp_path / "set" / "seeds.json").read_text())["runs"]] == ["0", "1", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_set_says_in_one_line_what_is_finished(
    number: signal.Signals, msgrpo: Command, flags: list[str], tmp_path: Path
) -> None:
    long = [*flags, "--updates", "100000", "--eval-every", "0"]
    folder = tmp_path / "set"
    running = msgrpo.start("train", *long, "--seeds", "0", "--output-dir", folder)
    for _ in range(6000):
        if updates_safe(folder / "seed-0"):
            break
        time.sleep(0.01)
    running.send(number)
    ended = running.wait()
    if number == signal.SIGKILL:
        assert ended.code == -number
    else:
        assert ended.code == 128 + number
        [line] = ended.said
        assert line.startswith("ended by SIGTERM; 0 of 1 seeds are finished; seed 0 has ")
        assert line.endswith(" of 100000 updates; continue with --resume")


@pytest.mark.slow
def test_a_seed_that_cannot_begin_ends_the_set_in_one_line_and_leaves_nothing(msgrpo: Command, tmp_path: Path) -> None:
    ended = msgrpo("train", "--model", tmp_path / "none", "--seeds", "3-5", "--output-dir", tmp_path / "set")
    assert (ended.code, len(ended.said)) == (2, 1), ended.err
    assert ended.said[0].startswith("error: seed 3 failed: ")
    assert ended.said[0].endswith("; 0 of 3 seeds are finished; continue with --resume")
    assert not (tmp_path / "set").exists()
