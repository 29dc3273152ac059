"""Freezes suites: the hashes of their games, and the rewards of habit that the semantic score needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation.suites import hash_of, load_suite
from msgrpo_hub.evaluation.summary import REFERENCE
from msgrpo_hub.games import base_game, make_game
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.games.snake import Snake
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.rollout import play_episodes


def freeze(path: Path) -> None:
    """Writes the current hashes into the `[tasks]` table of a suite, whose lines are `"task" = "hash"`."""
    line = re.compile(r'^"(?P<task>[^"]+)" *= *"[^"]*"', re.MULTILINE)
    text = path.read_text(encoding="utf-8")
    path.write_text(line.sub(lambda found: f'"{found["task"]}" = "{hash_of(found["task"])}"', text), encoding="utf-8")


class Habit:
    """Plays the unchanged game and ignores the words.

    It answers as the reference player does in the same state of the unchanged game: everything on the board is worth an apple,
    the goal may be reached on any turn, and actions have their usual names.
    """

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        replies = []
        for prompt, rng in zip(prompts, rngs, strict=True):
            game = base_game(prompt.game)
            if isinstance(game, Snake):
                game = replace(game, items=tuple(replace(item, reward=1.0) for item in game.items))
            elif isinstance(game, FrozenLake):
                game = replace(game, exactly=False, goal_reward=1.0)
            choose = SCRIPTED["optimal" if is_solvable(game) else REFERENCE]
            action = choose(game, prompt.state, rng)
            replies.append(Completion(text="" if action is None else prompt.prompt_format.reply(action)))
        return replies


def habit_value(task: str, seeds: Sequence[int]) -> float:
    """The mean reward of habit on some boards."""
    episodes = play_episodes(make_game(task), Habit(), [(seed, 0) for seed in seeds])
    return float(np.mean([episode.reward for episode in episodes]))


def freeze_habit(path: Path) -> None:
    """Plays `Habit` on a suite and writes its mean rewards into the table `[habit]`; this takes minutes."""
    suite, (text, _, _) = load_suite(str(path)), path.read_text(encoding="utf-8").partition("\n# Task → the mean reward of habit")
    rows = [f'"{task}" = {habit_value(task, suite.seeds(task))}\n' for task in suite.tasks]
    head = "\n# Task → the mean reward of habit on these episodes (see benchmark/freeze.py).\n[habit]\n"
    path.write_text(text + head + "".join(rows), encoding="utf-8")
