"""The endpoints as tools of a language model, called by a real client of the Model Context Protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx
import jsonschema
from answers import ANSWERS
from human import play_step
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from watch import watch

from tests.space.served import Served
from tests.space.test_space_api import ENDPOINTS, closed

LAKE = "FrozenLake-NotSlippery-v1"
Found = TypeVar("Found")


def in_session(space: Served, does: Callable[[ClientSession], Awaitable[Found]]) -> Found:
    """What a client does after its handshake with the server."""

    async def session() -> Found:
        async with (
            streamable_http_client(f"{space.url}gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as client,
        ):
            await client.initialize()
            return await does(client)

    with ThreadPoolExecutor(1) as alone:  # Playwright's loop runs in the thread of the tests
        return alone.submit(asyncio.run, session()).result()


def test_every_endpoint_is_a_tool_with_a_description_and_typed_parameters(space: Served) -> None:
    tools = {tool.name: tool for tool in in_session(space, lambda client: client.list_tools()).tools}
    assert {f"/{name}": list(tool.inputSchema["properties"]) for name, tool in tools.items()} == ENDPOINTS
    assert all(tool.description and tool.outputSchema for tool in tools.values())
    seed = tools["watch"].inputSchema["properties"]["seed"]
    assert seed["type"] == "integer"
    told = httpx.get(f"{space.url}gradio_api/mcp/schema").json()
    assert {each["name"]: each["inputSchema"] for each in told} == {name: tool.inputSchema for name, tool in tools.items()}


def test_an_answer_is_that_of_the_endpoint_as_json_with_the_schema_that_was_promised(space: Served) -> None:
    asked: dict[str, dict[str, Any]] = {
        "watch": {"game": LAKE, "seed": 3, "player": "lake"},
        "play_step": {"game": LAKE, "seed": 3, "actions": ["Right"], "action": "Down"},
    }

    async def calls(client: ClientSession) -> Any:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        answers = {name: await client.call_tool(name, given) for name, given in asked.items()}
        return tools, answers, await client.call_tool("leaderboard", {"game": LAKE})

    tools, answers, board = in_session(space, calls)
    for name, function in {"watch": watch, "play_step": play_step}.items():
        assert answers[name].structuredContent == json.loads(answers[name].content[0].text)
        assert answers[name].structuredContent == json.loads(json.dumps(function(**asked[name])))
        jsonschema.validate(answers[name].structuredContent, closed(tools[name].outputSchema))
    rows = board.structuredContent["result"]
    assert {row["task"] for row in rows} == {LAKE}
    assert rows[0].keys() == ANSWERS["leaderboard"].__args__[0].__annotations__.keys()


def test_a_long_call_tells_how_far_it_is_and_answers_with_its_last_value(space: Served) -> None:
    told: list[tuple[float, float | None]] = []

    async def progress(done: float, wanted: float | None, _: str | None) -> None:
        told.append((done, wanted))

    given = {"game": LAKE, "seed": 0, "player_a": "random", "player_b": "optimal", "episodes": 30}
    answer = in_session(space, lambda client: client.call_tool("compare", given, progress_callback=progress))
    assert told == [(1, 30), (26, 30), (30, 30)]
    assert answer.structuredContent
    assert answer.structuredContent["episodes"] == 30
    assert answer.structuredContent["difference"]["verdict"] == "better"


def test_what_cannot_be_is_an_error_that_says_what_is_expected(space: Served) -> None:
    async def calls(client: ClientSession) -> list[Any]:
        wrong: tuple[dict[str, Any], ...] = ({"seed": 3, "player": "../etc"}, {"seed": "three", "player": "greedy"}, {"seed": 3})
        return [await client.call_tool("watch", {"game": LAKE, **given}) for given in wrong]

    refused = in_session(space, calls)
    assert [answer.isError for answer in refused] == [True] * 3
    said = [answer.content[0].text for answer in refused]
    assert "unknown player '../etc': expected one of random" in said[0]
    assert "seed\n  Input should be a valid integer" in said[1]
    assert "player\n  Field required" in said[2]
