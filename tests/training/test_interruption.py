"""A run that is killed at any moment goes on bit for bit."""

from __future__ import annotations

import hashlib
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.command import Command
from tests.files import sha256
from tests.training.interrupted import assert_same_run, resumed, updates_safe

pytestmark = pytest.mark.slow

# ---- killed

MOMENTS: dict[str, list[tuple[str, tuple[str, str, int], int]]] = {
    "acting and learning": [
        ("before the first update", ("Trainer.act", "call", 1), 0),
        ("in the middle of acting", ("FastForward.run", "call", 20), 0),
        ("between acting and training", ("select_episodes", "call", 2), 1),
        ("between two trees of a gradient", ("policy_loss", "return", 1), 1),
        ("when the weights have moved and nothing is saved", ("Trainer.step", "return", 3), 3),
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
        ("before the summary is in place", ("write_json.<locals>.<lambda>", "return", 2), 6),
    ],
}
"""Where a SIGKILL falls, counted from the kill before, and how many updates are safe then."""


@pytest.mark.parametrize("moments", MOMENTS.values(), ids=MOMENTS)
def test_a_run_killed_at_certain_moments_goes_on_bit_for_bit(
    moments: list[tuple[str, tuple[str, str, int], int]],
    msgrpo: Command,
    flags: list[str],
    finished_run: Path,
    tmp_path: Path,
) -> None:
    for name, moment, safe in moments:
        ended = msgrpo("train", *flags, "--resume", "--output-dir", tmp_path / "run", die_at=moment)
        assert (ended.code, updates_safe(tmp_path / "run")) == (-signal.SIGKILL, safe), (name, ended.err)
    done = resumed(msgrpo, tmp_path / "run")
    assert done.code == 0, done.err
    assert_same_run(tmp_path / "run", finished_run)


@pytest.mark.parametrize(("moment", "largest"), [(("Trainer.gradient", "call", 3), 30_000), (("_finish", "call", 1), 8_000)])
def test_a_run_killed_in_the_middle_of_writing_weights_goes_on_bit_for_bit(
    moment: tuple[str, str, int], largest: int, msgrpo: Command, flags: list[str], finished_run: Path, tmp_path: Path
) -> None:
    """A checkpoint of 34 kB, and the last adapter of 10 kB; what is left of the torn files goes away."""
    assert msgrpo("train", *flags, "--output-dir", tmp_path / "run", die_at=moment).code == -signal.SIGKILL
    before = sha256(tmp_path / "run" / "checkpoint.safetensors")
    assert resumed(msgrpo, tmp_path / "run", largest_file=largest, die_at_largest_file=True).code == -signal.SIGXFSZ
    assert sha256(tmp_path / "run" / "checkpoint.safetensors") == before
    assert resumed(msgrpo, tmp_path / "run").code == 0
    assert_same_run(tmp_path / "run", finished_run)


def test_a_checkpoint_is_replaced_and_never_written_in_place(msgrpo: Command, run: Path) -> None:
    """Whoever has the old file open still reads the old one, whole; so would a run killed at that moment."""
    with (run / "checkpoint.safetensors").open("rb") as old:
        before = hashlib.sha256(old.read()).hexdigest()
        assert resumed(msgrpo, run, die_at=("save_checkpoint", "return", 1)).code == -signal.SIGKILL
        old.seek(0)
        assert hashlib.sha256(old.read()).hexdigest() == before != sha256(run / "checkpoint.safetensors")


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM"), (signal.SIGHUP, 129, "ended by SIGHUP")],
)
def test_a_signal_ends_with_one_line_and_what_was_finished_is_safe(
    number: signal.Signals, code: int, word: str, msgrpo: Command, flags: list[str], finished_run: Path, tmp_path: Path
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the tests were started so that this signal is ignored, as by nohup, and so do the processes they start")
    running = msgrpo.start("train", *flags, "--output-dir", tmp_path / "run")
    for _ in range(6000):
        if (tmp_path / "run" / "checkpoint.safetensors").exists():
            break
        time.sleep(0.01)
    running.send(number)
    ended = running.wait()
    assert ended.code == code
    assert ended.out == ""
    assert ended.said == [f"{word}; finished updates are saved, continue with --resume"]
    assert 1 <= updates_safe(tmp_path / "run") < 6
    assert resumed(msgrpo, tmp_path / "run").code == 0
    assert_same_run(tmp_path / "run", finished_run)


def test_a_torn_last_line_of_metrics_is_dropped(msgrpo: Command, finished_run: Path, run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"update": 3.0, "rewa')
    assert resumed(msgrpo, run).code == 0
    assert_same_run(run, finished_run)
