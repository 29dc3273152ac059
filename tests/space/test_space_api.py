"""The endpoints and tools of the Space: names, answers, and refusals in one line."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from tests.space.served import APP, Served

LAKE, SOLO = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"

ENDPOINTS = {
    "/watch": ["game", "seed", "player"],
    "/compare": ["game", "seed", "player_a", "player_b", "episodes"],
    "/play_step": ["game", "seed", "actions", "action"],
    "/play_result": ["game", "seed", "player"],
    "/words": ["game", "preset"],
    "/change_rules": ["game", "seed", "player", "instructions", "rules", "names", "expected", "episodes"],
    "/leaderboard": ["game", "results"],
    "/options": [],
}


@pytest.fixture(scope="module")
def client(space: Served) -> Client:
    return Client(space.url, verbose=False)


def test_the_endpoints_keep_their_names_and_parameters(client: Client) -> None:
    named: dict[str, Any] = client.view_api(return_format="dict", print_info=False)["named_endpoints"]  # type: ignore[index]
    assert {name: [each["parameter_name"] for each in told["parameters"]] for name, told in named.items()} == ENDPOINTS
    assert all(told.get("description") for told in named.values())
    readme = (APP.parent / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in readme for name in ENDPOINTS)


def test_compare_answers_after_every_batch_and_at_last_over_all(client: Client) -> None:
    job = client.submit(game=LAKE, seed=0, player_a="random", player_b="optimal", episodes=60, api_name="/compare")
    job.result()
    assert [each["episodes"] for each in job.outputs()] == [1, 26, 51, 60]
    found = job.outputs()[-1]
    assert found["b"]["reward"] == found["b"]["success"] == {"mean": 1.0, "low": pytest.approx(0.94, abs=0.001), "high": 1.0}
    assert found["difference"]["verdict"] == "better"
    assert job.outputs()[0]["a"]["reward"]["high"] > 0.79  # a reward of 0 or 1 has an interval from one episode on


def test_a_game_is_played_move_by_move_without_any_memory_of_the_server(client: Client) -> None:
    best = client.predict(game=LAKE, seed=3, player="optimal", api_name="/watch")["players"][0]
    names = best["game"]["actions"]
    actions: list[str] = []
    for step in best["steps"]:
        found = client.predict(game=LAKE, seed=3, actions=actions, action=names[step["action"]], api_name="/play_step")
        actions = found["actions"]
    assert (found["over"], found["success"], found["states"]) == (True, True, best["states"])
    others = client.predict(game=LAKE, seed=3, player="greedy", api_name="/play_result")
    assert [others["best"][key] for key in ("player", "value_optimal", "reward")] == ["optimal", 1.0, 1.0]


def test_words_are_what_change_rules_takes(client: Client) -> None:
    words = client.predict(game=SOLO, preset="poisoned", api_name="/words")
    assert "An apple gives -1" in words["rules"]
    job = client.submit(game=SOLO, seed=0, player="greedy", episodes=30, **words, api_name="/change_rules")
    job.result()
    found = job.outputs()[-1]
    assert words["instructions"] in found["told"]
    assert found["own"] == found["control"] == found["changed"]
    assert found["verdict"] == "does not read"  # it is a scripted player


LONG = "x" * 100_000
WORDS: dict[str, Any] = {"game": SOLO, "seed": 0, "player": "greedy", "instructions": "a", "rules": "", "names": [""] * 4}
WORDS |= {"expected": "less", "episodes": 1}


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("/watch", {"game": LAKE, "seed": 0, "player": "../../etc/passwd"}, "unknown player"),
        ("/watch", {"game": LAKE, "seed": 0, "player": "endpoint:http://169.254.169.254#m"}, "unknown player"),
        ("/watch", {"game": LAKE, "seed": 0, "player": "some/model"}, "offline"),
        ("/watch", {"game": LONG, "seed": 0, "player": "random"}, "100000 characters"),
        ("/watch", {"game": "Snake-Standart-v1", "seed": 0, "player": "random"}, "did you mean 'Snake-Standard-v1'"),
        ("/watch", {"game": SOLO, "seed": 0, "player": "optimal"}, "cannot play"),
        ("/watch", {"game": LAKE, "seed": 0, "player": None}, "unknown player"),
        ("/watch", {"game": LAKE, "seed": "three", "player": "random"}, "seed 'three': expected a whole number"),
        ("/words", {"game": SOLO, "preset": ["poisoned"]}, "unknown change"),
        ("/leaderboard", {"game": "", "results": ["a/b"]}, "is not a dataset"),
        ("/change_rules", WORDS | {"instructions": "", "rules": " "}, "empty instructions and rules"),
        ("/change_rules", WORDS | {"names": ["North"]}, "expected 4 names"),
        ("/change_rules", WORDS | {"names": ["up", "", "", ""]}, "four different"),
        ("/watch", {"game": LAKE, "seed": 10**30, "player": "random"}, "expected a whole number"),
        ("/compare", {"game": LAKE, "seed": 0, "player_a": "random", "player_b": "greedy", "episodes": 10**6}, "1 to 200"),
        ("/play_step", {"game": LAKE, "seed": 0, "actions": ["Left"] * 10**4, "action": ""}, "at most 8 moves"),
        ("/play_step", {"game": LAKE, "seed": 0, "actions": [], "action": "<script>"}, "unknown move"),
        ("/play_step", {"game": LAKE, "seed": 0, "actions": ["Left"] * 8, "action": "Left"}, "the episode was over after 8"),
        ("/change_rules", WORDS | {"instructions": LONG}, "100,000 characters: expected at most 4,000"),
        ("/change_rules", WORDS | {"names": ["</action>", "a", "b", "c"]}, "expected a letter"),
        ("/change_rules", WORDS | {"expected": "more"}, "expected one of less, same"),
    ],
)
def test_what_cannot_be_is_refused_in_one_short_line(client: Client, name: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(AppError) as caught:
        client.predict(**given, api_name=name)
    message = str(caught.value)
    assert said in message
    assert ("\n" in message, len(message) < 600) == (False, True)


def test_a_call_with_other_parameters_is_told_what_is_wrong(space: Served) -> None:
    for path, body, said in (
        ("v2/watch", {"game": LAKE, "seed": 0}, "watch: missing a required argument: 'player'; expected game, seed, player"),
        ("v2/words", {"game": SOLO, "x": 1}, "words: got an unexpected keyword argument 'x'; expected game, preset"),
        ("options", {"data": [1]}, "options: too many positional arguments; expected no parameters"),
    ):
        answer = httpx.post(f"{space.url}gradio_api/call/{path}", json=body)
        assert (answer.status_code, answer.json()["detail"]) == (422, said)


def test_every_endpoint_is_a_tool_that_answers_in_json_and_names_a_missing_argument(space: Served, client: Client) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("watch", {"game": LAKE, "seed": 3, "player": "lake"}),
        ("compare", {"game": LAKE, "seed": 0, "player_a": "random", "player_b": "optimal", "episodes": 30}),
        ("leaderboard", {"game": LAKE}),
        ("watch", {"game": LAKE, "seed": 3}),
        ("watch", {"game": LAKE, "seed": 3, "player": "../etc"}),
    ]

    async def session() -> list[tuple[bool | None, str]]:
        async with (
            streamable_http_client(f"{space.url}gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as tools,
        ):
            await tools.initialize()
            assert {f"/{tool.name}" for tool in (await tools.list_tools()).tools if tool.description} == ENDPOINTS.keys()
            answers = [await tools.call_tool(name, given) for name, given in asked]
            return [(answer.isError, answer.content[0].text) for answer in answers]  # type: ignore[union-attr]

    with ThreadPoolExecutor(1) as alone:  # Playwright's loop runs in the thread of the tests
        (_, replay), (_, compared), (_, rows), *refused = alone.submit(asyncio.run, session()).result()
    assert json.loads(replay) == client.predict(**asked[0][1], api_name="/watch")
    assert json.loads(compared)["episodes"] == 30
    assert {row["task"] for row in json.loads(rows)} == {LAKE}
    assert all(row["reward"]["low"] <= row["reward"]["mean"] <= row["reward"]["high"] for row in json.loads(rows))
    assert [wrong for wrong, _ in refused] == [True, True]
    assert "'player' is a required property" in refused[0][1]
    assert "unknown player '../etc': expected one of random" in refused[1][1]
