"""One episode at a time for the loops of other frameworks: as `play_groups` plays it with the same seed, member and replies."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from msgrpo_hub.agent.policy import Prompt, build_prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Completion, Episode, EpisodeScore
from msgrpo_hub.fields import Number, checked
from msgrpo_hub.games import Game, Split, episode_seed, splits_of, stream
from msgrpo_hub.games.seeds import split_of
from msgrpo_hub.rollout import Play, past_turns

SCORES = ("reward", "success", "luck_adjusted", "regret", "steps", "unreadable", "truncated_replies", "illegal")
"""The fields of an `EpisodeScore` that are reported; `luck_adjusted` and `regret` are None where the game is not solved."""


def reported(score: EpisodeScore) -> dict[str, float]:
    """The reported fields of a score that are not None."""
    return {name: float(value) for name in SCORES if (value := getattr(score, name)) is not None}


@checked
def start_play(
    game: Game, prompt_format: PromptFormat, seed: Number | None = None, member: Number | None = None, split: Split = "train"
) -> Play:
    """Starts an episode, by default on a training board.

    Args:
        seed: the seed of the start; None samples one. If its board belongs to another split, the start is the split's episode
            `seed`.
        member: the seed of the dynamics, such as slips and spawns. None samples one, so that the episodes of a group, which
            share their seed, do not share their dynamics.
    """
    seed = episode_seed(game.id, split, random.getrandbits(31)) if seed is None else seed_in(game, seed, split)
    start = game.initial_state(stream(seed, "initial_state"))
    return Play(game, prompt_format, seed, random.getrandbits(31) if member is None else member, start)


def seed_in(game: Game, seed: int, split: Split) -> int:
    """The seed itself if its board belongs to the split, else the seed of the split's episode `seed`."""
    own = not splits_of(game.id).are_apart or split_of(game, game.initial_state(stream(seed, "initial_state"))) == split
    return seed if own else episode_seed(game.id, split, seed)


async def play_episode(
    game: Game, ask: Callable[[Prompt, int], Awaitable[Completion]], seed: int, member: int, prompt_format: PromptFormat
) -> Episode:
    """Plays one episode in another framework's event loop, as `msgrpo eval` plays it with the same replies.

    `ask` gets each prompt with the seed that `msgrpo eval` sends with the same request.
    """
    play = Play(game, prompt_format, seed, member, game.initial_state(stream(seed, "initial_state")))
    while play.live:
        prompt = build_prompt(game, play.state, prompt_format, past_turns(prompt_format, play.steps))
        play.advance(prompt.observation, await ask(prompt, int(play.sampling.integers(2**31))))
    return play.episode()
