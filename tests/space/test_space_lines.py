"""Waiting lines: first come, first served; a full line refuses at once; what needs no line waits for nobody."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import copy_context

import lines
import pytest
from compare import compare
from lines import Line
from watch import FIRST, watch

from msgrpo_hub.errors import UserError

LAKE = "FrozenLake-NotSlippery-v1"


@contextmanager
def places(line: Line, number: int) -> Iterator[None]:
    """So many places of a line are taken, each by another visitor."""

    def take(visitor: str) -> None:
        lines.visitor.set(visitor)
        taken.enter_context(line.place())

    with ExitStack() as taken:
        for each in range(number):
            copy_context().run(take, f"10.0.1.{each}")
        yield


def test_who_comes_back_at_once_waits_behind_those_who_came_before() -> None:
    line, played = Line("a model", at_once=1, places=9), []

    def visitor(name: str) -> None:
        for _ in range(3):
            with line.turn():
                played.append(name)
                time.sleep(0.01)

    with line.turn():
        threads = [threading.Thread(target=visitor, args=(name,)) for name in "abc"]
        for each in threads:
            each.start()
            time.sleep(0.01)
    for each in threads:
        each.join()
    assert "".join(played) == "abcabcabc"


def test_only_so_many_play_at_once() -> None:
    line, playing, most = Line("a scripted player", at_once=2, places=9), [0], [0]

    def visitor() -> None:
        with line.turn():
            playing[0] += 1
            most[0] = max(most[0], playing[0])
            time.sleep(0.01)
            playing[0] -= 1

    threads = [threading.Thread(target=visitor) for _ in range(9)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert most == [2]


def test_a_full_line_refuses_at_once_and_says_when_to_come_back() -> None:
    with places(lines.MODELS, lines.MODELS.places), pytest.raises(UserError, match="12 requests wait for a model") as caught:
        watch(LAKE, 20, "lake")
    assert re.search(r"try again in about \d+ seconds$", str(caught.value))


def test_the_slower_a_line_the_later_a_visitor_is_told_to_come_back() -> None:
    line = Line("a model", at_once=1, places=4)
    for _ in range(9):
        with line.place():
            pass
    with places(line, 4):
        assert seconds_told(line) == 1
        line._since -= 30  # the first request has played for half a minute
        assert 60 <= seconds_told(line) <= 62


def seconds_told(line: Line) -> int:
    with pytest.raises(UserError) as caught, line.place():
        pass
    return int(str(caught.value).split()[-2])


def test_one_visitor_takes_at_most_half_of_a_line() -> None:
    line = Line("a model", at_once=1, places=6)

    def ask() -> None:
        lines.visitor.set("10.0.0.1")
        with ExitStack() as taken:
            for _ in range(3):
                taken.enter_context(line.place())
            with pytest.raises(UserError, match="3 requests from your address wait for a model"), line.place():
                pass
            with places(line, 3):  # others have room
                pass

    copy_context().run(ask)
    with places(line, 6):
        pass


def test_a_request_that_is_given_up_leaves_its_place() -> None:
    steps = compare(LAKE, 20, "random", "greedy", 60)
    next(steps)
    assert lines.SCRIPTED._visitors.total() == 1
    steps.close()
    assert lines.SCRIPTED._visitors.total() == 0


def test_random_play_waits_for_no_model() -> None:
    with places(lines.MODELS, lines.MODELS.places), lines.MODELS.turn():
        assert watch(LAKE, 20, "random")["players"]


def test_a_bundled_replay_waits_for_nobody() -> None:
    with ExitStack() as taken:
        for line in (lines.MODELS, lines.SCRIPTED, lines.DATASETS):
            taken.enter_context(places(line, line.places))
            for _ in range(line.at_once):
                taken.enter_context(line.turn())
        assert watch(*FIRST)["players"]


def test_a_name_that_is_no_player_is_refused_without_waiting() -> None:
    with places(lines.MODELS, lines.MODELS.places), pytest.raises(UserError, match="unknown player"):
        watch(LAKE, 20, "../etc")
