"""A run may end at any moment, by any hand: what is lost is the update in flight, and nothing else."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from accelerate import Accelerator
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from msgrpo_hub.errors import UserError
from msgrpo_hub.training.checkpoint import load_checkpoint, save_checkpoint
from msgrpo_hub.training.config import load_config
from msgrpo_hub.training.run_folder import fingerprint
from msgrpo_hub.training.trainer import Trainer

if TYPE_CHECKING:
    from tests.command import Command, Finished

NOT_THE_SAME_TWICE = ("second", "memory_mb")
"""Parts of the names of metrics that are measurements of the machine."""


def files(folder: Path) -> dict[str, str]:
    """The hash of every file."""
    return {str(path.relative_to(folder)): sha256(path) for path in folder.rglob("*") if path.is_file()}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def metrics(folder: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not any(part in k for part in NOT_THE_SAME_TWICE)} for line in lines]


def updates_safe(folder: Path) -> int:
    """What the checkpoint says."""
    if not (folder / "checkpoint.safetensors").exists():
        return 0
    with safe_open(folder / "checkpoint.safetensors", framework="pt") as file:
        return int(json.loads(file.metadata()["progress"])["updates"])


def scores(folder: Path) -> dict[str, Any]:
    summary = json.loads((folder / "summary.json").read_text())
    return {name: summary[name] for name in summary["players"]}


def assert_same_run(folder: Path, uninterrupted: Path) -> None:
    """The same weights to the last bit, every update once and with the same figures, the same table, the same files."""
    assert [line["update"] for line in metrics(folder)] == [1, 2, 3, 4, 5, 6]
    assert metrics(folder) == metrics(uninterrupted)
    for name in ("adapter", "best"):
        weights = Path(name) / "adapter_model.safetensors"
        assert sha256(folder / weights) == sha256(uninterrupted / weights), name
    assert scores(folder) == scores(uninterrupted)
    assert files(folder).keys() == files(uninterrupted).keys()


@pytest.fixture(scope="module")
def uninterrupted(msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "uninterrupted"
    assert msgrpo("train", *flags, "--output-dir", folder).code == 0
    return folder


@pytest.fixture(scope="module")
def stopped(msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in its third update; to be copied, not used."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    assert msgrpo("train", *flags, "--output-dir", folder, die_at=("Trainer.learn", "call", 3)).code == -signal.SIGKILL
    return folder


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    """A run of one's own that was killed in its third update."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def resumed(msgrpo: Command, folder: Path, **given: Any) -> Finished:
    return msgrpo("train", "--resume", "--output-dir", folder, **given)


# ---- killed

MOMENTS: dict[str, list[tuple[str, tuple[str, str, int], int]]] = {
    "acting and learning": [
        ("before the first update", ("Trainer.act", "call", 1), 0),
        ("in the middle of acting", ("Engine._forward", "call", 20), 0),
        ("between acting and training", ("draw", "call", 2), 1),
        ("between two trees of a gradient", ("Trainer.loss", "return", 1), 1),
        ("when the weights have moved and nothing is saved", ("Trainer.learn", "return", 3), 3),
        ("while evaluating", ("Trainer.evaluate", "call", 1), 3),
    ],
    "saving": [
        ("before the first checkpoint is in place", ("save_checkpoint.<locals>.<lambda>", "return", 1), 0),
        ("when the best adapter is saved and the checkpoint is not", ("save_adapter", "return", 1), 1),
        ("when the metrics are saved and the checkpoint is not", ("append_metrics", "return", 2), 2),
        ("before a checkpoint is in place", ("save_checkpoint.<locals>.<lambda>", "return", 2), 3),
        ("when a checkpoint is in place", ("save_checkpoint", "return", 2), 5),
    ],
    "the end": [
        ("after the last update", ("_finish", "call", 1), 6),
        ("in the final evaluation", ("play_test", "call", 1), 6),
        ("before the summary is in place", ("_finish.<locals>.<lambda>", "return", 3), 6),
    ],
}
"""Where a SIGKILL falls, counted from the kill before, and how many updates are safe then."""


@pytest.mark.parametrize("moments", MOMENTS.values(), ids=MOMENTS)
def test_a_run_killed_at_certain_moments_goes_on_bit_for_bit(
    moments: list[tuple[str, tuple[str, str, int], int]],
    msgrpo: Command,
    flags: list[str],
    uninterrupted: Path,
    tmp_path: Path,
) -> None:
    for name, moment, safe in moments:
        ended = msgrpo("train", *flags, "--resume", "--output-dir", tmp_path / "run", die_at=moment)
        assert (ended.code, updates_safe(tmp_path / "run")) == (-signal.SIGKILL, safe), (name, ended.err)
    done = resumed(msgrpo, tmp_path / "run")
    assert done.code == 0, done.err
    assert_same_run(tmp_path / "run", uninterrupted)


