"""Suites: frozen lists of tasks. A task is a game's versioned id and a hash over all that decides its scores.

"Frozen Lake" in the literature is many games under one name. Here a task's hash covers what the game shows, says and does:
if any of it changes, the suites refuse to load until the game gets a new version.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.policy import ScriptedPolicy, choose_random
from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.games import Game, Split, episode_seed, make_game, stream
from msgrpo_hub.rollout import play_episodes

HARNESS = 1
"""Version of the harness: raised when the same task and player would be scored in another way."""

_REPLIES = (
    "<action>{}</action>",
    "<think>x</think><action> {} </action>",
    "{}",
    "<action></action>",
    "<think><action>{}</action>",
)
_PROBES = 3


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Tasks that are reported together: each is a game, played on the first `episodes` seeds of a split."""

    name: str
    tasks: tuple[str, ...]
    episodes: int
    split: Split = "test"

    def seeds(self, task: str) -> list[int]:
        """The episode seeds of a task."""
        return [episode_seed(task, self.split, index) for index in range(self.episodes)]


def task_hash(game: Game) -> str:
    """SHA-256 over a game's words, its prompts, how replies are read, and whole episodes of a random player.

    Parameters, rewards, horizon, prompt template, parser, the treatment of unreadable replies and the recipe of the seeds
    are all in it, since each of them shows in what is played.
    """
    record: list[Any] = [game.id, game.size, game.horizon, list(game.actions), list(game.reward_range)]
    record += [[reply, parse_action(reply.format(game.actions[0]), game.actions)] for reply in _REPLIES]
    seeds = [episode_seed(game.id, "test", index) for index in range(_PROBES)]
    for episode in play_episodes(game, ScriptedPolicy(choose_random), [(seed, member) for seed in seeds for member in (0, 1)]):
        record += [episode.seed, episode.success, episode.terminated]
        record += [[step.observation, step.action, step.legal, step.reward] for step in episode.steps]
    for seed in seeds:
        state = game.initial_state(stream(seed, "initial_state"))
        record.append([dict(message) for message in build_prompt(game, state).messages])
        idle = game.step(state, None, stream(seed, "dynamics", 0))
        record += [game.observe(idle.state), idle.reward, idle.terminated]
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()[:16]


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
        values = tomllib.loads(path.read_text())
        tasks: dict[str, str] = values.pop("tasks")
        suite = Suite(name=path.stem, tasks=tuple(tasks), **values)
    except (tomllib.TOMLDecodeError, TypeError, KeyError) as error:
        raise UserError(f"{str(path)!r} is no suite ({error}): expected episodes, split, and a table [tasks]") from error
    if suite.episodes < 1 or suite.split not in ("validation", "test"):
        raise UserError(f"{str(path)!r}: expected episodes of at least 1, and split validation or test")
    for task, frozen in tasks.items():
        if (now := task_hash(make_game(task))) != frozen:
            raise UserError(f"{task} has hash {now}, suite {name!r} froze {frozen}: a changed game needs a new version of its id")
    return suite


def _folder() -> Path:
    """Where the definitions lie: in the wheel beside this file, in a clone under `benchmark/`."""
    shipped = Path(str(files("msgrpo_hub") / "evaluation" / "suites"))
    return shipped if shipped.is_dir() else Path(__file__).parents[2] / "benchmark" / "suites"
