"""One episode at a time for another framework's loop: it sends replies and gets prompts, rewards and what became of a reply.

The rules, the streams of chance, the parser and the record are those of `rollout`, so an episode is the same, byte for byte, as
the one that `play_groups` plays with the same seed, member and replies.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.agent.prompt_formats import THINK_ACTION, Message, PromptFormat
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import Number, check
from msgrpo_hub.games import Game, Split, episode_seed, make_game, splits_of, stream
from msgrpo_hub.games.seeds import split_of
from msgrpo_hub.rollout import Play


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a player sees before a reply, and what became of the reply before it."""

    messages: tuple[Message, ...]
    """The whole prompt; empty after the end."""
    observation: str
    """What the game shows now, also after the end."""
    action: str | None = None
    """The action that was parsed from the last reply; None if it has none."""
    unparsed: bool = False
    """Whether the last reply had no action that could be read: the player did nothing, and the game went on."""
    illegal: bool = False
    """Whether the last reply's action was read and was not legal."""
    reward: float | None = None
    """Of the last reply; None before the first."""
    terminated: bool = False
    truncated: bool = False
    success: bool = False

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


def environment_name(game_id: str) -> str:
    """The name of a game where only letters, digits and `_` may be.

    >>> environment_name("Snake-Standard-v1:compass")
    'snake_standard_v1_compass'
    """
    return re.sub(r"\W+", "_", game_id).lower()


class GameSession:
    """A game that another framework's loop plays, one episode after the other."""

    def __init__(self, game: Game | str, prompt_format: PromptFormat = THINK_ACTION) -> None:
        """Sets up a session without an episode.

        Args:
            game: a game, or the id of a registered one.
            prompt_format: how prompts are made and replies are parsed.
        """
        self.game: Game = make_game(game) if isinstance(game, str) else game
        self.prompt_format = prompt_format
        self._play: Play | None = None

    def reset(
        self,
        seed: int | None = None,
        member: int | None = None,
        split: Split | None = None,
        index: int | None = None,
    ) -> Turn:
        """Begins an episode.

        Args:
            seed: gives the start. None: that of the split's episode `index`.
            member: gives the chance within the episode, such as slips and spawns. None draws one, so that the episodes of a
                group, which share their seed, do not share their chance.
            split: where the start's board belongs. With a seed, a board of another split is refused. None: any board for a
                seed, a training board without one.
            index: the number of an episode in its split; None draws one.

        Raises:
            UserError: an argument is out of range, or two contradict each other.
        """
        for name, value in (("seed", seed), ("member", member), ("index", index)):
            check(name, value, Number | None)
        if split is not None:
            check("split", split, Split)
        if seed is not None and index is not None:
            raise UserError(f"seed = {seed} with index = {index}: expected only one of them, since each gives the start")
        if seed is None:
            seed = episode_seed(self.game.id, split or "train", secrets.randbits(31) if index is None else index)
        start = self.game.initial_state(stream(seed, "initial_state"))
        if split and splits_of(self.game.id).are_apart and split_of(self.game, start) != split:
            raise UserError(
                f"seed = {seed} starts on a {split_of(self.game, start)} board: expected a seed of the split {split!r}"
            )
        self._play = Play(self.game, self.prompt_format, seed, secrets.randbits(31) if member is None else member, start)
        return self._turn(self._play)

    def step(self, reply: str) -> Turn:
        """Plays one turn.

        Args:
            reply: the whole text of a reply; it is parsed here.

        Raises:
            UserError: no episode has begun, or it has ended.
        """
        check("reply", reply, str)
        play = self._live()
        play.advance(self.game.observe(play.state), Completion(text=reply))
        return self._turn(play)

    @property
    def episode(self) -> Episode:
        """The record of the episode so far. Raises `UserError` if none has begun."""
        if self._play is None:
            raise UserError(f"{self.game.id}: no episode has begun: call reset first")
        return self._play.episode()

    def _live(self) -> Play:
        if self._play is None or not self._play.live:
            what = "no episode has begun" if self._play is None else "the episode has ended"
            raise UserError(f"{self.game.id}: {what}: call reset first")
        return self._play

    def _turn(self, play: Play) -> Turn:
        prompt = build_prompt(self.game, play.state, self.prompt_format, play.history)
        last = play.steps[-1] if play.steps else None
        return Turn(
            messages=tuple(prompt.messages) if play.live else (),
            observation=prompt.observation,
            action=last.action if last else None,
            unparsed=last is not None and last.action is None,
            illegal=last is not None and last.action is not None and not last.legal,
            reward=last.reward if last else None,
            terminated=play.terminated,
            truncated=play.truncated,
            success=not play.live and self.game.succeeded(play.state),
        )
