"""A game as an OpenEnv environment: the server of a pushed environment package. Importing it needs the package openenv.

An action is the whole text of a reply, which our parser reads. An observation has the prompt as chat messages.
"""

from __future__ import annotations

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
from msgrpo_hub.interop.episodes import start_play
from msgrpo_hub.rollout import Play, past_turns


class ReplyAction(Action):  # type: ignore[misc]
    """The reply of a player."""

    reply: str = Field(description="The whole reply, such as '<think>…</think><action>Left</action>'; the server parses it.")


class TurnObservation(Observation):  # type: ignore[misc]
    """A player's view; `metadata` has the state of the episode and the parsed action of the last reply."""

    messages: list[dict[str, str]] = Field(description="The whole prompt of this turn as chat messages; empty after the end.")
    text: str = Field(description="The observation of the game.")


class GameEnvironment(Environment):  # type: ignore[misc]
    """One episode of a game at a time. Its `state` has the game, seed, split and member, which give the episode again."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def __init__(self, game_id: str) -> None:
        super().__init__()
        self._game = make_game(game_id)
        self._play: Play | None = None
        self.state = State(game=game_id)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, member: int | None = None, split: Split = "train"
    ) -> TurnObservation:
        """Starts an episode; arguments as for `start_play`."""
        self._play = play = start_play(self._game, THINK_ACTION, seed, member, split)
        start = {"seed": play.seed, "split": split, "member": play.member}
        self.state = State(game=self._game.id, episode_id=str(episode_id or uuid4()), **start)
        return self._observation(play)

    def step(self, action: ReplyAction, timeout_s: float | None = None, **_: Any) -> TurnObservation:  # noqa: ARG002
        """Plays one turn with a reply."""
        play = self._play
        if play is None or not play.live:
            reason = "the episode has ended" if play else "no episode has started"
            raise UserError(f"{self._game.id}: {reason}: call reset first")
        play.advance(self._game.observe(play.state), Completion(text=action.reply))
        self.state.step_count += 1
        return self._observation(play)

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name=self._game.id, description=self._game.instructions, version=__version__)

    def _observation(self, play: Play) -> TurnObservation:
        prompt = build_prompt(self._game, play.state, THINK_ACTION, past_turns(THINK_ACTION, play.steps))
        last = play.steps[-1] if play.steps else None
        return TurnObservation(
            messages=prompt.messages if play.live else [],
            text=prompt.observation,
            reward=last.reward if last else None,
            done=not play.live,
            metadata={
                "action": last.action if last else None,
                "unparsed": last is not None and last.action is None,
                "illegal": last is not None and last.action is not None and not last.legal,
                "terminated": play.terminated,
                "truncated": play.truncated,
                "success": not play.live and self._game.succeeded(play.state),
                "seed": play.seed,
                "member": play.member,
                "split": self.state.split,
            },
        )


def create_game_app(game_id: str) -> FastAPI:
    """The server of a registered game or a variant of one: HTTP to look at it, a WebSocket to play it."""
    app: FastAPI = create_app(partial(GameEnvironment, game_id), ReplyAction, TurnObservation, max_concurrent_envs=256)
    return app
