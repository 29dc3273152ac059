"""Suites: frozen lists of tasks. A task is a game's versioned id and a hash over all that decides what is played.

"Frozen Lake" in the literature is many games under one name. Here a task's hash covers the rules, the boards, the rewards, the
horizon and the seeds: if any of it changes, the suites refuse to load until the game gets a new version. How a game is put
into a prompt, and how replies are read, is no part of a task but of a run: see `agent.prompt_formats.format_hash`.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgrpo_hub.agent.policy import Chooser, ScriptedPolicy
from msgrpo_hub.agent.prompt_formats import THINK_ACTION, find_format
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.games import Game, Split, episode_seed, make_game, stream
from msgrpo_hub.players.registry import SCRIPTED, can_play

HARNESS = 2
"""Version of the harness: raised when the same task and player would be scored, or a task hashed, in another way."""

_PROBES = 10
_PLAYERS = ("random", "random-safe", "greedy", "optimal")
"""Who plays the probes: a random player alone does not see what the goal gives."""
_SILENCE = 0.1
"""The share of turns of a probe that are played without an action."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Tasks that are reported together: each is a game, played on the first `episodes` seeds of a split."""

    name: str
    tasks: tuple[str, ...]
    episodes: int
    split: Split = "test"
    prompt_format: str = THINK_ACTION.name
    """The built-in format for players that have none of their own."""

    def seeds(self, task: str) -> list[int]:
        """The episode seeds of a task."""
        return [episode_seed(task, self.split, index) for index in range(self.episodes)]


def task_hash(game: Game) -> str:
    """SHA-256 over a game's rules, and over whole episodes of scripted players with all that they could have done.

    Boards, rewards, the horizon, turns without an action and the recipe of the seeds are all in it, since each of them shows
    in what is played. Prompts and the reading of replies are not.
    """
    board = game.grid(game.initial_state(stream(episode_seed(game.id, "test", 0), "initial_state")))
    record: list[Any] = [game.id, len(board), len(board[0]), game.horizon, list(game.actions), list(game.reward_range)]
    record += [game.instructions, list(game.rules), sorted(game.symbols.items())]
    for name in _PLAYERS:
        if can_play(name, game):
            for index in range(_PROBES):
                seed = episode_seed(game.id, "test", index)
                record += [_played(game, SCRIPTED[name], seed, member) for member in (0, 1)]
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()[:16]


def _played(game: Game, choose: Chooser, seed: int, member: int) -> list[Any]:
    """One episode of a scripted player that does nothing now and then: each turn with all that could have been done."""
    player, state, over = ScriptedPolicy(choose), game.initial_state(stream(seed, "initial_state")), False
    dynamics, choices = stream(seed, "dynamics", member), stream(seed, "sampling", member)
    turns: list[Any] = [seed]
    while not over:
        action = None if choices.random() < _SILENCE else player.action(game, state, choices)
        shown = [game.observe(state), game.grid(state), list(game.legal_actions(state)), list(game.safe_actions(state))]
        after = game.step(state, action, dynamics)
        turns.append([*shown, action, after.reward, after.terminated, after.truncated])
        state, over = after.state, after.terminated or after.truncated
    return [*turns, game.succeeded(state)]


@cache
def hash_of(task: str) -> str:
    """The hash of a registered task, which plays its probes once in a process."""
    return task_hash(make_game(task))


@cache
def _first_harness() -> dict[str, tuple[str, str]]:
    """Task → its hash in harness 1, and in this one: runs of harness 1 name the first, and were played by the same rules."""
    text = (files("msgrpo_hub.evaluation") / "harness_1.toml").read_text(encoding="utf-8")
    return {task: (first, now) for task, (first, now) in tomllib.loads(text)["tasks"].items()}


def hash_now(config: Mapping[str, Any]) -> str:
    """The hash that this harness gives to the task of a run, whose configuration may be one of harness 1.

    It is read from the run alone: whether it is the hash of the game as it is here, `hash_of` knows.
    """
    first, now = _first_harness().get(str(config["task"]), ("", ""))
    return now if config["harness"] == 1 and config["task_hash"] == first else str(config["task_hash"])


def same_rules(config: Mapping[str, Any]) -> dict[str, Any]:
    """What two runs of one task must have in common to be compared: `task_hash` and `harness`, those of harness 1 as of now."""
    task = hash_now(config)
    return {"task_hash": task, "harness": config["harness"] if task == config["task_hash"] else HARNESS}


def suite_names() -> list[str]:
    """The names of the suites that come with the package."""
    return sorted(path.stem for path in _folder().glob("*.toml"))


def load_suite(name: str) -> Suite:
    """The suite of a name, or of a TOML file of one's own.

    Raises:
        UserError: for an unknown suite, a broken file, or a task whose game is no longer the one that the suite froze.
    """
    path = Path(name) if name.endswith(".toml") else _folder() / f"{name}.toml"
    if not path.exists():
        raise unknown("suite", name, suite_names(), "(or give the path of a TOML file)")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        tasks = dict(values.pop("tasks"))
        suite = Suite(name=path.stem, tasks=tuple(tasks), **values)
    except (OSError, ValueError, TypeError, KeyError) as error:  # ValueError: no TOML, no UTF-8, or tasks that are no table
        raise UserError(f"{str(path)!r} is no suite ({error}): expected episodes, split, and a table [tasks]") from error
    if not tasks or type(suite.episodes) is not int or suite.episodes < 1 or suite.split not in ("validation", "test"):
        raise UserError(f"{str(path)!r}: expected tasks, episodes of at least 1, and split validation or test")
    find_format(str(suite.prompt_format))  # built in: a file that may have come from anywhere never imports
    for task, frozen in tasks.items():
        if (now := hash_of(task)) != frozen:
            raise UserError(f"{task} has hash {now}, suite {name!r} froze {frozen}: a changed game needs a new version of its id")
    return suite


_FROZEN = re.compile(r'^"(?P<task>[^"]+)" *= *"[^"]*"', re.MULTILINE)


def freeze(path: Path) -> None:
    """Writes the hashes of now into the `[tasks]` table of a suite, whose lines are `"task" = "hash"`."""
    text = path.read_text(encoding="utf-8")
    path.write_text(_FROZEN.sub(lambda line: f'"{line["task"]}" = "{hash_of(line["task"])}"', text), encoding="utf-8")


def _folder() -> Path:
    """Where the definitions lie: in the wheel beside this file, in a clone under `benchmark/`."""
    shipped = Path(str(files("msgrpo_hub") / "evaluation" / "suites"))
    return shipped if shipped.is_dir() else Path(__file__).parents[2] / "benchmark" / "suites"
