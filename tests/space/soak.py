"""`python -m tests.space.soak --minutes 30 --clients 20`: many visitors at one Space for a long time, some of them hostile.

Honest visitors compare each answer with the known one to the last character, and ask again ten seconds after a refusal. The
result goes to `tests/space/soak.json`; commit it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from tests.long import git
from tests.space.hostile import ATTACKS
from tests.space.questions import LAKE, REFUSED, Question, call, questions
from tests.space.served import Served, serving

RESULT = Path(__file__).with_name("soak.json")
ROLES = (
    *("bundled", "scripted", "model", "bundled", "play", "flood", "bundled", "compare", "malformed", "bundled"),
    *("rules", "scripted", "model", "bundled", "leaver", "compare", "bundled", "play", "model", "scripted"),
)
"""The role of each client; the twenty-first has the first role again."""

PATIENCE = 300.0
"""Seconds after which an answer counts as lost, and after which visitors who have left hold no place."""

THINKING, SAMPLING = 1.0, 2.0
"""Mean seconds between an answer and the next question; seconds between two samples of the server's memory."""

PLACES = 12
"""Places in the line of models."""


@dataclass
class Record:
    seconds: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = {"answered": len(self.seconds), "refused": len(self.refused)}
        for name, seconds in (("seconds", self.seconds), ("seconds_to_refusal", self.refused)):
            values = np.percentile(seconds, [50, 95, 100]).round(3).tolist() if seconds else []
            found[name] = dict(zip(("p50", "p95", "max"), values, strict=False))
        return {**found, "wrong": self.wrong[:20], "lost": self.lost[:20]}


class Soak:
    """A served Space, its visitors and their records."""

    def __init__(self, served: Served, asked: dict[str, list[Question]], seconds: float) -> None:
        self.served, self.asked = served, asked
        self.ends = time.monotonic() + seconds
        self.records: dict[str, Record] = defaultdict(Record)
        self.attacks: dict[str, Counter[str]] = defaultdict(Counter)
        self.memory: list[tuple[float, float]] = []

    async def run(self, clients: int) -> None:
        watching = asyncio.create_task(self.watch_memory())
        await asyncio.gather(*(self.client(number, ROLES[number % len(ROLES)]) for number in range(clients)))
        watching.cancel()

    async def client(self, number: int, role: str) -> None:
        rng = random.Random(number)
        async with httpx.AsyncClient(base_url=self.served.url, timeout=PATIENCE) as http:
            while time.monotonic() < self.ends:
                if role not in ATTACKS:
                    await self.visit(http, role, rng)
                else:
                    try:
                        self.attacks[role].update(await ATTACKS[role](http, rng))
                    except httpx.HTTPError as error:
                        self.attacks[role].update([type(error).__name__])
                await asyncio.sleep(rng.expovariate(1 / THINKING))

    async def visit(self, http: httpx.AsyncClient, kind: str, rng: random.Random) -> None:
        """Asks one question until it is not refused."""
        question, record = rng.choice(self.asked[kind]), self.records[kind]
        while True:
            began = time.monotonic()
            try:
                answer = await question.ask(http)
            except (httpx.HTTPError, ValueError) as error:
                record.lost.append(f"{question.requests}: {error!r}"[:500])
                return
            seconds = time.monotonic() - began
            if REFUSED not in answer[1]:
                record.seconds.append(seconds)
                if fault := question.fault_of(answer):
                    record.wrong.append(f"{str(question.requests)[:200]}: {fault}")
                return
            record.refused.append(seconds)
            if time.monotonic() > self.ends:
                return
            await asyncio.sleep(10)

    async def watch_memory(self) -> None:
        process, began = psutil.Process(self.served.pid), time.monotonic()
        while True:
            self.memory.append((time.monotonic() - began, process.memory_info().rss / 2**20))
            await asyncio.sleep(SAMPLING)


async def line_afterwards(served: Served) -> dict[str, float]:
    """How many requests the line of models takes at once after the visitors have gone, and the seconds until then."""
    began, free, asked = time.monotonic(), 0, {"game": LAKE, "seed": 20, "player": "pocket"}
    while free < PLACES and time.monotonic() - began < PATIENCE:
        await asyncio.sleep(30)
        async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE) as http:
            answers = await asyncio.gather(*(call(http, "watch", asked) for _ in range(PLACES)))
        free = sum(not error for _, error in answers)
    return {"places_free": free, "seconds": round(time.monotonic() - began)}


def soak(seconds: float, clients: int, folder: Path) -> dict[str, Any]:
    """Serves a Space to visitors, and returns their records."""
    asked = questions()
    with serving(folder) as served:
        run, began = Soak(served, asked, seconds), time.monotonic()
        asyncio.run(run.run(clients))
        lasted = time.monotonic() - began
        afterwards = asyncio.run(line_afterwards(served))
        log = served.log.read_text()
    # the slope over the second half in MiB an hour: a line fitted by least squares
    after, mebibytes = np.array(run.memory[len(run.memory) // 2 :]).T
    slope = float(np.polyfit(after / 3600, mebibytes, 1)[0]) if len(after) > 2 else 0.0
    memory = [round(value, 1) for _, value in run.memory]
    return {
        "minutes": round(lasted / 60, 1),
        "clients": clients,
        "visitors": {kind: run.records[kind].figures() for kind in sorted(run.records)},
        "attacks": {name: dict(sorted(counts.items())) for name, counts in sorted(run.attacks.items())},
        "line_afterwards": afterwards,
        "memory_mib": {
            **{"first": memory[0], "last": memory[-1], "slope_per_hour": round(slope, 2)},
            "every_minute": [round(value) for value in memory[:: round(60 / SAMPLING)]],
        },
        "errors_of_the_space": len(re.findall(r"/space_app/(?!app\.py)", log)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = soak(60 * options.minutes, options.clients, Path(folder))
    record = {
        "command": f"python -m tests.space.soak {' '.join(sys.argv[1:])}",
        "date": datetime.now(UTC).date().isoformat(),
        "space_app": git("rev-parse", "HEAD:space_app") + ("-dirty" if git("status", "--porcelain", "space_app") else ""),
        **found,
    }
    RESULT.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
