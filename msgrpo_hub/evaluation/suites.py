"""Suites: frozen lists of tasks. A task is a game's versioned id and a hash over all that decides its scores.

"Frozen Lake" in the literature is many games under one name. Here a task's hash covers what the game shows, says and does:
if any of it changes, the suites refuse to load until the game gets a new version.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.policy import Chooser, ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt, build_prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.games import Game, Split, episode_seed, make_game, stream
from msgrpo_hub.players.registry import SCRIPTED, can_play
from msgrpo_hub.rollout import play_episodes

HARNESS = 1
"""Version of the harness: raised when the same task and player would be scored in another way."""

_REPLIES = (
    "<action>{}</action>",
    "<think>x</think><action> {} </action>",
    "{}",
    "<action></action>",
    "<think><action>{}</action>",
    "<action>{}</action><action>{other}</action>",
    "<ACTION>{lower}</ACTION>",
    "<action>{lower}!</action>",
)
_PROBES = 10
_PLAYERS = ("random", "random-safe", "greedy", "optimal")
"""Who plays the probes: a random player alone does not see what the goal gives."""
_SILENCE = 0.1
"""The share of a probe's replies that cannot be read."""


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


@dataclass(frozen=True)
class _Probe:
    """A scripted player that keeps silent now and then, and writes down what it could have done."""

    choose: Chooser
    seen: list[Any] = field(default_factory=list)

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        for game, state in ((prompt.game, prompt.state) for prompt in prompts):
            self.seen.append([list(game.legal_actions(state)), list(game.safe_actions(state))])
        silent = [rng.random() < _SILENCE for rng in rngs]
        replies = ScriptedPolicy(self.choose).complete(prompts, rngs)
        return [Completion(text="") if mute else reply for mute, reply in zip(silent, replies, strict=True)]


def task_hash(game: Game) -> str:
    """SHA-256 over a game's words, its prompts, how replies are read, and whole episodes of scripted players.

    Parameters, rewards, horizon, prompt template, parser, the treatment of unreadable replies and the recipe of the seeds
    are all in it, since each of them shows in what is played.
    """
    record: list[Any] = [game.id, game.size, game.horizon, list(game.actions), list(game.reward_range)]
    episode_keys = [(episode_seed(game.id, "test", index), member) for index in range(_PROBES) for member in (0, 1)]
    first, other = game.actions[0], game.actions[-1]
    replies = [reply.format(first, other=other, lower=first.lower()) for reply in _REPLIES]
    record += [[reply, parse_action(reply, game.actions)] for reply in replies]
    prompt = build_prompt(game, game.initial_state(stream(episode_keys[0][0], "initial_state")))
    record.append([dict(message) for message in prompt.messages])
    for name in _PLAYERS:
        if can_play(name, game):
            probe = _Probe(SCRIPTED[name])
            for episode in play_episodes(game, probe, episode_keys):
                record.append([episode.seed, episode.success, episode.terminated, episode.truncated])
                record += [[step.observation, step.action, step.status, step.legal, step.reward] for step in episode.steps]
            record += probe.seen
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()[:16]


@cache
def hash_of(task: str) -> str:
    """The hash of a registered task, which plays its probes once in a process."""
    return task_hash(make_game(task))


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
    for task, frozen in tasks.items():
        if (now := hash_of(task)) != frozen:
            raise UserError(f"{task} has hash {now}, suite {name!r} froze {frozen}: a changed game needs a new version of its id")
    return suite


def _folder() -> Path:
    """Where the definitions lie: in the wheel beside this file, in a clone under `benchmark/`."""
    shipped = Path(str(files("msgrpo_hub") / "evaluation" / "suites"))
    return shipped if shipped.is_dir() else Path(__file__).parents[2] / "benchmark" / "suites"
