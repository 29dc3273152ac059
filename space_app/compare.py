"""The Compare tab: two players on the same seeds, in batches, so that a visitor can stop at any time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import players
import replay

from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation import Interval, compare_paired, mean_interval, wilson
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.games.game import return_range

OPENING = ("FrozenLake-NotSlippery-v1", 0, "pocket", "lake", 200)
"""Game, first board, players and episodes that the tab opens with; the result is in `bundle/compare.json`."""

FEWEST_PAIRS = 30
"""With fewer episodes, no difference is computed."""

MOST_EPISODES = 200
"""Largest number of episodes in a comparison."""

BATCH, SLOW_BATCH = 25, 5
"""Episodes between two updates of the page, for built-in players and for models from the Hub."""


def compare(game: str, seed: int, player_a: str, player_b: str, episodes: int) -> Iterator[dict[str, Any]]:
    """Plays two players on the same seeds. Yields the replay of the first seed and the scores so far, about every 25 episodes.

    Args:
        game: id of a game.
        seed: number of the first test episode; the others follow it.
        player_a: as for watch; the other player is compared with this one.
        player_b: as for watch.
        episodes: number of episodes, 1 to 200.

    Yields:
        `film` (the replay of the first seed), `episodes` played and `wanted`; `a` and `b` with their mean `reward` and
        `success`, each with a 95 % interval (rewards other than 0 and 1 have none under 30 episodes); `difference` in
        reward, b − a, with its interval, p and verdict, or None under 30 episodes.
    """
    rules, first = players.game_of(game), players.number(seed)
    wanted = players.number(episodes, 1, MOST_EPISODES, "number of episodes")
    names = [players.check_player(name, rules) for name in (player_a, player_b)]
    played: tuple[list[Episode], list[Episode]] = ([], [])
    shown = None
    with players.line(*names).place():
        for batch in batches(first, wanted, names):
            seeds = [episode_seed(rules.id, "test", number) for number in batch]
            for name, episodes_so_far in zip(names, played, strict=True):
                episodes_so_far += players.play(name, rules, seeds)
            both = [(name, of[0]) for name, of in zip(names, played, strict=True)]
            shown = shown or replay.combine(first, [replay.player_data(rules, *each) for each in both])
            yield {"film": shown, "wanted": wanted, **score(names, *played)}


def batches(first: int, wanted: int, names: Sequence[str]) -> Iterator[range]:
    """Numbers of the episodes of each batch. The first batch is one episode, so that its replay appears at once."""
    yield range(first, first + 1)
    size = BATCH if set(names) <= set(players.BUILT_IN) else SLOW_BATCH
    for start in range(first + 1, first + wanted, size):
        yield range(start, min(start + size, first + wanted))


def score(names: Sequence[str], a: Sequence[Episode], b: Sequence[Episode]) -> dict[str, Any]:
    """The scores of two players on the same seeds, and their difference."""
    bounds, found = return_range(make_game(a[0].game_id)), {}
    for side, name, episodes in (("a", names[0], a), ("b", names[1], b)):
        rewards, successes = [e.reward for e in episodes], sum(e.success for e in episodes)
        found[side] = {
            "player": name,
            "reward": {"mean": sum(rewards) / len(rewards), **ends(mean_interval(rewards, seed=0, bounds=bounds))},
            "success": {"mean": successes / len(episodes), **ends(wilson(successes, len(episodes)))},
        }
    difference = None
    if len(a) >= FEWEST_PAIRS:
        compared = compare_paired([e.reward for e in a], [e.reward for e in b], seed=0, bounds=bounds)
        shown = {name: getattr(compared, name) for name in ("p", "verdict", "detectable")}
        difference = {"mean": compared.difference, **ends(compared.interval), **shown}
    return {"episodes": len(a), **found, "difference": difference}


def ends(interval: Interval | None) -> dict[str, float | None]:
    """The ends of an interval as plain data, None without an interval."""
    return {"low": interval.low, "high": interval.high} if interval else {"low": None, "high": None}
