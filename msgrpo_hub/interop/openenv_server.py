"""A game as an OpenEnv environment: the server of a pushed environment package. Importing it needs the package openenv.

An action is the whole text of a reply, which our parser reads. An observation has the prompt as chat messages.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any
from uuid import uuid4

from fastapi import FastAPI
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from openenv.core.env_server.types import EnvironmentMetadata
from pydantic import Field

from msgrpo_hub import __version__
from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.agent.prompt_formats import THINK_ACTION
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Split, make_game
from msgrpo_hub.interop.episodes import start_play, status
from msgrpo_hub.rollout import Play

SESSIONS = 256
"""Sessions that a server allows at once."""


class ReplyAction(Action):  # type: ignore[misc]
    """The reply of a player."""

    reply: str = Field(description="The whole reply, such as '<think>…</think><action>Left</action>'; the server parses it.")


class TurnObservation(Observation):  # type: ignore[misc]
    """A player's view; `metadata` has the state of the episode and the parsed action of the last reply."""

    messages: list[dict[str, str]] = Field(description="The whole prompt of this turn as chat messages; empty after the end.")
    text: str = Field(description="The observation of the game.")


class EpisodeState(State):  # type: ignore[misc]
    """The episode: the same game, seed, split, member and replies give the same episode."""

    game: str = Field(description="The versioned id of the game.")
    seed: int | None = Field(default=None, description="The seed of the start; None before the first reset.")
    split: Split | None = Field(default=None, description="The split of the board; None before the first reset.")
    member: int | None = Field(default=None, description="The seed of the dynamics within the episode.")


class GameEnvironment(Environment):  # type: ignore[misc]
    """One episode of a game at a time."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, game_id: str) -> None:
        super().__init__()
        self._game, self._state = make_game(game_id), EpisodeState(game=game_id)
        self._play: Play | None = None

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        member: int | None = None,
        split: Split = "train",
        index: int | None = None,
    ) -> TurnObservation:
        """Starts an episode; arguments as for `start_play`."""
        self._play = play = start_play(self._game, THINK_ACTION, seed, member, split, index)
        start = {"seed": play.seed, "split": split, "member": play.member}
        self._state = EpisodeState(game=self._game.id, episode_id=str(episode_id or uuid4()), **start)
        return self._observation(play)

    def step(self, action: ReplyAction, timeout_s: float | None = None, **_: Any) -> TurnObservation:  # noqa: ARG002
        """Plays one turn with a reply."""
        play = self._play
        if play is None or not play.live:
            reason = "the episode has ended" if play else "no episode has started"
            raise UserError(f"{self._game.id}: {reason}: call reset first")
        play.advance(self._game.observe(play.state), Completion(text=action.reply))
        self._state.step_count += 1
        return self._observation(play)

    @property
    def state(self) -> EpisodeState:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name=self._game.id, description=self._game.instructions, version=__version__)

    def _observation(self, play: Play) -> TurnObservation:
        prompt = build_prompt(self._game, play.state, THINK_ACTION, play.history)
        return TurnObservation(
            messages=prompt.messages if play.live else [],
            text=prompt.observation,
            reward=play.steps[-1].reward if play.steps else None,
            done=not play.live,
            metadata=status(play) | {"split": self._state.split},
        )


def create_game_app(game_id: str) -> FastAPI:
    """The server of a registered game or a variant of one: HTTP to look at it, a WebSocket to play it."""
    name = re.sub(r"\W+", "_", game_id).lower()
    app: FastAPI = create_app(
        partial(GameEnvironment, game_id), ReplyAction, TurnObservation, env_name=name, max_concurrent_envs=SESSIONS
    )
    return app
