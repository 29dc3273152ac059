"""TRL's `environment_factory`: a game as an environment whose one tool takes the whole reply, so that our parser judges it.

The model keeps its conversation and answers each turn with a call of the tool `play`. TRL needs a chat template that it knows and
that has tools; a model without one trains through `interop.trl_rollout`. Both APIs of TRL are experimental: tested with TRL 1.16.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from datasets import Dataset

from msgrpo_hub.agent.prompt_formats import THINK_ACTION, PromptFormat
from msgrpo_hub.episode import Episode
from msgrpo_hub.fields import Count, Seed, checked
from msgrpo_hub.games import Game, Split, episode_seed, make_game
from msgrpo_hub.interop.session import GameSession, Turn
from msgrpo_hub.msgrpo import composite_return

HOW = "Give every answer as the argument of the tool `play`. It returns the next observation, until the game is over."
OVER = "The game is over."


def draw_member() -> int:
    """A member of a group, drawn with the generator that TRL seeds differently in each process and keeps in its checkpoints."""
    return random.getrandbits(31)


class GameEnvironment:
    """One game at a time, as TRL plays it: `reset`, the tool `play`, and `get_reward`."""

    def __init__(self, game: str | Game, format_penalty: float = 1.0, prompt_format: PromptFormat = THINK_ACTION) -> None:
        self._session, self._penalty = GameSession(game, prompt_format), format_penalty
        self._turn: Turn | None = None

    def reset(self, seed: int, member: int | None = None, **row: Any) -> str:  # noqa: ARG002
        """Begins an episode.

        Args:
            seed: gives the start, the same for a whole group.
            member: gives the chance within the episode, such as slips and spawns; None draws one.
            row: the further columns of the dataset.

        Returns:
            The first observation with its request; TRL appends it to the prompt.
        """
        self._turn = self._session.reset(seed, draw_member() if member is None else member)
        return _shown(self._turn)

    def play(self, reply: str) -> str:
        """Play one turn of the game.

        Args:
            reply: Your whole answer, in the format that the observation asks for.

        Returns:
            The next observation, or the last one when the game is over.
        """
        if self._turn is None or not self._turn.done:
            self._turn = self._session.step(reply)
        return _shown(self._turn)

    def get_reward(self) -> float:
        """The episode's return, less the penalty for each reply without a readable action: what `msgrpo train` learns from.

        An episode that the model left before its end has the rewards of the turns that were played.
        """
        return composite_return(self.episode, self._penalty)

    @property
    def episode(self) -> Episode:
        """The record of the episode so far."""
        return self._session.episode


def _shown(turn: Turn) -> str:
    """What the model sees of a turn: the end of its prompt, since it keeps the conversation itself."""
    return f"{turn.observation}\n{OVER}" if turn.done else turn.messages[-1]["content"]


def trl_environment(
    game: str | Game, *, format_penalty: float = 1.0, prompt_format: PromptFormat = THINK_ACTION
) -> Callable[[], GameEnvironment]:
    """What `GRPOTrainer(environment_factory=...)` takes, for rows of `environment_dataset`.

    Args:
        game: the id of a registered game, or a game.
        format_penalty: taken from the return for each unparsed reply, as `TrainConfig.format_penalty`.
        prompt_format: how the model is asked and its replies are read.

    >>> environment = trl_environment("FrozenLake-NotSlippery-v1")()
    >>> print(environment.reset(seed=0, member=0).splitlines()[0])
    Current Observation:
    >>> print(environment.play("<action>Sideways</action>").splitlines()[-1])
    <think>your thought</think><action>Up</action>
    >>> environment.get_reward()
    -1.0
    """
    return partial(GameEnvironment, game, format_penalty, prompt_format)


@checked
def environment_dataset(
    game: str, episodes: Count, *, split: Split = "train", run: Seed = 0, prompt_format: PromptFormat = THINK_ACTION
) -> Dataset:
    """The starts of a split as rows for `trl_environment`.

    TRL repeats each row for a whole group. So a row has the seed of its start, and None for the member: each of its episodes
    then draws a chance of its own. With one seed for both, the slips of a group would be frozen.

    Args:
        game: the id of a registered game.
        episodes: the number of rows.
        split: where the boards of the starts belong.
        run: gives other starts to another run.
        prompt_format: as for `trl_environment`.

    Returns:
        A dataset with `prompt`, `seed` and `member`.
    """
    rules = prompt_format.render(make_game(game), "")[0]["content"]
    prompt = [{"role": "system", "content": f"{rules}\n{HOW}"}, {"role": "user", "content": ""}]
    seeds = [episode_seed(game, split, index, run) for index in range(episodes)]
    return Dataset.from_list([{"prompt": prompt, "seed": seed, "member": None} for seed in seeds])
