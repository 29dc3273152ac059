"""Episodes as plain data: what a page, a program or a test needs to show one, without gradio and without torch.

A film is one game, one seed and one or more players: every board, what was seen, what was answered, what could have been
done and what it was worth. The page draws it (film.js); `drawing` makes the animated SVG of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from msgrpo_hub.agent import Prompt, build_prompt
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.evaluation import score_episode, score_steps
from msgrpo_hub.games import Game, base_game, display_name, episode_seed, make_game
from msgrpo_hub.rendering import episode_data, game_data, replay_svg
from msgrpo_hub.rollout import play_episodes, replayed_states

Data = dict[str, Any]


@dataclass(frozen=True)
class Replies:
    """A policy that gives replies which were given before, in their order; then none, which ends the episode there."""

    replies: Sequence[Mapping[str, str]]

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        turn = prompts[0].state.turn
        if turn >= len(self.replies):
            return [Completion(text="", error="no more replies")]
        return [Completion(**self.replies[turn])]


def seed_of(game: Game, number: int) -> int:
    """The seed of test episode `number`, as in `msgrpo play --seed`."""
    return episode_seed(game.id, "test", number)


def played_again(game: Game, number: int, replies: Sequence[Mapping[str, str]]) -> Episode:
    """The episode that stored replies lead to. Each is `{"text": …}`, with `"finish": "length"` where it was cut."""
    [episode] = play_episodes(game, Replies(replies), [(seed_of(game, number), 0)])
    return episode


def film(game: Game, number: int, episodes: Mapping[str, Episode]) -> Data:
    """Players on one seed, as plain data.

    Args:
        game: the rules they played by.
        number: of the test episode.
        episodes: player → its episode.

    Returns:
        `number`, `seed` (as text: it has more digits than JavaScript keeps), `players` (see `track`), and `divergence`: the
        first turn, from 0, on which the first two players do not do the same; None where they never differ.

    Raises:
        ValueError: for a record that does not replay.
    """
    tracks = [track(game, name, episode) for name, episode in episodes.items()]
    return assemble(number, tracks)


def assemble(number: int, tracks: Sequence[Data]) -> Data:
    """A film of tracks that are there already: of one seed, and of one game, which may be told in other words to each."""
    return {
        "number": number,
        "seed": tracks[0]["seed"],
        "players": list(tracks),
        "divergence": divergence(*tracks[:2]) if len(tracks) > 1 else None,
    }


def track(game: Game, name: str, episode: Episode) -> Data:
    """One player's episode.

    Returns:
        `game` (how its boards are drawn), `system` (the constant part of the prompt), `states`, one more than `steps`: each
        with the `prompt`, the `reply` word by word, its `status`, the `action` read from it, the `legal` and `optimal` ones
        (numbers in `game["actions"]`), `move` (the action that is meant, where names are changed), `reward` and `regret` of
        the step and so far (regret None where the game is not solved); then `ending`, and the sums.
    """
    scores = score_steps(game, episode)
    data, whole = episode_data(game, episode, scores), score_episode(game, episode, scores)
    rewards = list(accumulate(step.reward for step in episode.steps))
    regrets = list(accumulate(score.regret or 0.0 for score in scores))
    states = replayed_states(game, episode)
    for turn, (shown, state) in enumerate(zip(data["steps"], states, strict=False)):
        shown["prompt"] = build_prompt(game, state).user
        shown["move"] = move(game, episode.steps[turn].action)
        shown["reward_so_far"] = rewards[turn]
        shown["regret_so_far"] = None if scores[turn].regret is None else regrets[turn]
    return data | {
        "player": name,
        "game": game_data(game),
        "seed": str(episode.seed),
        "system": build_prompt(game, states[0]).system,
        "reward": whole.reward,
        "success": whole.success,
        "regret": whole.regret,
        "value_optimal": whole.value_optimal,
    }


def move(game: Game, action: str | None) -> int | None:
    """The number of the action that is meant, in the game underneath: the same move has the same number in all variants."""
    own = base_game(game).actions
    return next((number for number, each in enumerate(own) if display_name(game, each) == action), None)


def divergence(a: Data, b: Data) -> int | None:
    """The first turn, from 0, on which two players do not do the same: another action, or one of them has ended."""
    for turn, (one, other) in enumerate(zip(a["steps"], b["steps"], strict=False)):
        if one["move"] != other["move"]:
            return turn
    lengths = {len(a["steps"]), len(b["steps"])}
    return min(lengths) if len(lengths) == 2 else None


def drawing(game: Game, episodes: Mapping[str, Episode]) -> str:
    """The film as one animated SVG, which needs no script."""
    return replay_svg(game, list(episodes.items()))


def bundled_film(bundle: Mapping[str, Any], game_id: str, number: int, player: str) -> Data | None:
    """The film of an episode that comes with the Space; None where it is not among them."""
    replies = bundle.get(game_id, {}).get(player, {}).get(str(number))
    if replies is None:
        return None
    game = make_game(game_id)
    given = [{"text": reply} if isinstance(reply, str) else reply for reply in replies]
    return film(game, number, {player: played_again(game, number, given)})
