"""The endpoints as tools of a language model, called by a real client of the Model Context Protocol."""

from __future__ import annotations

import ast
import asyncio
import json
from typing import Any

import pytest
from watch import watch

from tests.space.served import Served

pytest.importorskip("mcp", reason="gradio's extra `mcp` asks for an older pydantic than ours: pip install 'mcp<2' to run this")

LAKE = "FrozenLake-NotSlippery-v1"


def test_a_language_model_finds_the_endpoints_as_tools_and_calls_them(space: Served) -> None:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    async def session() -> tuple[dict[str, Any], Any, Any]:
        async with streamablehttp_client(f"{space.url}gradio_api/mcp/") as (read, write, _), ClientSession(read, write) as mcp:
            await mcp.initialize()
            tools = {tool.name: tool for tool in (await mcp.list_tools()).tools}
            name = next(name for name in tools if name.endswith("watch"))
            played = await mcp.call_tool(name, {"game": LAKE, "seed": 3, "player": "lake"})
            refused = await mcp.call_tool(name, {"game": LAKE, "seed": 3, "player": "../etc"})
            return tools, played, refused

    from answers import ANSWERS

    tools, played, refused = asyncio.run(session())
    assert set(tools) == set(ANSWERS)
    assert all(tool.description for tool in tools.values())
    assert ast.literal_eval(played.content[0].text) == json.loads(json.dumps(watch(LAKE, 3, "lake")))
    assert refused.isError
    assert "unknown player '../etc'" in refused.content[0].text
