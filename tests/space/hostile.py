"""Attacks of hostile visitors on a served Space. Each returns the outcomes of its requests."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import httpx

from tests.space.questions import LAKE, REFUSED, SOLO, call, play

Attack = Callable[[httpx.AsyncClient, random.Random], Awaitable[Counter[str]]]

LATE = 5.0
"""Seconds after which a refusal is late."""

ASKED = {"game": LAKE, "seed": 20, "player": "random"}
SERVER = {"data": {}, "component_id": 1, "session_hash": "hostile", "fn_name": "play_step"}
BODIES: list[tuple[str, bytes]] = [
    *(("call/v2/watch", body) for body in (b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"game": NaN}', b"[" * 100_000)),
    *(
        ("call/v2/watch", json.dumps(ASKED | changes).encode())
        for changes in (
            {"seed": 10**400},
            {"seed": float("nan")},
            {"seed": -1},
            {"game": "<img src=http://198.51.100.1/x>"},
            {"game": {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}},
            {"player": "\u202e\x00\x1b[2J"},
            {"player": "🐍" * 10_000},
            {"player": "a/b" * 300_000},
        )
    ),
    ("call/v2/compare", json.dumps({"game": LAKE, "seed": 0, "player_a": "random", "player_b": "x", "episodes": 10**9}).encode()),
    ("call/v2/play_step", json.dumps({"game": LAKE, "seed": 0, "actions": ["Left"] * 10**5, "action": ""}).encode()),
    ("call/watch", b'{"data": []}'),
    ("run/watch", json.dumps({"data": [LAKE, 20, "pocket"]}).encode()),
    ("queue/join", b'{"data": [], "fn_index": 1000000000, "session_hash": "hostile"}'),
    ("queue/join", b'{"data": {}, "fn_index": "a"}'),
    *(
        ("component_server", json.dumps(SERVER | changes).encode())
        for changes in ({"fn_name": "__class__"}, {"component_id": 10**9}, {"session_hash": []}, {"session_hash": {}, "data": 1})
    ),
    ("upload", b"a file"),
    ("call/v2/watch", b" " * 3_000_000),
]


async def malformed(http: httpx.AsyncClient, rng: random.Random) -> Counter[str]:
    """One request that no page sends."""
    path, body = rng.choice(BODIES)
    try:
        answer = await http.post(f"gradio_api/{path}", content=body, headers={"content-type": "application/json"})
    except (httpx.ReadError, httpx.WriteError):
        return Counter(["cut off"])  # the server refuses a large body unread
    if answer.status_code != 200:
        return Counter([f"HTTP {answer.status_code}"])
    async with http.stream("GET", f"gradio_api/{path}/{answer.json()['event_id']}") as stream:
        events = [line async for line in stream.aiter_lines() if line.startswith("event: ")]
    return Counter(["refused" if events[-1] == "event: error" else "taken"])


async def leaver(http: httpx.AsyncClient, rng: random.Random) -> Counter[str]:
    """Starts a long comparison, and leaves without listening, before the first answer or after it."""
    players = rng.choice([("pocket", "lake"), ("random", "greedy")])
    asked = {"game": LAKE, "seed": 40, "player_a": players[0], "player_b": players[1], "episodes": 200}
    begun = await http.post("gradio_api/call/v2/compare", json=asked)
    if begun.status_code != 200:
        return Counter([f"HTTP {begun.status_code}"])
    when = rng.choice(["never listened", "left at once", "left after the first answer"])
    if when != "never listened":
        async with http.stream("GET", f"gradio_api/call/v2/compare/{begun.json()['event_id']}") as stream:
            lines = stream.aiter_lines()
            while when == "left after the first answer" and not (await anext(lines, "event: ")).startswith("event: "):
                pass
    return Counter([when])


async def flood(http: httpx.AsyncClient, rng: random.Random) -> Counter[str]:
    """60 requests at once."""
    kind, own = rng.choice(["play", "model", "bundled"]), {"game": LAKE, "seed": rng.randrange(50, 60), "player": "pocket"}
    asked = {"game": SOLO, "seed": 3, "player": "snake"} if kind == "bundled" else own

    async def outcome() -> str:
        began = time.monotonic()
        _, error = await (play(http, "named_result", asked) if kind == "play" else call(http, "watch", asked))
        if REFUSED in error:
            return "refused" if time.monotonic() - began < LATE else "refused late"
        return f"another error: {error[:80]}" if error else "answered"

    return Counter(f"{kind}: {each}" for each in await asyncio.gather(*(outcome() for _ in range(60))))


ATTACKS: dict[str, Attack] = {"malformed": malformed, "leaver": leaver, "flood": flood}
