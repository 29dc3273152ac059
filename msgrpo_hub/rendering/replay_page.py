"""Everything that a web page needs to replay episodes: data, script, style and shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate
from typing import Any

from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.agent.prompt_formats import THINK_ACTION, PromptFormat
from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation.scores import score_episode, score_steps
from msgrpo_hub.games import Game, base_game, display_name
from msgrpo_hub.rendering.board_art import DARK, LIGHT
from msgrpo_hub.rendering.replay_data import Data, episode_data, game_data, shapes, state_data
from msgrpo_hub.rollout import past_turns, replayed_states

READER_PREFERS_DARK = "@media (prefers-color-scheme:dark)"

_DRAWN = ":is(.board,.replay-icon)"
"""What has the colours of the pieces: boards, and the pictures of the legend."""


@dataclass(frozen=True, kw_only=True)
class ReplayAssets:
    """The parts of a page that all its replays share."""

    script: str
    """JavaScript. `replayPlayer(element, options)` makes a player, whose `show({players})` begins a replay; `drawBoard(game,
    episode, turn, label)` draws one board, and `glide` moves it on from the board before."""
    style: str
    """CSS of the boards, in light and dark, and of the player; the page gives the colours that replay_player.css names."""
    shapes: str
    """An invisible SVG with every shape that the boards use, for the body of the page."""


@dataclass(frozen=True)
class Replay:
    """A game's boards and episodes as plain data for the replay player of a web page.

    >>> from msgrpo_hub.games import make_game
    >>> Replay(make_game("FrozenLake-NotSlippery-v1")).game_data()["actions"]
    ['Left', 'Down', 'Right', 'Up']
    """

    game: Game
    """The game of the episodes."""
    prompt_format: PromptFormat = THINK_ACTION
    """The prompt format that the player was asked in."""

    def game_data(self) -> Data:
        """The data of the game that the replay player needs to draw its boards."""
        return game_data(self.game)

    def state_data(self, state: Any) -> Data:
        """One board: the cells of its pieces by symbol, and the moving bodies."""
        return state_data(self.game, state)

    def episode_data(self, player: str, episode: Episode) -> Data:
        """One player's episode, with all its details.

        Returns:
            `player`, `game`, `seed` (text: it has more digits than a JavaScript number holds), `system` (the constant part of
            the prompt), `states` (one more than `steps`), `ending`, `ended` (how, in words), `reward`, `success`, `regret` and
            `value_optimal`. Each of the `steps` has its `prompt`, `reply`, `status`, `action`, `legal`, `optimal` and `best`
            actions (numbers in `game["actions"]`; the best are the optimal ones that shorten the way), `move` (the same number
            under all names of an action), `reward` and `regret`, and the sums `reward_so_far` and `regret_so_far`. A regret is
            None if the game is not solved.

        Raises:
            ValueError: for a record that does not replay.
        """
        scores = score_steps(self.game, episode)
        summary, states = score_episode(self.game, episode, scores), replayed_states(self.game, episode)
        data = episode_data(self.game, episode, scores)
        prompts = [
            build_prompt(self.game, state, self.prompt_format, past_turns(self.prompt_format, episode.steps[:turn]))
            for turn, state in enumerate(states)
        ]
        rewards = accumulate(step.reward for step in episode.steps)
        regrets = accumulate(score.regret or 0.0 for score in scores)
        for index, (step, reward, regret) in enumerate(zip(data["steps"], rewards, regrets, strict=True)):
            step["prompt"] = prompts[index].user
            step["move"] = self._move(episode.steps[index].action)
            step["reward_so_far"] = reward
            step["regret_so_far"] = None if step["regret"] is None else regret
        return data | {
            "player": player,
            "game": self.game_data(),
            "seed": str(episode.seed),
            "system": prompts[0].system,
            "reward": summary.reward,
            "success": summary.success,
            "regret": summary.regret,
            "value_optimal": summary.value_optimal,
        }

    def _move(self, action: str | None) -> int | None:
        """The index of a displayed action among the actions of the base game."""
        actions = base_game(self.game).actions
        return next((index for index, name in enumerate(actions) if display_name(self.game, name) == action), None)

    @staticmethod
    def assets(games: Iterable[str], dark: str = READER_PREFERS_DARK) -> ReplayAssets:
        """The shared parts of a page with replays of some games.

        Args:
            games: ids of the games.
            dark: the CSS rule or selector under which the page is dark.
        """
        light, darker = (colours.replace(":root", "&") for colours in (LIGHT, DARK))
        drawn = "".join(f'<g id="{name}">{shape}</g>' for name, shape in shapes(games).items())
        return ReplayAssets(
            script=read_part("replay_board.js") + read_part("replay_player.js"),
            style=f"{_DRAWN}{{{light}}}{dark}{{{_DRAWN}{{{darker}}}}}" + read_part("replay_player.css"),
            shapes=f'<svg class="shapes" width="0" height="0" aria-hidden="true" focusable="false"><defs>{drawn}</defs></svg>',
        )


def read_part(name: str) -> str:
    """The text of a file in this package."""
    return (files("msgrpo_hub.rendering") / name).read_text(encoding="utf-8")
