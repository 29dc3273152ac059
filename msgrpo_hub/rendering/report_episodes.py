"""The episodes that a report replays: those on which the players differ most, and the worst of each player.

Of a run that plays each board several times, the first play of each is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest

from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.suites import run_seeds
from msgrpo_hub.evaluation.tables import titles
from msgrpo_hub.games import make_game
from msgrpo_hub.games.solving import TIE
from msgrpo_hub.rendering.replay_data import Data, episode_data, game_data
from msgrpo_hub.rendering.report_plots import ending, number

WORST = 3
"""Worst episodes listed per player."""

MOST = 20
"""Episodes of a task that can be replayed."""

BUDGET = 2_000_000
"""Limit on the replays of a page in bytes; with its plots, the page stays below 3 MB."""


def worst_episodes(result: Result) -> list[int]:
    """Positions of a player's worst episodes: the largest regrets, or the lowest rewards if the game is not solved."""
    badness = [-score.reward if score.regret is None else score.regret for score in result.scores]
    order = sorted(range(len(badness)), key=lambda position: (-badness[position], position))
    first = [position for position in order if not result.episodes[position].member]
    return [position for position in first if result.scores[position].regret is None or badness[position] > TIE][:WORST]


def telling_seeds(results: Sequence[Result]) -> list[int]:
    """Seeds to replay: alternately one on which the players differ most, and a player's worst."""
    rewards: dict[int, list[tuple[float, float]]] = {}
    for result in results:
        for episode, score in zip(result.episodes, result.scores, strict=True):
            if not episode.member:
                rewards.setdefault(episode.seed, []).append((score.reward, score.regret or 0.0))

    def apart(seed: int) -> tuple[float, ...]:
        return tuple(max(values) - min(values) for values in zip(*rewards[seed], strict=True))

    differ = sorted(rewards, key=apart, reverse=True)[:MOST]  # of a single player, in the order of the suite
    ranks = zip_longest(*([r.episodes[position].seed for position in worst_episodes(r)] for r in results))
    worst = [seed for rank in ranks for seed in rank if seed is not None]
    mixed = chain.from_iterable(zip_longest(differ, worst))
    return list(dict.fromkeys(seed for seed in mixed if seed is not None))[:MOST]


def episode_numbers(result: Result) -> dict[int, int]:
    """The number of each episode in its split, by seed."""
    return {seed: index for index, seed in enumerate(run_seeds(result.config))}


def collect_replays(
    tasks: Sequence[Sequence[Result]], bases: Sequence[Result], name: Callable[[Result], str], budget: int = BUDGET
) -> Data:
    """The replays of a page as plain data.

    Args:
        tasks: the results of each task.
        bases: the player of each task that the others are compared with.
        name: a player's name on the page.
        budget: bytes that the replays may take; every task's first seeds come first.

    Raises:
        UserError: for a record that does not replay.
    """
    players = list(dict.fromkeys(name(result) for results in tasks for result in results))
    shown = [_task(results[0], title) for results, title in zip(tasks, titles(tasks), strict=True)]
    for task, results, base in zip(shown, tasks, bases, strict=True):
        other = _companion(results, base)
        task["pair"] = {"a": players.index(name(base)), "b": players.index(name(other)) if other else None}
    queues = [telling_seeds(results) for results in tasks]
    for rank in range(MOST):
        for task, results, queue in zip(shown, tasks, queues, strict=True):
            if rank < len(queue):
                seed = _seed(results, queue[rank], [players.index(name(result)) for result in results])
                budget -= len(json.dumps(seed, ensure_ascii=False).encode("utf-8", "surrogatepass"))
                if budget >= 0:
                    task["seeds"].append(seed)
    return {"players": players, "tasks": shown}


def _companion(results: Sequence[Result], base: Result) -> Result | None:
    """The player shown beside the base: its adapter, else the best of the others."""
    others = [result for result in results if result is not base]
    commit = base.config["identity"].get("base_commit")
    adapters = [result for result in others if commit and result.config["identity"].get("base_commit") == commit]
    return next(iter([*adapters, *others]), None)


def _task(result: Result, title: str) -> Data:
    return game_data(make_game(result.task)) | {"title": title, "seeds": []}


def _seed(results: Sequence[Result], seed: int, players: Sequence[int]) -> Data:
    """The episodes of all players on one seed."""
    found = [
        (player, result, position)
        for player, result in zip(players, results, strict=True)
        for position, episode in enumerate(result.episodes)
        if episode.seed == seed and not episode.member
    ]
    rewards = sorted({result.scores[position].reward for _, result, position in found})
    span = " to ".join(number(reward, 0 if reward.is_integer() else 2) for reward in dict.fromkeys((rewards[0], rewards[-1])))
    return {
        "seed": str(seed),  # more digits than a JavaScript number holds
        "label": f"episode {episode_numbers(results[0])[seed]} · reward {span}",
        "episodes": {str(player): _episode(result, position) for player, result, position in found},
    }


def _episode(result: Result, position: int) -> Data:
    try:
        return episode_data(make_game(result.task), result.episodes[position], result.steps[position])
    except ValueError as error:
        raise UserError(f"{error}; expected results of this version of the game: `msgrpo verify` checks them") from error


def shown_end(episode: Episode) -> str:
    """How and when an episode ended."""
    return f"{ending(episode)} on turn {len(episode.steps)}"
