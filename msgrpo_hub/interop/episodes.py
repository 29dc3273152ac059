"""One episode at a time for the loops of other frameworks: as `play_groups` plays it with the same seed, member and replies."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from msgrpo_hub.agent.policy import Prompt, build_prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import Number, check
from msgrpo_hub.games import Game, Split, episode_seed, splits_of, stream
from msgrpo_hub.games.seeds import split_of
from msgrpo_hub.rollout import Play

SCORES = ("reward", "success", "luck_adjusted", "regret", "steps", "unreadable", "truncated_replies", "illegal")
"""The fields of an `EpisodeScore` that are reported; `luck_adjusted` and `regret` are None where the game is not solved."""

Ask = Callable[[Prompt, int], Awaitable[Completion]]
"""(prompt, seed of the request) → the reply."""


def start_play(
    game: Game,
    prompt_format: PromptFormat,
    seed: int | None = None,
    member: int | None = None,
    split: Split = "train",
    index: int | None = None,
) -> Play:
    """Starts an episode, by default on a training board.

    Args:
        game: the rules.
        prompt_format: how prompts are rendered and replies are parsed.
        seed: the seed of the start. If its board belongs to another split, the start is the split's episode `seed`.
        member: the seed of the dynamics, such as slips and spawns. None samples one, so that the episodes of a group, which
            share their seed, do not share their dynamics.
        split: the split of the board.
        index: the number of an episode in the split, in place of a seed. Without either, one is sampled.

    Raises:
        UserError: an argument is out of range, or both seed and index are given.
    """
    for name, value in (("seed", seed), ("member", member), ("index", index)):
        check(name, value, Number | None)
    check("split", split, Split)
    if seed is not None and index is not None:
        raise UserError(f"seed = {seed} with index = {index}: expected only one of them, since each gives the start")
    if seed is None:
        seed = episode_seed(game.id, split, random.getrandbits(31) if index is None else index)
    start = game.initial_state(stream(seed, "initial_state"))
    if splits_of(game.id).are_apart and split_of(game, start) != split:
        seed = episode_seed(game.id, split, seed)
        start = game.initial_state(stream(seed, "initial_state"))
    return Play(game, prompt_format, seed, random.getrandbits(31) if member is None else member, start)


def status(play: Play) -> dict[str, Any]:
    """The state of an episode, and how its last reply was read."""
    last = play.steps[-1] if play.steps else None
    return {
        "action": last.action if last else None,
        "unparsed": last is not None and last.action is None,
        "illegal": last is not None and last.action is not None and not last.legal,
        "terminated": play.terminated,
        "truncated": play.truncated,
        "success": not play.live and play.game.succeeded(play.state),
        "seed": play.seed,
        "member": play.member,
    }


async def play_episode(game: Game, ask: Ask, seed: int, member: int, prompt_format: PromptFormat) -> Episode:
    """Plays one episode in another framework's event loop, as `msgrpo eval` plays it with the same replies.

    Args:
        game: the rules.
        ask: gets each prompt with the seed that `msgrpo eval` sends with the same request.
        seed: the seed of the initial state.
        member: the member of that seed's group.
        prompt_format: how prompts are rendered and replies are parsed.
    """
    play = Play(game, prompt_format, seed, member, game.initial_state(stream(seed, "initial_state")))
    while play.live:
        prompt = build_prompt(game, play.state, prompt_format, play.history)
        play.advance(prompt.observation, await ask(prompt, int(play.sampling.integers(2**31))))
    return play.episode()


def reported(score: Any) -> dict[str, float]:
    """The reported fields of an `EpisodeScore` that are not None."""
    return {name: float(value) for name in SCORES if (value := getattr(score, name)) is not None}
