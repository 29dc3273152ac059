"""A run that is killed, or whose server fails, goes on to the same bytes and plays what is missing only."""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import load_result
from msgrpo_hub.evaluation.runner import run_task
from tests.evaluation.played import LAKE, MIXED, SLIPPERY, Silent, Talker, contents, talker

# ---- kill -9


def killed(work: Any, moment: int) -> bool:
    """Does some work in another process, which gets a SIGKILL at the n-th call or return; whether it came to that."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)
        left = moment

        def count(frame: Any, event: str, argument: Any) -> None:  # noqa: ARG001
            nonlocal left
            if frame.f_code.co_filename.endswith(("storage/run_files.py", "storage/files.py", "evaluation/runner.py")):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.setprofile(count)
        work()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def test_a_run_killed_at_any_moment_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    """Also where the call that goes on is killed in turn, and with another batch size."""
    suite = replace(LAKE, episodes=4)
    whole = run_task(talker(Talker()), suite, SLIPPERY, tmp_path / "whole")
    moment, died = 1, 0
    while True:
        folder = tmp_path / str(moment)
        if not killed(lambda folder=folder: run_task(talker(Talker()), suite, SLIPPERY, folder, 2), moment):
            break
        died += 1
        killed(lambda folder=folder: run_task(talker(Talker()), suite, SLIPPERY, folder, 4), moment // 2 + 1)
        again = run_task(talker(Talker()), suite, SLIPPERY, folder, 3)
        assert again == replace(whole, folder=again.folder)
        assert contents(folder) == contents(tmp_path / "whole"), moment
        moment += max(1, moment // 6)
    assert died > 20


def test_a_second_process_waits_for_the_run_that_the_first_plays_and_takes_its_result(tmp_path: Path) -> None:
    """Whichever plays, both end with the whole result, and every episode is played once."""
    suite = replace(LAKE, episodes=8)
    read, write = os.pipe()
    first = os.fork()
    if first == 0:
        signal.alarm(100)
        slow = Slow(lambda: os.write(write, b"."))
        run_task(talker(slow), suite, SLIPPERY, tmp_path / "runs", 2)
        os._exit(0)
    assert os.read(read, 1) == b"."  # it plays
    policy = Talker()
    with pytest.MonkeyPatch.context() as patch:
        told = io.StringIO()
        patch.setattr(sys, "stderr", told)
        found = run_task(talker(policy), suite, SLIPPERY, tmp_path / "runs", 2)
    assert os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) == 0
    assert "another process plays talker on FrozenLake-Slippery-v1: waiting for its result" in told.getvalue()
    assert policy.asked == 0
    run_task(talker(Talker()), suite, SLIPPERY, tmp_path / "alone", 2)
    assert found.complete
    assert contents(tmp_path / "runs") == contents(tmp_path / "alone")


def test_a_second_process_goes_on_where_the_first_was_killed(tmp_path: Path) -> None:
    suite = replace(LAKE, episodes=8)
    read, write = os.pipe()
    first = os.fork()
    if first == 0:
        run_task(talker(Slow(lambda: os.write(write, b"."))), suite, SLIPPERY, tmp_path / "runs", 2)
        os._exit(0)
    for _ in range(8):
        assert os.read(read, 1) == b"."
    Timer(0.5, lambda: os.kill(first, signal.SIGKILL)).start()
    run_task(talker(policy := Talker()), suite, SLIPPERY, tmp_path / "runs", 2)
    assert os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) == -signal.SIGKILL
    run_task(talker(Talker()), suite, SLIPPERY, tmp_path / "alone", 2)
    assert contents(tmp_path / "runs") == contents(tmp_path / "alone")
    assert 0 < policy.asked <= 8


class Slow(Talker):
    """Says when it is asked, and takes its time to answer."""

    def __init__(self, asked_for: Callable[[], object]) -> None:
        super().__init__()
        self.asked_for = asked_for

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        self.asked_for()
        time.sleep(0.1)
        return super().complete(prompts, rngs)


def test_a_log_cut_at_any_byte_goes_on_to_the_same_bytes_and_plays_only_what_is_missing(tmp_path: Path) -> None:
    suite = replace(LAKE, episodes=8)
    whole = run_task(talker(Talker()), suite, SLIPPERY, tmp_path / "whole")
    failed = run_task(talker(Talker(down=True)), suite, SLIPPERY, tmp_path / "failed", 3)
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
        run_task(talker(policy), suite, SLIPPERY, tmp_path / "cut")
        assert contents(tmp_path / "cut") == contents(tmp_path / "whole"), cut
        assert policy.asked == suite.episodes - sum(end < cut for end in ends)
    assert whole.complete


# ---- failures are not play


def test_an_episode_that_a_server_failed_is_not_scored_and_is_all_that_the_next_call_plays(tmp_path: Path) -> None:
    """Seen elsewhere: 99 of 340 episodes scored as deaths that were a server's errors; crashed episodes left out of a mean."""
    whole = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path / "whole")
    policy = Talker(down=True)
    part = run_task(talker(policy), LAKE, SLIPPERY, tmp_path / "part", 5)
    failed = LAKE.episodes - len(part.episodes)
    assert 0 < failed < LAKE.episodes
    assert not part.complete
    assert part == load_result(part.folder)
    assert (part.summary["complete"], part.summary["failed"], part.summary["episodes"]) == (False, failed, len(part.episodes))
    kept = {episode.seed: score for episode, score in zip(whole.episodes, whole.scores, strict=True)}
    assert part.scores == [kept[episode.seed] for episode in part.episodes]
    assert part.summary["reward"]["mean"] == np.mean([score.reward for score in part.scores])
    rows = pq.read_table(part.folder / "steps.parquet").to_pylist()
    assert len(rows) == part.summary["steps"] == sum(len(episode.steps) for episode in part.episodes)
    assert part.reasons == [f"{failed} × HTTP 503 after 6 attempts"]
    assert {row["index"] for row in part.failures} == {*range(LAKE.episodes)} - {whole.episodes.index(e) for e in part.episodes}
    assert {row["turn"] for row in part.failures} == {3}
    others = [path for path in part.folder.iterdir() if path.name != "failures.jsonl"]
    assert "HTTP 503" not in "".join(path.read_bytes().decode(errors="replace") for path in others)

    again = run_task(talker(Talker(down=True)), LAKE, SLIPPERY, tmp_path / "part")
    assert (again.summary, again.failures) == (part.summary, part.failures)
    policy = Talker()
    assert run_task(talker(policy), LAKE, SLIPPERY, tmp_path / "part").complete
    assert policy.asked == failed
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


