"""A game as an OpenEnv environment: what the server of a pushed environment package runs.

An action is the whole text of a reply, which our parser judges, as everywhere else here. An observation has the prompt as chat
messages. The seed gives the start; the member gives the chance within the episode and is drawn where none is given, since
members that shared it would all play the same game. The package openenv is needed to import this module.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast
from uuid import uuid4

from fastapi import FastAPI
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from openenv.core.env_server.types import EnvironmentMetadata
from pydantic import Field

from msgrpo_hub import __version__
from msgrpo_hub.fields import check
from msgrpo_hub.games import Split, episode_seed
from msgrpo_hub.games.seeds import SHARES
from msgrpo_hub.interop.session import GameSession, Turn, environment_name

SESSIONS = 256
"""Sessions that a server allows at once."""
TASKS, _LISTED = 10_000, 100
"""Episodes of a split that have a number in OpenEnv's task API, and how many of them are listed. A reset takes any index."""
_STATUS = ("action", "unparsed", "illegal", "terminated", "truncated", "success")


class ReplyAction(Action):  # type: ignore[misc]
    """The reply of a player."""

    reply: str = Field(description="The whole reply, such as '<think>…</think><action>Left</action>'; the server parses it.")


class TurnObservation(Observation):  # type: ignore[misc]
    """What a player sees; `metadata` says what became of the last reply."""

    messages: list[dict[str, str]] = Field(description="The whole prompt of this turn as chat messages; empty after the end.")
    text: str = Field(description="What the game shows now.")


class EpisodeState(State):  # type: ignore[misc]
    """Which episode is played: with the same game, seed, member and replies, it is the same again."""

    game: str = Field(description="The versioned id of the game.")
    seed: int | None = Field(default=None, description="Gives the start; None before the first reset.")
    member: int | None = Field(default=None, description="Gives the chance within the episode.")


class GameEnvironment(Environment):  # type: ignore[misc]
    """One episode of a game at a time."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, game_id: str) -> None:
        super().__init__()
        self._session, self._state = GameSession(game_id), EpisodeState(game=game_id)

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        member: int | None = None,
        split: Split | None = None,
        index: int | None = None,
    ) -> TurnObservation:
        """Begins an episode; arguments as for `GameSession.reset`."""
        check("episode_id", episode_id, str | None)  # before the session begins another episode
        turn = self._session.reset(seed, member, split, index)
        episode = self._session.episode
        self._state = EpisodeState(
            game=episode.game_id, seed=episode.seed, member=episode.member, episode_id=episode_id or str(uuid4())
        )
        return self._shown(turn)

    def step(self, action: ReplyAction, timeout_s: float | None = None, **_: Any) -> TurnObservation:  # noqa: ARG002
        """Plays one turn with a reply."""
        turn = self._session.step(action.reply)
        self._state.step_count += 1
        return self._shown(turn)

    @property
    def state(self) -> EpisodeState:
        return self._state

    def list_splits(self) -> list[str]:
        return list(SHARES)

    def num_tasks(self, split: str) -> int:
        """How many episodes of a split have a number. Raises `IndexError` for an unknown split: OpenEnv answers it with 400."""
        if split not in SHARES:
            raise IndexError(split)
        return TASKS

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """An episode of a split, as `reset` takes it. Raises `IndexError` for an unknown split or a number not counted."""
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(index)
        seed = episode_seed(self._session.game.id, cast(Split, split), index)
        return {"id": f"{split}-{index}", "split": split, "index": index, "seed": seed}

    async def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Some episodes of a split, by default all, up to the last that is counted. The server answers others meanwhile."""
        if min(start or 0, stop or 0) < 0:
            raise IndexError(start, stop)
        numbers = range(self.num_tasks(split))[start:stop]
        return await asyncio.to_thread(lambda: [self.get_task(split, index) for index in numbers])

    async def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """The first episodes of a split."""
        return await self.get_task_range(split, 0, _LISTED)

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name=self._state.game, description=self._session.game.instructions, version=__version__)

    def _shown(self, turn: Turn) -> TurnObservation:
        status = {name: getattr(turn, name) for name in _STATUS} | {"seed": self._state.seed, "member": self._state.member}
        return TurnObservation(
            messages=[dict(message) for message in turn.messages],
            text=turn.observation,
            reward=turn.reward,
            done=turn.done,
            metadata=status,
        )


def create_game_app(game_id: str) -> FastAPI:
    """The server of a game: HTTP for looking at it, a WebSocket for playing it.

    Args:
        game_id: a registered game, or a variant of one.
    """
    made, name = partial(GameEnvironment, game_id), environment_name(game_id)
    app: FastAPI = create_app(made, ReplyAction, TurnObservation, env_name=name, max_concurrent_envs=SESSIONS)
    return app
