"""One episode in another framework's event loop: its model answers our prompts, one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgrpo_hub.agent.prompt import Prompt, build_prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.games import Game, stream
from msgrpo_hub.rollout import Play

SCORES = ("reward", "success", "luck_adjusted", "regret", "steps", "unreadable", "truncated_replies", "illegal")
"""The fields of an `EpisodeScore` that are reported; `luck_adjusted` and `regret` are None where the game is not solved."""

Ask = Callable[[Prompt, int], Awaitable[Completion]]
"""(prompt, seed of the request) → the reply."""


async def play_episode(game: Game, ask: Ask, seed: int, member: int, prompt_format: PromptFormat) -> Episode:
    """Plays one episode: the same that `msgrpo eval` plays with a server that gives the same replies to the same requests.

    Args:
        game: the rules.
        ask: gets each prompt with a seed for its request, which is the seed that a server gets from us.
        seed: of the initial state.
        member: which member of that seed's group plays.
        prompt_format: how the model is asked and its replies are read.
    """
    play = Play(game, prompt_format, seed, member, game.initial_state(stream(seed, "initial_state")))
    while play.live:
        prompt = build_prompt(game, play.state, prompt_format, play.history)
        play.advance(prompt.observation, await ask(prompt, int(play.sampling.integers(2**31))))
    return play.episode()


def scores_of(episode: Episode) -> dict[str, float]:
    """The scores of a finished episode, as `msgrpo eval` computes them, without those that are None."""
    _, scored = judged(episode)
    return {name: float(value) for name in SCORES if (value := getattr(scored, name)) is not None}
