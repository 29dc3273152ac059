"""Hostile requests to the Space, hostile names, and full lines."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import players
import present
import pytest
from leaderboard import leaderboard_page

from msgrpo_hub.errors import UserError
from tests.space.hostile import BODIES
from tests.space.served import Served

LAKE, SOLO = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
NAME = '<img src="http://198.51.100.1/x"><b>'


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


def test_a_large_request_is_refused_before_gradio_keeps_it(space: Served) -> None:
    body = json.dumps({"game": LAKE, "seed": 20, "player": "a/b" * 2**16}).encode()
    answer = httpx.post(f"{space.url}gradio_api/call/v2/watch", content=body)
    assert answer.status_code == 413
    assert answer.json() == {"detail": f"{len(body)} bytes: expected at most 131,072"}


def test_a_request_with_two_lengths_is_refused(space: Served) -> None:
    twice = {"Content-Length": "2", "Transfer-Encoding": "chunked"}
    assert httpx.post(f"{space.url}gradio_api/queue/join", content=iter([b"{}"]), headers=twice).status_code == 411


def test_json_that_is_nested_too_deeply_is_refused(space: Served) -> None:
    answer = httpx.post(f"{space.url}gradio_api/call/watch", content=b"[" * 100_000)
    assert (answer.status_code, answer.json()["detail"]) == (422, "watch: expected JSON that is not nested so deeply")


@pytest.mark.parametrize(
    "path",
    [
        *("upload", "file=https://example.org/x.png", "file=http://127.0.0.1/", "file/https://example.org/x.png"),
        *("proxy=https://example.org", "deep_link?session_hash=x"),
    ],
)
def test_the_server_takes_no_file_and_fetches_no_url_of_a_visitor(space: Served, path: str) -> None:
    assert httpx.post(f"{space.url}gradio_api/{path}", content=b"x").status_code == 403
    assert httpx.get(f"{space.url}gradio_api/{path}").status_code == 403


def test_no_table_shows_a_name_as_html() -> None:
    score = {"mean": 0.5, "low": 0.4, "high": 0.6}
    figures = {"player": NAME, "reward": score, "success": score}
    compared = {"a": figures, "b": figures, "difference": score | {"p": 0.5, "verdict": "inconclusive", "detectable": 0.1}}
    rows = json.loads((Path(present.__file__).parent / "bundle" / "leaderboard.json").read_text())
    hostile = [{**row, "player": NAME, "task": NAME, "link": NAME, "rank": [1, 2]} for row in rows[:3]]
    for html in (present.comparison(compared | {"episodes": 30, "wanted": 30}), leaderboard_page(hostile)):
        assert "<img" not in html
        assert "<b>" not in html.replace('<p class="verdict"><b>', "")
        assert "&lt;img" in html


def test_a_full_line_refuses_at_once_and_work_is_done_in_order() -> None:
    line = players.Line("a model", at_once=1, places=2)
    with line.place(), line.place(), pytest.raises(UserError, match="too many requests wait for a model"), line.place():
        pass
    with line.place():
        done = [line.threads.submit(str, number) for number in range(5)]
        assert line.run(len, "abc") == 3
        assert [each.result() for each in done] == ["0", "1", "2", "3", "4"]