def test_a_run_killed_again_and_again_at_random_moments_goes_on_bit_for_bit(
    msgrpo: Command, flags: list[str], uninterrupted: Path, tmp_path: Path
) -> None:
    rng, killed, longest = random.Random(0), 0, 1.0
    while killed < 6:
        running = msgrpo.start("train", *flags, "--resume", "--output-dir", tmp_path / "run")
        time.sleep(rng.uniform(0.05, longest))
        running.send(signal.SIGKILL)
        if running.wait().code == -signal.SIGKILL:
            killed += 1
        else:  # it was faster: start again, and kill sooner
            shutil.rmtree(tmp_path / "run")
            longest *= 0.8
    assert resumed(msgrpo, tmp_path / "run").code == 0
    assert_same_run(tmp_path / "run", uninterrupted)


@pytest.mark.parametrize(("moment", "largest"), [(("Trainer.learn", "call", 3), 30_000), (("_finish", "call", 1), 8_000)])
def test_a_run_killed_in_the_middle_of_writing_weights_goes_on_bit_for_bit(
    moment: tuple[str, str, int], largest: int, msgrpo: Command, flags: list[str], uninterrupted: Path, tmp_path: Path
) -> None:
    """A checkpoint of 34 kB, and the last adapter of 10 kB; what is left of the torn files goes away."""
    assert msgrpo("train", *flags, "--output-dir", tmp_path / "run", die_at=moment).code == -signal.SIGKILL
    before = sha256(tmp_path / "run" / "checkpoint.safetensors")
    assert resumed(msgrpo, tmp_path / "run", largest_file=largest, die_at_largest_file=True).code == -signal.SIGXFSZ
    assert sha256(tmp_path / "run" / "checkpoint.safetensors") == before
    assert resumed(msgrpo, tmp_path / "run").code == 0
    assert_same_run(tmp_path / "run", uninterrupted)


def test_a_checkpoint_is_replaced_and_never_written_in_place(msgrpo: Command, run: Path) -> None:
    """Whoever has the old file open still reads the old one, whole; so would a run killed at that moment."""
    with (run / "checkpoint.safetensors").open("rb") as old:
        before = hashlib.sha256(old.read()).hexdigest()
        assert resumed(msgrpo, run, die_at=("save_checkpoint", "return", 1)).code == -signal.SIGKILL
        old.seek(0)
        assert hashlib.sha256(old.read()).hexdigest() == before != sha256(run / "checkpoint.safetensors")


