"""`python -m tests.space.soak --minutes 30 --clients 20`: many visitors at one Space, some of them hostile, for a long time.

Honest visitors ask questions with known answers, computed here one at a time, and compare every character. A refused visitor
asks again after ten seconds. The result goes to `tests/space/soak.json`; commit it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from tests.long import git
from tests.space.hostile import ATTACKS
from tests.space.questions import LAKE, Question, call, difference, questions
from tests.space.served import Served, serving

RESULT = Path(__file__).with_name("soak.json")
ROLES = (
    *("bundled", "scripted", "model", "bundled", "play", "flood", "bundled", "compare", "malformed", "bundled"),
    *("rules", "scripted", "model", "bundled", "leaver", "compare", "bundled", "play", "model", "scripted"),
)
"""The role of each client in turn; further clients repeat the list."""

PATIENCE = 300.0
"""Seconds until an answer counts as lost."""

THINKING = 1.0
"""Mean seconds between an answer and the visitor's next question."""

SETTLING = 30.0
"""Seconds between two checks of the places held after the visitors left."""

LONGEST = 300.0
"""Seconds until all places must be free: a full line of comparisons is played to its end."""

PLACES = 12
"""Places in the line of models."""

SAMPLING = 2.0
"""Seconds between two measurements of the server's memory."""


@dataclass
class Record:
    """The outcomes of one kind of request."""

    seconds: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        return {
            "answered": len(self.seconds),
            "seconds": percentiles(self.seconds),
            "refused": len(self.refused),
            "seconds_to_refusal": percentiles(self.refused),
            "wrong": self.wrong[:20],
            "lost": self.lost[:20],
        }


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    values = np.percentile(seconds, [50, 95, 100])
    return {name: round(float(value), 3) for name, value in zip(("p50", "p95", "max"), values, strict=True)}


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
        roles = [ROLES[number % len(ROLES)] for number in range(clients)]
        await asyncio.gather(*(self.client(number, role) for number, role in enumerate(roles)))
        watching.cancel()

    async def client(self, number: int, role: str) -> None:
        rng = random.Random(number)
        async with httpx.AsyncClient(base_url=self.served.url, timeout=PATIENCE) as http:
            while time.monotonic() < self.ends:
                if role in ATTACKS:
                    self.attacks[role].update(await self.attack(http, role, rng))
                else:
                    await self.visit(http, role, rng)
                await asyncio.sleep(rng.expovariate(1 / THINKING))

    async def attack(self, http: httpx.AsyncClient, role: str, rng: random.Random) -> Counter[str]:
        try:
            return await ATTACKS[role](http, rng)
        except httpx.HTTPError as error:
            return Counter([type(error).__name__])

    async def visit(self, http: httpx.AsyncClient, kind: str, rng: random.Random) -> None:
        """Asks one question until it is answered."""
        question, record = rng.choice(self.asked[kind]), self.records[kind]
        while True:
            began = time.monotonic()
            try:
                answer = await question.ask(http)
            except (httpx.HTTPError, ValueError) as error:
                record.lost.append(f"{question}: {error!r}")
                return
            seconds = time.monotonic() - began
            if answer.come_back is None:
                record.seconds.append(seconds)
                if not question.is_answered_by(answer):
                    record.wrong.append(f"{question}: {difference(question.known, answer)}")
                return
            record.refused.append(seconds)
            if time.monotonic() > self.ends:
                return
            await asyncio.sleep(answer.come_back)

    async def watch_memory(self) -> None:
        process, began = psutil.Process(self.served.pid), time.monotonic()
        while True:
            self.memory.append((time.monotonic() - began, process.memory_info().rss / 2**20))
            await asyncio.sleep(SAMPLING)


def slope(memory: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The server's memory in MiB, and its slope over the second half in MiB an hour: a line fitted by least squares."""
    half = memory[len(memory) // 2 :]
    seconds, mebibytes = np.array(half).T
    hourly = float(np.polyfit(seconds / 3600, mebibytes, 1)[0]) if len(half) > 2 else 0.0
    return {
        "first": round(memory[0][1], 1),
        "half_way": round(half[0][1], 1),
        "last": round(memory[-1][1], 1),
        "most": round(max(value for _, value in memory), 1),
        "slope_per_hour": round(hourly, 2),
        "every_minute": [round(value) for _, value in memory[:: round(60 / SAMPLING)]],
    }


def cores_used(*processes: psutil.Process) -> float:
    """Seconds of processor time so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def busy() -> float:
    """Seconds of work of all processors of this machine so far."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


async def line_afterwards(served: Served) -> dict[str, float]:
    """The number of free places in the line of models after the visitors have gone, and the seconds until then."""
    began, free = time.monotonic(), 0
    while free < PLACES and time.monotonic() - began < LONGEST:
        await asyncio.sleep(SETTLING)
        free = await fill_the_line(served)
    return {"places_free": free, "seconds": round(time.monotonic() - began)}


async def fill_the_line(served: Served) -> int:
    """Takes every place in the line of models at once; returns the number of free ones."""
    asked = {"game": LAKE, "seed": 20, "player": "pocket"}
    async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE) as http:
        answers = await asyncio.gather(*(call(http, "watch", asked) for _ in range(PLACES)))
    return sum(not answer.error for answer in answers)


def soak(seconds: float, clients: int, folder: Path) -> dict[str, Any]:
    """Serves a Space, lets clients use and attack it, and returns the figures."""
    asked = questions()
    with serving(folder) as served:
        own, server = psutil.Process(), psutil.Process(served.pid)
        before, began = (cores_used(server), cores_used(own), busy()), time.monotonic()
        run = Soak(served, asked, seconds)
        asyncio.run(run.run(clients))
        lasted = time.monotonic() - began
        used, own_used, all_used = (
            after - earlier for after, earlier in zip((cores_used(server), cores_used(own), busy()), before, strict=True)
        )
        answered = asyncio.run(line_afterwards(served))
        log = served.log.read_text()
    return {
        "minutes": round(lasted / 60, 1),
        "clients": clients,
        "visitors": {kind: run.records[kind].figures() for kind in sorted(run.records)},
        "attacks": {name: dict(sorted(counts.items())) for name, counts in sorted(run.attacks.items())},
        "line_afterwards": answered,
        "memory_mib": slope(run.memory),
        "cores": {
            "machine": os.cpu_count(),
            "server": round(used / lasted, 2),
            "visitors": round(own_used / lasted, 2),
            "others": round((all_used - used - own_used) / lasted, 2),
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
