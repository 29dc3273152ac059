"""Hostile requests to the Space, full lines, and the committed result of the soak."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore

import httpx
import players
import pytest

from msgrpo_hub.errors import UserError
from tests.space import soak
from tests.space.hostile import ATTACKS, BODIES
from tests.space.served import Served

LAKE = "FrozenLake-NotSlippery-v1"


@pytest.mark.parametrize("number", range(len(BODIES)))
def test_a_malformed_request_is_refused(space: Served, number: int) -> None:
    path, body = BODIES[number]
    try:
        answer = httpx.post(f"{space.url}gradio_api/{path}", content=body, headers={"content-type": "application/json"})
    except (httpx.ReadError, httpx.WriteError):
        assert len(body) > 2**17  # refused unread
        return
    if answer.status_code == 200:
        answer = httpx.get(f"{space.url}gradio_api/{path}/{answer.json()['event_id']}")
        assert "event: error" in answer.text
        assert len(answer.text) < 1_000
    else:
        assert 400 <= answer.status_code <= 500


def test_a_large_request_and_one_with_two_lengths_are_refused_before_gradio_keeps_them(space: Served) -> None:
    body = json.dumps({"game": LAKE, "seed": 20, "player": "a/b" * 2**16}).encode()
    answer = httpx.post(f"{space.url}gradio_api/call/v2/watch", content=body)
    assert (answer.status_code, answer.json()) == (413, {"detail": f"{len(body)} bytes: expected at most 131,072"})
    twice = {"Content-Length": "2", "Transfer-Encoding": "chunked"}
    assert httpx.post(f"{space.url}gradio_api/queue/join", content=iter([b"{}"]), headers=twice).status_code == 411


def test_the_server_takes_no_file_and_fetches_no_url_of_a_visitor(space: Served) -> None:
    files = ("upload", "file=https://example.org/x.png", "file=http://127.0.0.1/", "file/https://example.org/x.png")
    for path in (*files, "proxy=https://example.org", "deep_link?session_hash=x"):
        assert httpx.post(f"{space.url}gradio_api/{path}", content=b"x").status_code == 403
        assert httpx.get(f"{space.url}gradio_api/{path}").status_code == 403


def test_a_full_line_refuses_at_once_and_work_is_done_in_order() -> None:
    line = players.Line("a model", ThreadPoolExecutor(1), BoundedSemaphore(2))
    with line.place(), line.place(), pytest.raises(UserError, match="too many requests wait for a model"), line.place():
        pass
    with line.place():
        done = [line.threads.submit(str, number) for number in range(5)]
        assert line.run(len, "abc") == 3
        assert [each.result() for each in done] == ["0", "1", "2", "3", "4"]


def test_no_answer_was_lost_or_wrong_memory_stayed_flat_and_a_bundled_replay_took_under_two_seconds() -> None:
    found = json.loads(soak.RESULT.read_text(encoding="utf-8"))
    assert found["clients"] >= 20
    assert found["minutes"] >= 30
    assert found["visitors"].keys() == set(soak.ROLES) - ATTACKS.keys()
    assert found["attacks"].keys() == ATTACKS.keys()
    for kind, figures in found["visitors"].items():
        assert figures["answered"], kind
        assert not figures["wrong"], kind
        assert not figures["lost"], kind
    assert found["visitors"]["bundled"]["refused"] == 0
    assert found["visitors"]["bundled"]["seconds"]["p95"] < 2
    assert "taken" not in found["attacks"]["malformed"]
    assert found["errors_of_the_space"] == 0
    assert found["line_afterwards"]["places_free"] == soak.PLACES
    assert abs(found["memory_mib"]["slope_per_hour"]) < 0.1 * found["memory_mib"]["last"]
