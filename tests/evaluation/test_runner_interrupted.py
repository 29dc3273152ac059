"""A run that is killed, or whose server fails, continues to the same bytes and plays only the missing episodes."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
import signal
import socket
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import load_result
from msgrpo_hub.evaluation.runner import missing_episodes, run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.players.registry import Player
from msgrpo_hub.storage import files as lock
from msgrpo_hub.training.run_folder import locked
from tests.evaluation.played import LAKE, MIXED, SLIPPERY, Talker, contents, talker

EIGHT = replace(LAKE, episodes=8)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Suite], dict[str, bytes]]:
    """Suite → the files of an uninterrupted run."""

    def files(suite: Suite) -> dict[str, bytes]:
        folder = tmp_path_factory.mktemp("whole")
        assert run_task(talker(Talker()), suite, SLIPPERY, folder).complete
        return contents(folder)

    return files


# ---- kill -9


def forked(work: Callable[[], object]) -> int:
    """Runs a function in another process. Returns its id."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        work()
        os._exit(0)
    return pid


def code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed(suite: Suite, folder: Path, batch_size: int, moment: int) -> bool:
    """Plays a suite in another process until the n-th call or return of the runner. Returns whether it got there."""

    def work() -> None:
        left = moment

        def count(frame: Any, event: str, argument: Any) -> None:  # noqa: ARG001
            nonlocal left
            if frame.f_code.co_filename.endswith(("storage/run_files.py", "storage/files.py", "evaluation/runner.py")):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(count)
        run_task(talker(Talker()), suite, SLIPPERY, folder, batch_size)

    code = code_of(forked(work))
    assert code in (0, -signal.SIGKILL)
    return code != 0