def test_ctrl_c_ends_with_one_line_and_what_was_finished_is_safe(
    msgrpo: Command, flags: list[str], uninterrupted: Path, tmp_path: Path
) -> None:
    running = msgrpo.start("train", *flags, "--output-dir", tmp_path / "run")
    for _ in range(6000):
        if (tmp_path / "run" / "checkpoint.safetensors").exists():
            break
        time.sleep(0.01)
    running.send(signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130
    assert ended.out == ""
    assert ended.said == ["interrupted; finished updates are saved, continue with --resume"]
    assert 1 <= updates_safe(tmp_path / "run") < 6
    assert resumed(msgrpo, tmp_path / "run").code == 0
    assert_same_run(tmp_path / "run", uninterrupted)


def test_a_torn_last_line_of_metrics_is_dropped(msgrpo: Command, uninterrupted: Path, run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"update": 3.0, "rewa')
    assert resumed(msgrpo, run).code == 0
    assert_same_run(run, uninterrupted)


# ---- a full disk


def assert_said_plainly(ended: Finished, folder: Path) -> None:
    """One line, with the number of updates that the checkpoint really holds."""
    assert ended.code == 2, ended.err
    assert ended.out == ""
    [line] = ended.said
    assert line.startswith(f"error: cannot write to '{folder}' (")
    assert line.endswith(f"): {updates_safe(folder)} updates are safe there; make room, then go on with --resume")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"this user may not mount a file system: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("pages", [0, 5, 8, 40])
def test_a_full_disk_leaves_the_last_checkpoint_and_the_run_goes_on_when_there_is_room(
    pages: int, msgrpo: Command, uninterrupted: Path, stopped: Path, disk: Path
) -> None:
    """`pages` of 4 KiB are free: too few for the metrics, the best adapter, a checkpoint, or the curves."""
    run = Path(shutil.copytree(stopped, disk / "run"))
    before = sha256(run / "checkpoint.safetensors")
    (disk / "filler").write_bytes(b"." * (shutil.disk_usage(disk).free - pages * 4096))
    assert_said_plainly(resumed(msgrpo, run), run)
    assert updates_safe(run) > 2 or sha256(run / "checkpoint.safetensors") == before
    (disk / "filler").unlink()
    assert resumed(msgrpo, run).code == 0
    assert_same_run(run, uninterrupted)


@pytest.mark.parametrize("largest", [300, 30_000, 50_000])
def test_a_file_that_may_not_grow_is_said_plainly(
    largest: int, msgrpo: Command, flags: list[str], uninterrupted: Path, tmp_path: Path
) -> None:
    """The same where no file system can be mounted: the configuration, the checkpoint or the curves do not fit."""
    assert_said_plainly(msgrpo("train", *flags, "--output-dir", tmp_path / "run", largest_file=largest), tmp_path / "run")
    assert msgrpo("train", *flags, "--resume", "--output-dir", tmp_path / "run").code == 0
    assert_same_run(tmp_path / "run", uninterrupted)


# ---- damaged or foreign checkpoints


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_weight(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def forget_the_checksum(path: Path) -> None:
    save_file(load_file(path), path, {"format": "msgrpo_hub-checkpoint-1"})


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (truncate, "it cannot be read"),
    "empty": (lambda path: path.write_bytes(b""), "it cannot be read"),
    "no safetensors": (lambda path: path.write_text("{}" * 1000), "it cannot be read"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "it cannot be read"),
    "a flipped bit": (flip_a_weight, "its checksum is wrong, so it is damaged"),
    "some other safetensors": (lambda path: save_file({"a": torch.zeros(3)}, path), "its format is None"),
    "the adapter": (lambda path: save_file(load_file(path), path, {"format": "pt"}), "its format is 'pt'"),
    "without a checksum": (forget_the_checksum, "checksum"),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_refused_with_its_reason_and_nothing_is_overwritten(
    damage: Callable[[Path], object], reason: str, msgrpo: Command, run: Path
) -> None:
    damage(run / "checkpoint.safetensors")
    assert_refused(msgrpo, run, reason)


def assert_refused(msgrpo: Command, run: Path, reason: str) -> None:
    before = files(run)
    ended = resumed(msgrpo, run)
    assert (ended.code, ended.out) == (2, ""), ended.err
    [line] = ended.err.splitlines()
    assert line.startswith(f"error: the checkpoint '{run / 'checkpoint.safetensors'}' is refused: ")
    assert reason in line
    assert files(run) == before


@pytest.mark.parametrize("change", [("--seed", "1"), ("--lora-rank", "2"), ("--learning-rate", "1e-3")])
def test_a_checkpoint_of_another_configuration_is_refused(
    change: tuple[str, str], msgrpo: Command, flags: list[str], run: Path, tmp_path: Path
) -> None:
    moment = ("Trainer.learn", "call", 2)
    assert msgrpo("train", *flags, *change, "--output-dir", tmp_path / "other", die_at=moment).code == -signal.SIGKILL
    shutil.copy(tmp_path / "other" / "checkpoint.safetensors", run)
    assert_refused(msgrpo, run, "it belongs to a run with another configuration")


def test_a_bit_flipped_anywhere_in_the_head_of_a_checkpoint_is_noticed(run: Path) -> None:
    """The head holds names, shapes, the configuration's fingerprint, the progress and the checksum."""
    path, config = run / "checkpoint.safetensors", load_config(run / "config.toml")
    trainer = Trainer(config, Accelerator(cpu=True))
    whole = path.read_bytes()
    head = 8 + int.from_bytes(whole[:8], "little")
    accepted = []
    metadata = whole.index(b'"exp_avg')  # every bit of what is not tensors, and some of the rest
    for place in [*range(metadata), *range(metadata, head, 50)]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            load_checkpoint(path, trainer.parameters, trainer.optimizer, fingerprint(config))
        except UserError:
            continue
        except Exception as error:  # a traceback for the user
            accepted.append((whole[max(place - 15, 0) : place + 5], repr(error)))
        else:
            accepted.append((whole[max(place - 15, 0) : place + 5], "accepted"))
    assert not accepted


def test_a_checkpoint_from_before_the_first_step_goes_back(run: Path, tmp_path: Path) -> None:
    """Where no group teaches anything, there are updates without a step, and no moments of the optimiser."""
    config = load_config(run / "config.toml")
    progress = replace(load_checkpoint_of(run), updates=1)
    one, two = Trainer(config, Accelerator(cpu=True)), Trainer(replace(config, seed=1), Accelerator(cpu=True))
    save_checkpoint(tmp_path / "checkpoint", one.parameters, one.optimizer, progress, "run")
    assert load_checkpoint(tmp_path / "checkpoint", two.parameters, two.optimizer, "run") == progress
    assert all(torch.equal(weight, two.parameters[name]) for name, weight in one.parameters.items())
    assert not two.optimizer.state


def load_checkpoint_of(run: Path) -> Any:
    config = load_config(run / "config.toml")
    trainer = Trainer(config, Accelerator(cpu=True))
    return load_checkpoint(run / "checkpoint.safetensors", trainer.parameters, trainer.optimizer, fingerprint(config))
