"""What hostile visitors do to a served Space. Each attack returns what came of its requests."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx

from tests.space.questions import LAKE, SOLO, call, play

Attack = Callable[[httpx.AsyncClient, random.Random], Awaitable[Counter[str]]]

LATE = 5.0
"""Seconds after which a refusal is late."""

ASKED = {"game": LAKE, "seed": 20, "player": "random"}
SERVER = {"data": {}, "component_id": 1, "session_hash": "hostile", "fn_name": "step"}
BODIES: list[tuple[str, bytes]] = [
    *(("call/v2/watch", body) for body in (b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"game": NaN}', b"[" * 100_000)),
    *(
        ("call/v2/watch", json.dumps(ASKED | changes).encode())
        for changes in (
            {"seed": 10**400},
            {"seed": float("nan")},
            {"seed": 1e308},
            {"seed": -1},
            {"seed": [[[]]]},
            {"game": "<img src=http://198.51.100.1/x>"},
            {"game": {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}},
            {"player": "../../etc/passwd"},
            {"player": "endpoint:http://169.254.169.254#m"},
            {"player": "\u202e\x00\x1b[2J"},
            {"player": "🐍" * 10_000},
            {"player": "a/b" * 300_000},
            {"player": None},
        )
    ),
    ("call/v2/compare", json.dumps({"game": LAKE, "seed": 0, "player_a": "random", "player_b": "x", "episodes": 10**9}).encode()),
    ("call/v2/play_step", json.dumps({"game": LAKE, "seed": 0, "actions": ["Left"] * 10**5, "action": ""}).encode()),
    ("call/v2/nothing", b"{}"),
    ("call/watch", b'{"data": []}'),
    ("run/watch", json.dumps({"data": [LAKE, 20, "pocket"]}).encode()),
    ("queue/join", b'{"data": [], "fn_index": 1000000000, "session_hash": "hostile"}'),
    ("queue/join", b'{"data": {}, "fn_index": "a"}'),
    *(
        ("component_server", json.dumps(SERVER | changes).encode())
        for changes in ({"fn_name": "__class__"}, {"component_id": 10**9}, {"session_hash": []}, {"session_hash": {}, "data": 1})
    ),
    ("upload", b"a file"),
    ("call/v2/play_step", json.dumps({"game": LAKE, "seed": 0, "actions": ["Left"] * 10**4, "action": ""}).encode()),
    ("call/v2/watch", b" " * 3_000_000),
]


async def malformed(http: httpx.AsyncClient, rng: random.Random) -> Counter[str]:
    """One request that no page sends."""
    path, body = rng.choice(BODIES)
    return Counter([await _outcome(http, path, body)])


async def _outcome(http: httpx.AsyncClient, path: str, body: bytes) -> str:
    try:
        answer = await http.post(f"gradio_api/{path}", content=body, headers={"content-type": "application/json"})
    except (httpx.ReadError, httpx.WriteError):
        return "cut off"  # the server refuses a large body unread
    if answer.status_code != 200:
        return f"HTTP {answer.status_code}"
    async with http.stream("GET", f"gradio_api/{path}/{answer.json()['event_id']}") as stream:
        events = [line async for line in stream.aiter_lines() if line.startswith("event: ")]
    return "refused" if events[-1] == "event: error" else "taken"


async def leaver(http: httpx.AsyncClient, rng: random.Random) -> Counter[str]:
    """Asks for much, and leaves before the answer, at its beginning, or without listening at all."""
    players = rng.choice([("pocket", "lake"), ("random", "greedy")])
    asked = {"game": LAKE, "seed": 40, "player_a": players[0], "player_b": players[1], "episodes": 200}
    begun = await http.post("gradio_api/call/v2/compare", json=asked)
    if begun.status_code != 200:
        return Counter([f"HTTP {begun.status_code}"])
    when = rng.choice(["never listened", "left at once", "left after the first answer"])
    if when != "never listened":
        async with http.stream("GET", f"gradio_api/call/v2/compare/{begun.json()['event_id']}") as stream:
            if when == "left after the first answer":
                await _first_line(stream.aiter_lines())
    return Counter([when])


async def _first_line(lines: AsyncIterator[str]) -> None:
    async for line in lines:
        if line.startswith("event: "):
            return


async def flood(http: httpx.AsyncClient, rng: random.Random) -> Counter[str]:
    """60 requests at once."""
    result: Any = {"game": LAKE, "seed": rng.randrange(50, 60), "player": "pocket"}
    kind = rng.choice(["play", "model", "bundled"])
    if kind == "play":
        outcomes = await asyncio.gather(*(_timed(_played(http, result)) for _ in range(60)))
    else:
        asked = result if kind == "model" else {"game": SOLO, "seed": 3, "player": "snake"}
        outcomes = await asyncio.gather(*(_timed(_watched(http, asked)) for _ in range(60)))
    return Counter(f"{kind}: {outcome}" for outcome in outcomes)


async def _played(http: httpx.AsyncClient, given: Any) -> str:
    return str((await play(http, "result", given)).get("error", ""))


async def _watched(http: httpx.AsyncClient, given: Any) -> str:
    return (await call(http, "watch", given)).error


async def _timed(request: Awaitable[str]) -> str:
    began = time.monotonic()
    error = await request
    if not error:
        return "answered"
    if "try again in" not in error:
        return f"another error: {error[:80]}"
    return "refused" if time.monotonic() - began < LATE else "refused late"


ATTACKS: dict[str, Attack] = {"malformed": malformed, "leaver": leaver, "flood": flood}