def test_a_run_that_is_killed_twice_at_any_moment_continues_to_the_same_bytes_in_other_batches(
    tmp_path: Path, whole: Callable[[Suite], dict[str, bytes]]
) -> None:
    suite = replace(LAKE, episodes=4)
    expected, moment, died = whole(suite), 1, 0
    while killed(suite, folder := tmp_path / str(moment), 2, moment):
        died += 1
        killed(suite, folder, 4, moment // 2 + 1)
        again = run_task(talker(Talker()), suite, SLIPPERY, folder, 3)
        assert again == load_result(again.folder)
        assert contents(folder) == expected, moment
        moment += max(1, moment // 6)
    assert died > 20


def test_a_second_process_waits_for_the_first_and_continues_when_it_is_killed(
    tmp_path: Path, whole: Callable[[Suite], dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()

    class Slow(Talker):
        """Announces each call, and answers late."""

        def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
            os.write(write, b".")
            time.sleep(0.1)
            return super().complete(prompts, rngs)

    first = forked(lambda: run_task(talker(Slow()), EIGHT, SLIPPERY, tmp_path, 2))
    for _ in range(8):
        assert os.read(read, 1) == b"."  # it plays
    Timer(0.5, lambda: os.kill(first, signal.SIGKILL)).start()
    monkeypatch.setattr(sys, "stderr", told := io.StringIO())
    policy = Talker()
    assert run_task(talker(policy), EIGHT, SLIPPERY, tmp_path, 2).complete
    monkeypatch.undo()
    assert "another process plays talker on FrozenLake-Slippery-v1: waiting for its result" in told.getvalue()
    assert code_of(first) == -signal.SIGKILL
    assert 0 < policy.asked <= 8
    assert contents(tmp_path) == whole(EIGHT)


@pytest.mark.parametrize("number", [0, errno.ENOSYS, errno.ENOLCK])
def test_a_process_killed_on_another_host_leaves_no_lock_and_a_living_one_keeps_it(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has locks, or not. The killed process had a clock that is years ahead. Under `nohup`, SIGINT is ignored."""

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    def hold() -> None:
        socket.gethostname = lambda: "another-host"
        with locked(tmp_path):
            (tmp_path / "held").touch()
            time.sleep(60)

    if number:
        monkeypatch.setattr(fcntl, "flock", flock)
        monkeypatch.setattr(lock, "SILENCE", 0.6)
    first = forked(hold)
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    with pytest.raises(UserError, match="is in use by another process"), locked(tmp_path):
        pass
    os.kill(first, signal.SIGKILL)
    assert code_of(first) == -signal.SIGKILL
    for file in tmp_path.glob(".lock*"):
        os.utime(file, (2e9, 2e9))
    with locked(tmp_path):
        if number:  # a holder that loses its lock ends
            (tmp_path / ".lock.alive").unlink()
            (tmp_path / ".lock.alive").touch()
            handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.default_int_handler}
            handlers |= {signal.SIGINT: signal.SIG_IGN} if number == errno.ENOLCK else {}
            before = {one: signal.signal(one, handler) for one, handler in handlers.items()}
            try:
                with pytest.raises(KeyboardInterrupt):
                    any(map(time.sleep, [0.1] * 600))  # an interrupt comes between two calls
            finally:
                for one, handler in before.items():
                    signal.signal(one, handler)


def test_a_log_that_is_truncated_at_any_byte_continues_to_the_same_bytes_and_plays_only_the_missing_episodes(
    tmp_path: Path, whole: Callable[[Suite], dict[str, bytes]]
) -> None:
    expected = whole(EIGHT)
    failed = run_task(talker(Talker(down=True)), EIGHT, SLIPPERY, tmp_path / "failed", 3)
    log = (failed.folder / "episodes.jsonl").read_bytes()
    ends = [i for i, byte in enumerate(log) if byte == ord("\n")]
    cuts = {*range(0, len(log), 331), *(end + step for end in ends for step in (-1, 0, 1)), len(log)}
    assert len(ends) >= 3
    assert max(log) > 127  # some characters are several bytes long
    for cut in sorted(cuts):
        folder = tmp_path / "cut" / failed.folder.relative_to(tmp_path / "failed")
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "episodes.jsonl").write_bytes(log[:cut])
        policy = Talker()
        run_task(talker(policy), EIGHT, SLIPPERY, tmp_path / "cut")
        assert contents(tmp_path / "cut") == expected, cut
        assert policy.asked == EIGHT.episodes - sum(end < cut for end in ends)


# ---- batches of a player that rounds by them


@dataclass
class Rounding:
    """Its replies depend on all earlier prompts of the batch, as with rounding; one call may kill the process."""

    last: int = 0
    calls: int = 0
    checksum: int = 0

    @contextmanager
    def caching(self) -> Iterator[None]:
        self.checksum = 0
        yield

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        self.calls += 1
        if self.calls == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.checksum = zlib.crc32("".join(prompt.observation for prompt in prompts).encode(), self.checksum)
        moves = [(self.checksum + int(rng.integers(4))) % 4 for rng in rngs]
        actions = [prompt.game.actions[move] for prompt, move in zip(prompts, moves, strict=True)]
        return [Completion(text=f"<action>{action}</action>") for action in actions]


def rounding(last: int = 0) -> Player:
    return replace(talker(Rounding(last)), batched=True)


def test_a_kill_inside_a_batch_that_determines_the_replies_changes_no_byte(tmp_path: Path) -> None:
    uninterrupted = run_task(rounding(), LAKE, SLIPPERY, tmp_path / "whole", 5)
    expected, kept = contents(tmp_path / "whole"), set()
    other = run_task(rounding(), LAKE, SLIPPERY, tmp_path / "whole", 4)
    assert other.folder != uninterrupted.folder
    assert other.episodes != uninterrupted.episodes
    for call in (4, 9, 15):
        folder = tmp_path / str(call)
        pid = forked(lambda call=call, folder=folder: run_task(rounding(call), LAKE, SLIPPERY, folder, 5))  # type: ignore[misc]
        assert code_of(pid) == -signal.SIGKILL
        kept.add(LAKE.episodes - len(missing_episodes(rounding(), LAKE, SLIPPERY, folder, 5)))
        run_task(rounding(), LAKE, SLIPPERY, folder, 5)
        assert contents(folder) == expected
    assert len(kept) > 1
    assert any(number % 5 for number in kept)  # also in the middle of a batch


# ---- failures are not play


def test_an_episode_that_a_server_failed_is_not_scored_and_only_it_is_played_by_the_next_call(
    tmp_path: Path, whole: Callable[[Suite], dict[str, bytes]]
) -> None:
    complete = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path / "whole")
    part = run_task(talker(Talker(down=True)), LAKE, SLIPPERY, tmp_path / "part", 5)
    failed = LAKE.episodes - len(part.episodes)
    assert 0 < failed < LAKE.episodes
    assert part == load_result(part.folder)
    assert (part.summary["complete"], part.summary["failed"], part.summary["episodes"]) == (False, failed, len(part.episodes))
    kept = {episode.seed: score for episode, score in zip(complete.episodes, complete.scores, strict=True)}
    assert part.scores == [kept[episode.seed] for episode in part.episodes]
    assert part.summary["reward"]["mean"] == np.mean([score.reward for score in part.scores])
    rows = pq.read_table(part.folder / "steps.parquet").to_pylist()
    assert len(rows) == part.summary["steps"] == sum(len(episode.steps) for episode in part.episodes)
    assert [row["error"] for row in part.failures] == ["HTTP 503 after 6 attempts"] * failed
    indices = {*range(LAKE.episodes)} - {complete.episodes.index(episode) for episode in part.episodes}
    assert {(row["index"], row["turn"]) for row in part.failures} == {(index, 3) for index in indices}
    others = [path for path in part.folder.iterdir() if path.name != "failures.jsonl"]
    assert "HTTP 503" not in "".join(path.read_bytes().decode(errors="replace") for path in others)

    again = run_task(talker(Talker(down=True)), LAKE, SLIPPERY, tmp_path / "part")
    assert (again.summary, again.failures) == (part.summary, part.failures)
    policy = Talker()
    assert run_task(talker(policy), LAKE, SLIPPERY, tmp_path / "part").complete
    assert policy.asked == failed
    assert contents(tmp_path / "part") == whole(LAKE)


@pytest.mark.parametrize("task", MIXED.tasks)
def test_a_run_without_any_answer_has_no_figures_rather_than_zeros(task: str, tmp_path: Path) -> None:
    class Dead:
        def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
            return [Completion(text="", error="no answer") for _ in prompts]

    result = run_task(talker(Dead()), MIXED, task, tmp_path)
    assert (result.complete, result.episodes, result.summary["failed"]) == (False, [], MIXED.episodes)
    figures = ("reward", "success", "normalised", "luck_adjusted", "regret_per_step", "decisions", "optimal_decisions")
    figures += ("prompt_tokens",)
    assert [result.summary[name] for name in figures] == [None] * len(figures)
    assert result.summary["references"] == {}
    assert load_result(result.folder) == result
