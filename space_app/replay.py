"""Replays as plain data, for the page, for programs and for tests. Needs neither gradio nor torch.

A replay is one game, one seed and one or more players: every board, prompt and reply, the actions that were possible, and
their values. `msgrpo_hub.rendering.Replay` makes the data of one player; its script shows them in the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msgrpo_hub.agent import THINK_ACTION, Prompt, PromptFormat
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.games import Game, episode_seed, make_game
from msgrpo_hub.rendering import Replay
from msgrpo_hub.rollout import play_episodes

Data = dict[str, Any]


@dataclass(frozen=True)
class StoredReplies:
    """A policy that gives stored replies in their order. After the last one it gives an error, which ends the episode."""

    replies: Sequence[Mapping[str, str]]

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        turn = prompts[0].state.turn
        if turn >= len(self.replies):
            return [Completion(text="", error="no more replies")]
        return [Completion(**self.replies[turn])]


def seed_of(game: Game, number: int) -> int:
    """The seed of test episode `number`, as in `msgrpo play --seed`."""
    return episode_seed(game.id, "test", number)


def play_replies(game: Game, number: int, replies: Sequence[Mapping[str, str]]) -> Episode:
    """The episode of stored replies. Each is `{"text": …}`, with `"finish": "length"` if it was truncated."""
    [episode] = play_episodes(game, StoredReplies(replies), [(seed_of(game, number), 0)])
    return episode


def player_data(game: Game, player: str, episode: Episode, prompt_format: PromptFormat = THINK_ACTION) -> Data:
    """One player's episode, asked in a prompt format, as `Replay.episode_data` describes it.

    Raises:
        ValueError: for a record that does not replay.
    """
    return Replay(game, prompt_format).episode_data(player, episode)


def combine(number: int, players: Sequence[Data]) -> Data:
    """A replay of one or two players on one seed. The game may be worded differently for each of them.

    Args:
        number: of the test episode.
        players: the data of each player.

    Returns:
        `number`, `seed` (text: it has more digits than a JavaScript number holds), `players`, and `divergence`: the first
        turn, from 0, on which the first two players make moves that differ and are not equally good; None if there is none.
    """
    return {
        "number": number,
        "seed": players[0]["seed"],
        "players": list(players),
        "divergence": divergence(*players[:2]) if len(players) > 1 else None,
    }


def divergence(a: Data, b: Data) -> int | None:
    """The first turn, from 0, on which two players make moves that differ and are not equally good, or only one still plays."""
    for turn, (one, other) in enumerate(zip(a["steps"], b["steps"], strict=False)):
        both_good = all(step["action"] in step["best"] for step in (one, other))
        if one["move"] != other["move"] and not both_good:
            return turn
    lengths = {len(a["steps"]), len(b["steps"])}
    return min(lengths) if len(lengths) == 2 else None


def bundled_replay(bundle: Mapping[str, Any], game_id: str, number: int, player: str) -> Data | None:
    """The replay of an episode in the bundle; None if it is not there."""
    replies = bundle.get(game_id, {}).get(player, {}).get(str(number))
    if replies is None:
        return None
    game = make_game(game_id)
    return combine(number, [player_data(game, player, play_replies(game, number, stored(replies)))])


def stored(replies: Sequence[str | Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The replies of an episode in the bundle as `play_replies` takes them: those that are a text ended by themselves."""
    return [{"text": reply} if isinstance(reply, str) else reply for reply in replies]
