"""Compare: two players on the same seeds, batch by batch, so that it can be stopped at any time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import checks
import players
import replay

from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation import Interval, compare_paired, mean_interval, wilson
from msgrpo_hub.games import Game

MOST = 200
"""Episodes of a comparison at most."""

BATCH, SLOW_BATCH = 25, 5
"""Episodes that are played before the page is told, and before another visitor's model may play; fewer of a large model."""


def compare(game: str, seed: int, player_a: str, player_b: str, episodes: int) -> Iterator[dict[str, Any]]:
    """Two players on the same seeds: the film of the first, and the score of both over all, after every 25 episodes or so.

    Args:
        game: id of a game.
        seed: number of the first test episode; the others follow it.
        player_a: as for watch; the base of the comparison.
        player_b: as for watch.
        episodes: how many, 1 to 200.

    Yields:
        `film`; `episodes` played and `wanted`; `a` and `b` with their mean `reward` and `success`, each with a 95 % interval
        (none for rewards under 30 episodes); `difference` of b − a in reward, with its interval, p and verdict.
    """
    rules, first = checks.game(game), checks.number(seed)
    wanted = checks.number(episodes, 1, MOST, "number of episodes")
    names = [players.check_player(name, rules) for name in (player_a, player_b)]
    played: tuple[list[Episode], list[Episode]] = ([], [])
    film = None
    for batch in batches(first, wanted, names):
        seeds = [replay.seed_of(rules, number) for number in batch]
        for name, episodes_so_far in zip(names, played, strict=True):
            episodes_so_far += players.play(name, rules, seeds)
        film = film or _film(rules, first, names, [each[0] for each in played])
        yield {"film": film, "wanted": wanted, **score(names, *played)}


def batches(first: int, wanted: int, names: Sequence[str]) -> Iterator[range]:
    """Numbers of episodes; the first batch is the one that is shown, alone, so that it comes at once."""
    yield range(first, first + 1)
    size = BATCH if set(names) <= set(players.BUILT_IN) else SLOW_BATCH
    for start in range(first + 1, first + wanted, size):
        yield range(start, min(start + size, first + wanted))


def _film(rules: Game, number: int, names: Sequence[str], episodes: Sequence[Episode]) -> replay.Data:
    tracks = [replay.track(rules, name, episode) for name, episode in zip(names, episodes, strict=True)]
    return replay.assemble(number, tracks)


def score(names: Sequence[str], a: Sequence[Episode], b: Sequence[Episode]) -> dict[str, Any]:
    """The figures of two players on the same seeds."""
    compared = compare_paired([e.reward for e in a], [e.reward for e in b], seed=0)
    return {
        "episodes": len(a),
        "a": _figures(names[0], a),
        "b": _figures(names[1], b),
        "difference": {
            "mean": compared.difference,
            **ends(compared.interval),
            "p": compared.p,
            "verdict": compared.verdict,
            "detectable": compared.detectable,
        },
    }


def _figures(name: str, episodes: Sequence[Episode]) -> dict[str, Any]:
    rewards, successes = [e.reward for e in episodes], sum(e.success for e in episodes)
    return {
        "player": name,
        "reward": {"mean": sum(rewards) / len(rewards), **ends(mean_interval(rewards, seed=0))},
        "success": {"mean": successes / len(episodes), **ends(wilson(successes, len(episodes)))},
    }


def ends(interval: Interval | None) -> dict[str, float | None]:
    """An interval as plain data."""
    return {"low": interval.low, "high": interval.high} if interval else {"low": None, "high": None}
