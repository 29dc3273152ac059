"""The Space under load: crowds and hostile requests do not keep a visitor from an answer."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import present
import pytest
from leaderboard_page import leaderboard_page

from tests.space.hostile import BODIES
from tests.space.served import Served

LAKE, SOLO = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
NAME = '<img src="http://198.51.100.1/x"><b>'


class Visitor:
    """A page or a program at one address."""

    def __init__(self, space: Served, address: str) -> None:
        self.http = httpx.Client(base_url=space.url, headers={"x-forwarded-for": address}, timeout=60)
        config = self.http.get("config").json()
        self.board = next(each["id"] for each in config["components"] if each["props"].get("elem_id") == "play-board")

    def play(self, name: str, **given: Any) -> tuple[float, dict[str, Any]]:
        """What the Play tab asks. Returns seconds and the answer."""
        began = time.monotonic()
        asked = {"data": given, "component_id": self.board, "session_hash": "a", "fn_name": name}
        found: dict[str, Any] = self.http.post("gradio_api/component_server", json=asked).json()
        return time.monotonic() - began, found

    def watch(self, game: str, seed: int, player: str) -> tuple[float, str]:
        """Returns seconds and the stream of the answer."""
        began = time.monotonic()
        asked = {"game": game, "seed": seed, "player": player}
        event = self.http.post("gradio_api/call/v2/watch", json=asked).json()["event_id"]
        answer = self.http.get(f"gradio_api/call/v2/watch/{event}").text
        return time.monotonic() - began, answer


def test_a_bundled_replay_takes_half_a_second_and_a_live_episode_of_a_loaded_model_few(space: Served) -> None:
    visitor = Visitor(space, "10.0.0.3")
    assert min(visitor.watch(LAKE, 3, "lake")[0] for _ in range(5)) < 0.5
    live = [visitor.watch(LAKE, seed, "lake") for seed in range(20, 26)]  # the first loads the model
    assert all("event: complete" in answer for _, answer in live)
    assert min(seconds for seconds, _ in live) < 3  # 0.8 s of one slow core


def test_sixty_calls_of_play_at_once_leave_every_other_visitor_an_answer(space: Served) -> None:
    crowd, other = Visitor(space, "10.0.0.1"), Visitor(space, "10.0.0.2")
    with ThreadPoolExecutor(61) as threads:
        calls = [threads.submit(crowd.play, "result", game=LAKE, seed=30, player="pocket") for _ in range(60)]
        while not any(call.done() for call in calls):  # the line has refused somebody, so it is full
            time.sleep(0.01)
        began = time.monotonic()
        for player, seed in (("lake", 3), ("random", 30)):  # a bundled replay, and a scripted player
            _, answer = other.watch(LAKE, seed, player)
            assert "event: complete" in answer
        assert other.play("step", game=LAKE, seed=3, actions=[], action="Down")[1]["turns_left"] == 7
        assert not all(call.done() for call in calls)
        assert time.monotonic() - began < 10
        assert "event: complete" in other.watch(LAKE, 30, "pocket")[1]  # the crowd has but half of the line
        found = [call.result() for call in calls]
    refused = [(seconds, answer["error"]) for seconds, answer in found if "error" in answer]
    assert len(refused) == 54
    assert all(re.search(r"6 requests from your address .* try again in about \d+ seconds$", said) for _, said in refused)
    assert sum(seconds < 5 for seconds, _ in refused) > 50


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
    answer = httpx.post(f"{space.url}gradio_api/queue/join", content=iter([b"{}"]), headers={"Content-Length": "2"})
    assert answer.request.headers["Content-Length"] == "2"
    twice = {"Content-Length": "2", "Transfer-Encoding": "chunked"}
    assert httpx.post(f"{space.url}gradio_api/queue/join", content=iter([b"{}"]), headers=twice).status_code == 411


def test_json_that_is_nested_too_deeply_is_refused(space: Served) -> None:
    answer = httpx.post(f"{space.url}gradio_api/call/watch", content=b"[" * 100_000)
    assert answer.status_code == 422
    assert answer.json() == {"detail": "watch: expected JSON that is not nested so deeply"}


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
