"""Suites: frozen lists of tasks. A task is a game's versioned id with a hash of everything that determines its episodes.

If the rules, the boards, the rewards, the horizon or the seeds of a game change, the suites refuse to load until it gets a new
version. The prompt format belongs to a run, not to a task: see `agent.prompt_formats.format_hash`.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from msgrpo_hub.agent.policy import Chooser, ScriptedPolicy
from msgrpo_hub.agent.prompt_formats import THINK_ACTION, find_format
from msgrpo_hub.downloads.names import exists
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.fields import Count, Range, check_fields
from msgrpo_hub.games import Game, base_game, episode_seed, is_remote, make_game, stream
from msgrpo_hub.games.seeds import Splits
from msgrpo_hub.players.registry import SCRIPTED, can_play

HARNESS = 3
"""Version of the harness, raised when scores or task hashes change for the same task and player."""

_SHIPPED = Path(str(files("msgrpo_hub") / "evaluation" / "suites"))
_FOLDER = _SHIPPED if _SHIPPED.is_dir() else Path(__file__).parents[2] / "benchmark" / "suites"
"""The folder of the built-in suites: beside this file in a wheel, under `benchmark/` in a clone."""

_PROBES = 10
_PLAYERS = ("random", "random-safe", "greedy", "optimal")
"""The players of the probe episodes; `random` alone rarely reaches the goal."""
_SILENCE = 0.1
"""The share of steps of a probe episode that are played without an action."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Tasks that are reported together: each is a game, played on the first `episodes` seeds of a split."""

    name: str
    tasks: tuple[str, ...]
    episodes: Annotated[int, Range(1, 100_000)]
    split: Literal["validation", "test"] = "test"
    prompt_format: str = THINK_ACTION.name
    """The built-in format for players that have none."""
    repeats: Count = 1
    """How many times each of these boards is played."""
    habit: Mapping[str, float] = field(default_factory=dict)
    """Task → the mean reward of playing the unchanged game; only `semantic` has it (see `evaluation.semantic`)."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.tasks:
            raise UserError("a suite of no tasks: expected at least one")

    def seeds(self, task: str) -> list[int]:
        """The seeds of a task's boards."""
        return [episode_seed(task, self.split, index) for index in range(self.episodes)]

    def episode_keys(self, task: str) -> list[tuple[int, int]]:
        """(seed, member) of the episodes of a task, board after board."""
        return [(seed, member) for seed in self.seeds(task) for member in range(self.repeats)]


def run_seeds(config: Mapping[str, Any]) -> list[int]:
    """The seeds of the boards that a stored run must have."""
    return [episode_seed(config["task"], config["split"], index) for index in range(config["episodes"])]


def task_hash(game: Game) -> str:
    """SHA-256 over a game's rules, and over whole episodes of scripted players with their legal and safe actions.

    The hash covers boards, rewards, the horizon, steps without an action, seeds and splits, but no prompts and parsers. If the
    rules of a game run elsewhere, it covers only the game's own fields.
    """
    words = [game.instructions, list(game.rules), sorted(game.symbols.items())]
    record: list[Any] = [game.id, game.horizon, list(game.actions), list(game.reward_range), *words]
    if not is_remote(game):
        splits = Splits(base_game(game))
        seeds = [splits.seed("test", index) for index in range(_PROBES)]
        board = game.grid(game.initial_state(stream(seeds[0], "initial_state")))
        record[1:1] = [len(board), len(board[0])]
        keys = [(seed, member) for seed in seeds for member in (0, 1)]
        for name in _PLAYERS:
            if can_play(name, game):
                record += [_played(game, SCRIPTED[name], *key) for key in keys]
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()[:16]


def _played(game: Game, choose: Chooser, seed: int, member: int) -> list[Any]:
    """One episode of a scripted player that skips some actions: each step with its observation, actions and reward."""
    player, state, over = ScriptedPolicy(choose), game.initial_state(stream(seed, "initial_state")), False
    dynamics, choices = stream(seed, "dynamics", member), stream(seed, "sampling", member)
    turns: list[Any] = [seed]
    while not over:
        action = None if choices.random() < _SILENCE else player.action(game, state, choices)
        before = [game.observe(state), game.grid(state), list(game.legal_actions(state)), list(game.safe_actions(state))]
        after = game.step(state, action, dynamics)
        turns.append([*before, action, after.reward, after.terminated, after.truncated])
        state, over = after.state, after.terminated or after.truncated
    return [*turns, game.succeeded(state)]


@cache
def hash_of(task: str) -> str:
    """The hash of a registered task; its probe episodes are played once per process."""
    return task_hash(make_game(task))


def suite_names() -> list[str]:
    """The names of the built-in suites."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_suite(name: str) -> Suite:
    """A built-in suite, or one of a TOML file. Raises `UserError` if it is unknown or broken, or a game has changed."""
    path = Path(name) if name.endswith(".toml") else _FOLDER / f"{name}.toml"
    if not exists(path):
        raise unknown("suite", name, suite_names(), "(or give the path of a TOML file)")
    if path.parent != _FOLDER and path.stem in suite_names():
        raise UserError(f"{str(path)!r} has the name of a built-in suite: rename the file, since results are stored by that name")
    suite, tasks = _read(path)
    find_format(suite.prompt_format)  # built-in formats only: loading a file never imports code
    for task, frozen in tasks.items():
        if (now := hash_of(task)) != frozen:
            given = f"{task} has hash {now}, but the suite {name!r} expects {frozen}"
            raise UserError(f"{given}: give a changed game a new version in its id")
    return suite


def _read(path: Path) -> tuple[Suite, dict[str, str]]:
    """The suite of a file, and task → hash. Raises `UserError` for a file that is not a suite."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        tasks = dict(values.pop("tasks"))
        return Suite(name=path.stem, tasks=tuple(tasks), **values), tasks
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:  # ValueError: not TOML, or other values
        raise UserError(f"{str(path)!r} is not a suite ({error}): expected episodes, split, and a table [tasks]") from error


def built_in_suite(name: str) -> Suite | None:
    """A built-in suite, without a check of its hashes; None for any other name."""
    return _read(_FOLDER / f"{name}.toml")[0] if name in suite_names() else None
