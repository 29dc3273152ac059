"""Collects the prompts of a few scripted episodes, to check lengths and estimate costs before a model plays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from heapq import nlargest

import numpy as np

from msgrpo_hub.agent.policy import Policy, Prompt, ScriptedPolicy
from msgrpo_hub.agent.prompt_formats import THINK_ACTION, PromptFormat
from msgrpo_hub.episode import Completion
from msgrpo_hub.games import Game, episode_seed
from msgrpo_hub.players.registry import SCRIPTED, ExpectedPrompts, can_play
from msgrpo_hub.rollout import play_episodes

_EPISODES = 4
_LONGEST = 8
_PLAYERS = ("random-safe", "greedy")
"""Players that last long; greedy snakes also grow, and their prompts with them."""


@dataclass
class RecordingPolicy:
    """Wraps a policy and records its prompts and replies."""

    policy: Policy
    prompts: list[Prompt] = field(default_factory=list)
    completions: list[Completion] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.caching = getattr(self.policy, "caching", nullcontext)

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        completions = self.policy.complete(prompts, rngs)
        self.prompts += prompts
        self.completions += completions
        return completions


def scripted_prompts(game: Game, prompt_format: PromptFormat, player: str, seeds: Iterable[int]) -> list[Prompt]:
    """All prompts of a scripted player's episodes from these seeds."""
    recording = RecordingPolicy(ScriptedPolicy(SCRIPTED[player]))
    play_episodes(game, recording, [(seed, 0) for seed in seeds], prompt_format=prompt_format)
    return recording.prompts


def prompts_of(games: Iterable[Game], default: PromptFormat = THINK_ACTION) -> ExpectedPrompts:
    """The longest prompts of these games, for a player's own prompt format or else the default."""
    return lambda own: longest_prompts(games, own or default)


def longest_prompts(games: Iterable[Game], prompt_format: PromptFormat) -> list[Prompt]:
    """The longest prompts of a few scripted episodes of each game: the same each time, in tens of milliseconds."""
    prompts = []
    for game in games:
        seeds = [episode_seed(game.id, "test", index) for index in range(_EPISODES)]
        players = [player for player in _PLAYERS if can_play(player, game)]
        of_game = [prompt for player in players for prompt in scripted_prompts(game, prompt_format, player, seeds)]
        prompts += nlargest(_LONGEST, of_game, key=lambda prompt: sum(len(text) for _, text in prompt.contents))
    return prompts
