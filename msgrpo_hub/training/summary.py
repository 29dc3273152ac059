"""The final table of a run: every player on the same test episodes, with intervals, and which episode the replay shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from peft import PeftModel

from msgrpo_hub.agent.policy import Policy, ScriptedPolicy
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.statistics import Interval, mean_interval, wilson
from msgrpo_hub.fields import check
from msgrpo_hub.games import Game, base_game, episode_seed
from msgrpo_hub.games.game import is_solvable, return_range
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.players.registry import SCRIPTED, can_play
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage.files import read_json
from msgrpo_hub.storage.tables import Origin, Rollout, tables
from msgrpo_hub.training.metrics import reply_rates


@dataclass(frozen=True)
class Played:
    """A player's test episodes: sampled at the evaluation temperature, and greedy."""

    name: str
    sampled: list[Episode]
    greedy: list[Episode]


def play_test(game: Game, agent: LanguageModel, seeds: Sequence[int], temperature: float) -> list[Played]:
    """Plays the same test episodes with the scripted players, the base and the adapter.

    The last row is the reference: optimal play if the game can be solved, otherwise the greedy player if it knows the game.
    """

    def play(policy: Policy) -> list[Episode]:
        return play_episodes(game, policy, [(seed, 0) for seed in seeds], prompt_format=agent.prompt_format)

    def scripted(name: str, choose: Any) -> Played:
        episodes = play(ScriptedPolicy(choose))
        return Played(name, episodes, episodes)

    def model(name: str) -> Played:
        return Played(name, play(replace(agent, temperature=temperature)), play(replace(agent, temperature=0.0)))

    before, after = references(game)
    played = [scripted(name, SCRIPTED[name]) for name in before]
    with cast(PeftModel, agent.model).disable_adapter():
        played.append(model("base"))
    played.append(model("adapter"))
    return played + [scripted(name, SCRIPTED[name]) for name in after if can_play(name, game)]


def references(game: Game) -> tuple[list[str], list[str]]:
    """The scripted players of the table, above the models and below them."""
    solved = is_solvable(base_game(game))
    return (["silent", "random"], ["optimal"]) if solved else (["silent", "random", "random-safe"], ["greedy"])


def left_out(game: Game) -> list[str]:
    """The references that cannot play a game, each with the reason."""
    before, after = references(game)
    return [f"{name} does not know {game.id}: left out" for name in (*before, *after) if not can_play(name, game)]


def scores(game: Game, played: Played) -> dict[str, Any]:
    """A player's row: success and reward, sampled and greedy, each with its 95 % interval, and the rates of its replies.

    A scripted player has no temperature: its sampled and greedy figures come from the same episodes.
    """
    seed = episode_seed(game.id, "test", 0)
    row: dict[str, Any] = {"episodes": len(played.sampled)}
    for suffix, episodes in (("", played.sampled), ("_greedy", played.greedy)):
        successes = sum(episode.success for episode in episodes)
        rewards = [episode.reward for episode in episodes]
        row[f"success{suffix}"] = successes / len(episodes)
        row[f"success{suffix}_interval"] = _pair(wilson(successes, len(episodes)))
        row[f"reward{suffix}"] = float(np.mean(rewards))
        interval = mean_interval(rewards, seed, bounds=return_range(game))
        row[f"reward{suffix}_interval"], row[f"reward{suffix}_rule"] = _pair(interval), interval and interval.rule
    return row | reply_rates(played.sampled)


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def episode_table(played: Sequence[Played], origin: Origin, prompt_format: str) -> pa.Table:
    """Every test episode of every player, one row each. The summary's figures follow from it.

    Args:
        played: the players' episodes; those of a scripted player are written once, without a temperature.
        origin: of the run; its temperature is that of sampled play, and greedy play has temperature 0.
        prompt_format: name of the format that all were asked in.
    """
    parts = []
    for player in played:
        scripted = player.sampled is player.greedy
        own = Origin(split="test", player=player.name, run=origin.run) if scripted else replace(origin, player=player.name)
        ways = [(None, player.sampled)] if scripted else [(origin.temperature, player.sampled), (0.0, player.greedy)]
        for temperature, episodes in ways:
            rollouts = [Rollout(episode=e, index=index, prompt_format=prompt_format) for index, e in enumerate(episodes)]
            both = tables(rollouts, replace(own, temperature=temperature), [judged(episode) for episode in episodes])
            parts.append(both["default"])
    return pa.concat_tables(parts)


def replayed_episode(base: Played, adapter: Played) -> int:
    """The index of the test episode that the replay shows: the adapter's largest margin in reward, the first of equals."""
    margins = [a.reward - b.reward for a, b in zip(adapter.sampled, base.sampled, strict=True)]
    return int(np.argmax(margins))


def read_summary(path: Path) -> dict[str, Any]:
    """The summary of a finished run. Raises `UserError` if it is damaged."""
    remedy = "what a finished run writes; delete it, and finish the run again with --resume"
    summary = read_json(path, remedy)
    try:
        for name in ("seconds_acting", "seconds_training", "seconds"):
            check(name, summary[name], float)
        check("config", summary["config"], dict)
        if "players" in summary:
            table(summary)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{str(path)!r} is damaged ({error}): expected {remedy}") from error
    return summary


def table(summary: dict[str, Any]) -> str:
    """A summary as a text table."""
    header = f"{'player':<12}{'success':>24}{'greedy':>9}{'reward':>26}{'greedy':>9}"
    boards = f" on {summary['boards']} boards" if "boards" in summary else ""
    lines = [f"{summary['game']}, {summary['episodes']} test episodes{boards}, 95 % intervals", header, "─" * len(header)]
    for name in summary["players"]:
        row = summary[name]
        success = f"{row['success']:.3f} {_range(row['success_interval'])}"
        reward = f"{row['reward']:.3f} {_range(row['reward_interval'])}"
        lines.append(f"{name:<12}{success:>24}{row['success_greedy']:>9.3f}{reward:>26}{row['reward_greedy']:>9.3f}")
    return "\n".join([*lines, *summary.get("left_out", [])])


def _range(interval: list[float] | None) -> str:
    return "(too few)" if interval is None else f"[{interval[0]:.3f}, {interval[1]:.3f}]"
