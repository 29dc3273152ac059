"""The sessions of a remote game: how many are open, who waits for whom, and when a server is given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.interop import openenv_sessions
from msgrpo_hub.interop.openenv_game import OpenEnvGame
from msgrpo_hub.interop.openenv_sessions import Full, Lost, Sessions, Shown
from msgrpo_hub.models.vllm_policy import at_own_pace
from msgrpo_hub.rollout import play_episodes, play_groups
from tests.interop.mixed import Mixed
from tests.interop.walks import Server, Walk


def in_threads(game: OpenEnvGame, keys: list[tuple[int, int]]) -> list[Episode]:
    """Each episode in a thread of its own, as with `--acting vllm`."""
    return at_own_pace(lambda key: play_episodes(game, Mixed(), [key])[0], keys, len(keys))


def slow(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A server that takes its time for a step."""
    step = Walk.step

    def later(self: Walk, action: Mapping[str, Any]) -> Shown:
        time.sleep(seconds)
        return step(self, action)

    monkeypatch.setattr(Walk, "step", later)


def test_sessions_that_other_threads_hold_are_waited_for_beyond_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [(1, member) for member in range(4)]
    expected = play_episodes(Server().game(horizon=2), Mixed(), keys)
    monkeypatch.setattr(openenv_sessions, "_PATIENCE", 0.02)
    slow(monkeypatch, 0.05)
    server = Server(capacity=1)
    assert in_threads(server.game(horizon=2), keys) == expected
    assert (server.most, server.open) == (1, [])


def test_threads_open_no_more_sessions_than_a_game_may(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [(1, member) for member in range(8)]
    expected = play_episodes(Server().game(), Mixed(), keys)
    slow(monkeypatch, 0.002)
    server = Server()
    game = server.game()
    object.__setattr__(game, "_sessions", Sessions(lambda: server.connect("http://walk"), most=3))
    assert in_threads(game, keys) == expected
    assert (server.most, server.open) == (3, [])


def test_a_session_that_is_taken_while_another_is_refused_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openenv_sessions, "_PATIENCE", 0.0)
    server = Server(capacity=1)
    sessions = Sessions(lambda: server.connect("http://walk"))
    first, _ = sessions.started(seed=1)
    sessions.keep("here", first)

    def taken(*_: object, **__: object) -> Shown:
        monkeypatch.undo()
        assert sessions.take("here") is first
        threading.Timer(0.05, sessions.keep, ["there", first]).start()
        raise Full

    monkeypatch.setattr(Walk, "reset", taken)
    assert sessions.started(seed=2)[0] is first
    assert len(sessions) == 1


@pytest.mark.parametrize("allowed", [0, 2])
def test_a_server_that_closes_new_connections_at_once_is_not_asked_over_and_over(
    allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a gateway that allows two connections: they serve the group, and without any the run ends in one line."""
    monkeypatch.setattr(openenv_sessions, "_PATIENCE", 0.2)
    reset, asked, server = Walk.reset, [0], Server()
    expected = play_groups(Server().game(), Mixed(), [1, 2], 4)

    def closed(self: Walk, **start: Any) -> Shown:
        asked[0] += 1
        assert asked[0] < 200
        if self in server.open[allowed:]:
            server.open.remove(self)
            raise Lost
        return reset(self, **start)

    monkeypatch.setattr(Walk, "reset", closed)
    if allowed:
        assert play_groups(server.game(), Mixed(), [1, 2], 4) == expected
    else:
        with pytest.raises(UserError, match="closes every session at its start: look at its log"):
            play_groups(server.game(), Mixed(), [1, 2], 4)
        assert asked[0] < 10
    assert server.open == []
