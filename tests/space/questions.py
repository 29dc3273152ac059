"""What an honest visitor asks a served Space, and the answers worked out beforehand by calling the Space's functions here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import httpx

from tests.space.served import APP

LAKE, SLIPPERY, SOLO = "FrozenLake-NotSlippery-v1", "FrozenLake-Slippery-v1", "Snake-Solo-v1"
REFUSED, COME_BACK = "try again in a minute", 10


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back."""

    values: list[Any]
    """All answers, in their order: an endpoint may answer several times."""
    error: str = ""

    @property
    def come_back(self) -> int | None:
        """Seconds after which a refused visitor was told to come back; None if the request was not refused for want of room."""
        return COME_BACK if REFUSED in self.error else None


class Question(Protocol):
    """Something to ask, whose answer is known."""

    @property
    def known(self) -> tuple[str, ...]:
        """All answers, in their order."""

    async def ask(self, http: httpx.AsyncClient) -> Answer:
        """Asks a served Space."""

    def is_answered_by(self, answer: Answer) -> bool:
        """Whether an answer is the known one, to the last character."""


@dataclass(frozen=True)
class Call:
    """A call of an endpoint, as a program makes it."""

    name: str
    given: Mapping[str, Any]
    known: tuple[str, ...] = ()

    async def ask(self, http: httpx.AsyncClient) -> Answer:
        return await call(http, self.name, self.given)

    def is_answered_by(self, answer: Answer) -> bool:
        return not answer.error and tuple(map(as_text, answer.values)) == self.known

    def __str__(self) -> str:
        return f"{self.name} {json.dumps(self.given)[:200]}"


@dataclass(frozen=True)
class PlayedGame:
    """A game that a visitor plays on the page, move by move, and then the game of the agent."""

    game: str
    seed: int
    moves: tuple[str, ...]
    player: str
    known: tuple[str, ...] = ()

    def requests(self) -> Iterable[tuple[str, dict[str, Any]]]:
        """The requests of the page's script: the server's function, and what it is given."""
        for turn, move in enumerate(self.moves):
            yield "step", {"game": self.game, "seed": self.seed, "actions": list(self.moves[:turn]), "action": move}
        yield "result", {"game": self.game, "seed": self.seed, "player": self.player}

    async def ask(self, http: httpx.AsyncClient) -> Answer:
        values = []
        for name, given in self.requests():
            found = await play(http, name, given)
            if "error" in found:
                return Answer(values=values, error=found["error"])
            values.append(found)
        return Answer(values=values)

    is_answered_by = Call.is_answered_by


def as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def difference(known: tuple[str, ...], answer: Answer) -> str:
    """The error or the number of an answer, or the surroundings of its first difference from the known one.

    >>> print(difference(('{"ending": "success"}',), Answer(values=[{"ending": "hole"}])))
    answer 1, character 12: expected '{"ending": "success"}', found '{"ending": "hole"}'
    """
    found = tuple(map(as_text, answer.values))
    if answer.error or len(found) != len(known):
        return f"{len(found)} answers, expected {len(known)}; error: {answer.error[:300] or 'none'}"
    for number, (one, other) in enumerate(zip(known, found, strict=True), 1):
        if one != other:
            at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
            near = slice(max(0, at - 60), at + 100)
            return f"answer {number}, character {at}: expected {one[near]!r}, found {other[near]!r}"
    return "no difference"


async def call(http: httpx.AsyncClient, name: str, given: Mapping[str, Any]) -> Answer:
    """Asks an endpoint over plain HTTP."""
    path = f"gradio_api/call/v2/{name}"
    begun = await http.post(path, json=given)
    if begun.status_code != 200:
        return Answer(values=[], error=str(begun.json()["detail"]))
    values, event = [], ""
    async with http.stream("GET", f"{path}/{begun.json()['event_id']}") as stream:
        async for line in stream.aiter_lines():
            head, _, text = line.partition(": ")
            if head == "event":
                event = text
            elif head == "data" and event == "error":
                return Answer(values=values, error=text)
            elif head == "data" and event == "generating":
                values.append(json.loads(text)[0])
            elif head == "data" and event == "complete":
                return Answer(values=values or [json.loads(text)[0]])
    raise ValueError(f"the stream of {name} ended without an answer")


async def play(http: httpx.AsyncClient, name: str, given: Any) -> dict[str, Any]:
    """Asks what the script of the Play tab asks."""
    if "play-board" not in _components:
        config = (await http.get("config")).json()
        _components.update({each["props"].get("elem_id"): each["id"] for each in config["components"]})
    asked = {"data": given, "component_id": _components["play-board"], "session_hash": "player", "fn_name": name}
    answer = await http.post("gradio_api/component_server", json=asked)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


_components: dict[str | None, int] = {}


def questions() -> dict[str, list[Question]]:
    """Kind → questions with their answers; this plays every episode once."""
    if str(APP.parent) not in sys.path:
        sys.path.insert(0, str(APP.parent))
    import compare
    import human
    import replay
    import rules
    import tabs

    def asked(function: Any, *given: Any) -> Call:
        names = function.__code__.co_varnames[: len(given)]
        found = function(*given)
        return Call(
            function.__name__,
            dict(zip(names, given, strict=True)),
            tuple(map(as_text, [found] if isinstance(found, dict) else found)),
        )

    def played(game: str, seed: int, player: str) -> PlayedGame:
        best = replay.watch(game, seed, "greedy")["players"][0]
        moves = tuple(best["game"]["actions"][step["action"]] for step in best["steps"])
        plan = PlayedGame(game, seed, moves, player)
        functions = {"step": human.play_step, "result": tabs.named_result}
        return PlayedGame(game, seed, moves, player, tuple(as_text(functions[name](**given)) for name, given in plan.requests()))

    def told(game: str, change: str, player: str, starts: int) -> Call:
        words = rules.words(game, change)
        return asked(
            rules.change_rules, game, 30, player, words["instructions"], words["rules"], words["names"], words["expected"], starts
        )

    bundle = [(game, int(n), name) for game, of in replay.bundled().items() for name, by in of.items() for n in by]
    scripted = product((LAKE, SLIPPERY, f"{SOLO}:reflected", "Snake-Standard-v1"), (20, 21, 22), ("random", "greedy"))
    models = [(LAKE, 20, "pocket"), *((LAKE, n, "lake") for n in (20, 21, 22)), (SOLO, 20, "snake")]
    return {
        "bundled": [asked(replay.watch, *each) for each in bundle],
        "scripted": [asked(replay.watch, *each) for each in scripted],
        "model": [asked(replay.watch, *each) for each in models],
        "compare": [
            asked(compare.compare, LAKE, 0, "random", "optimal", 60),
            asked(compare.compare, SOLO, 5, "random-safe", "greedy", 30),
            asked(compare.compare, LAKE, 30, "random", "lake", 6),
        ],
        "play": [played(LAKE, 3, "lake"), played(SOLO, 4, "greedy")],
        "rules": [told(SOLO, "poisoned", "greedy", 30), told(LAKE, "new names", "lake", 3)],
    }