class Dead:
    """A server that never answers."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        return [Completion(text="", error="no answer") for _ in prompts]


@pytest.mark.parametrize("task", MIXED.tasks)
def test_a_run_of_which_nothing_was_answered_has_no_figures_rather_than_zeros(task: str, tmp_path: Path) -> None:
    result = run_task(talker(Dead()), MIXED, task, tmp_path)
    assert (result.complete, result.episodes, result.summary["failed"]) == (False, [], MIXED.episodes)
    figures = ("reward", "success", "normalised", "luck_adjusted", "regret_per_step", "decisions", "optimal_decisions")
    figures += ("prompt_tokens",)
    assert [result.summary[name] for name in figures] == [None] * len(figures)
    assert result.summary["references"] == {}
    assert load_result(result.folder) == result


def test_a_mistake_of_the_user_in_the_middle_loses_nothing_that_was_played(tmp_path: Path) -> None:
    class Refused(Talker):
        def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
            if self.asked > 8:
                raise UserError("the prompt is longer than the context: take another model")
            return super().complete(prompts, rngs)

    with pytest.raises(UserError, match="longer than the context"):
        run_task(talker(Refused()), LAKE, SLIPPERY, tmp_path / "part", 4)
    policy = Talker()
    run_task(talker(policy), LAKE, SLIPPERY, tmp_path / "part", 4)
    assert policy.asked == 4
    run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path / "whole")
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


def test_a_complete_run_is_not_played_again(tmp_path: Path) -> None:
    first = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    before = contents(tmp_path)
    assert run_task(talker(Silent()), LAKE, SLIPPERY, tmp_path) == first
    assert contents(tmp_path) == before


def test_a_log_left_over_by_a_kill_at_the_very_end_is_cleared_away(tmp_path: Path) -> None:
    result = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    before = contents(tmp_path)
    (result.folder / "episodes.jsonl").write_text("")
    run_task(talker(Silent()), LAKE, SLIPPERY, tmp_path)
    assert contents(tmp_path) == before
