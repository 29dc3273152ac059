"""Questions of honest visitors to a served Space, with the answers of the Space's functions, called here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product, zip_longest
from typing import Any

import httpx

LAKE, SLIPPERY, SOLO = "FrozenLake-NotSlippery-v1", "FrozenLake-Slippery-v1", "Snake-Solo-v1"
REFUSED = "try again in a minute"
"""Part of the error of a request that finds its line full."""

Answer = tuple[list[Any], str]
"""All values in their order, since an endpoint may answer several times, and the error; empty without one."""


@dataclass(frozen=True)
class Question:
    """The requests of one visitor, made one after another."""

    requests: tuple[tuple[str, Mapping[str, Any]], ...]
    """(an endpoint, or `play_step` or `named_result` of the Play tab's script; its arguments)."""
    known: tuple[str, ...]
    """The right answers in their order, as JSON."""

    async def ask(self, http: httpx.AsyncClient) -> Answer:
        values: list[Any] = []
        for name, given in self.requests:
            found, error = await (play if name in ("play_step", "named_result") else call)(http, name, given)
            values += found
            if error:
                return values, error
        return values, ""

    def fault_of(self, answer: Answer) -> str:
        """The error, the number of answers, or the surroundings of the first difference; empty for the right answer."""
        found = tuple(map(as_text, answer[0]))
        if answer[1] or len(found) != len(self.known):
            return f"{len(found)} answers, expected {len(self.known)}; error: {answer[1][:300] or 'none'}"
        for number, (one, other) in enumerate(zip(self.known, found, strict=True), 1):
            if one != other:
                at = next(i for i, (a, b) in enumerate(zip_longest(one, other)) if a != b)
                near = slice(max(0, at - 60), at + 100)
                return f"answer {number}, character {at}: expected {one[near]!r}, found {other[near]!r}"
        return ""


def as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


async def call(http: httpx.AsyncClient, name: str, given: Mapping[str, Any]) -> Answer:
    """Calls an endpoint over plain HTTP."""
    path = f"gradio_api/call/v2/{name}"
    begun = await http.post(path, json=given)
    if begun.status_code != 200:
        return [], str(begun.json()["detail"])
    values, event = [], ""
    async with http.stream("GET", f"{path}/{begun.json()['event_id']}") as stream:
        async for line in stream.aiter_lines():
            head, _, text = line.partition(": ")
            if head == "event":
                event = text
            elif head == "data" and event == "error":
                return values, text
            elif head == "data" and event == "generating":
                values.append(json.loads(text)[0])
            elif head == "data" and event == "complete":
                return values or [json.loads(text)[0]], ""
    raise ValueError(f"the stream of {name} ended without an answer")


async def play(http: httpx.AsyncClient, name: str, given: Mapping[str, Any]) -> Answer:
    """Calls a server function of the Play tab's script."""
    if "play-board" not in _components:
        config = (await http.get("config")).json()
        _components.update({each["props"].get("elem_id"): each["id"] for each in config["components"]})
    asked = {"data": given, "component_id": _components["play-board"], "session_hash": "player", "fn_name": name}
    answer = await http.post("gradio_api/component_server", json=asked)
    answer.raise_for_status()
    found = answer.json()
    return ([], found["error"]) if "error" in found else ([found], "")


_components: dict[str | None, int] = {}


def questions() -> dict[str, list[Question]]:
    """Kind → questions with their answers. This plays every episode once."""
    import compare  # here, since gradio takes seconds
    import human
    import players
    import replay
    import rules
    import tabs

    def asked(function: Any, *given: Any) -> Question:
        names, found = function.__code__.co_varnames, function(*given)
        values = [found] if isinstance(found, dict) else found
        return Question(((function.__name__, dict(zip(names, given, strict=False))),), tuple(map(as_text, values)))

    def played(game: str, seed: int, player: str) -> Question:
        best = replay.watch(game, seed, "greedy")["players"][0]
        moves = [best["game"]["actions"][step["action"]] for step in best["steps"]]
        steps = [{"game": game, "seed": seed, "actions": moves[:turn], "action": move} for turn, move in enumerate(moves)]
        end = {"game": game, "seed": seed, "player": player}
        values = [*(human.play_step(**given) for given in steps), tabs.named_result(**end)]
        return Question((*(("play_step", given) for given in steps), ("named_result", end)), tuple(map(as_text, values)))

    def reworded(game: str, change: str, player: str, starts: int) -> Question:
        words = rules.words(game, change)
        return asked(rules.change_rules, game, 30, player, *words.values(), starts)

    bundle = [(game, int(n), name) for game, of in players.bundled("replays").items() for name, by in of.items() for n in by]
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
        "rules": [reworded(SOLO, "poisoned", "greedy", 30), reworded(LAKE, "new names", "lake", 3)],
    }
