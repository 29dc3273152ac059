"""Intervals against hand-worked numbers, simple oracles, and their coverage: exactly enumerated, else by simulation.

The populations are returns of real scripted players, played once, and known traps: rare negative rewards, rare
deaths. The fast tests use fewer resamples than the package.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.evaluation import statistics
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.statistics import Interval, mean_interval, method_interval, welch, wilson
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.games.game import return_range
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.rollout import play_episodes
from tests.evaluation.played import error

Z2 = 1.959963984540054**2
SIZES = (30, 50, 200)
SNAKE, POISON, SLIPPERY = "Snake-Standard-v1", "Snake-PoisonApple-v1", "FrozenLake-Slippery-v1"


def interval_of(*arguments: Any, **options: Any) -> Interval:
    interval = mean_interval(*arguments, **options)
    assert interval is not None
    return interval


# ---- success


def test_wilson_by_hand() -> None:
    assert wilson(0, 10) == Interval(0.0, pytest.approx(Z2 / (10 + Z2)))
    assert wilson(10, 10) == Interval(pytest.approx(10 / (10 + Z2)), 1.0)
    half = (Z2 / (100 + Z2)) ** 0.5 / 2  # at p = 1/2 the centre stays 1/2, and the half width is z / (2 √(n + z²))
    assert (wilson(50, 100).low, wilson(50, 100).high) == pytest.approx((0.5 - half, 0.5 + half))
    for successes, n in [(-1, 10), (11, 10), (0, 0)]:
        with pytest.raises(ValueError, match="expected 0 ≤ successes"):
            wilson(successes, n)


@pytest.mark.parametrize("n", [20, *SIZES])
def test_success_is_covered_0_94_on_average_and_nowhere_under_0_89_exactly_enumerated(n: int) -> None:
    rates = np.linspace(0.001, 0.999, 999)
    intervals = [wilson(k, n) for k in range(n + 1)]
    low, high = (np.array([getattr(i, end) for i in intervals])[:, None] for end in ("low", "high"))
    chances = scipy.stats.binom.pmf(np.arange(n + 1)[:, None], n, rates)
    coverage = (chances * ((low <= rates) & (rates <= high))).sum(axis=0)
    inside = (rates >= 0.01) & (rates <= 0.99)
    assert coverage[inside].mean() >= 0.94
    # At rates under 1 / n, Wilson falls short just above the low end of one success.
    assert coverage[(rates >= 1 / n) & (rates <= 1 - 1 / n)].min() >= 0.89


# ---- returns


def skewed_rewards(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.geometric(0.4, size=n) - 1.0 - 2.0 * (rng.random(n) < 0.3)


@pytest.mark.parametrize("n", [30, 200])
def test_the_bootstrap_has_the_quantiles_of_resampled_t_statistics(n: int) -> None:
    rng = np.random.default_rng(n)
    sample = skewed_rewards(rng, n)
    drawn = rng.choice(sample, (20_000, n))
    t = (drawn.mean(axis=1) - sample.mean()) / (drawn.std(axis=1) / n**0.5)
    low, high = sample.mean() - sample.std() / n**0.5 * np.quantile(t, [0.975, 0.025])
    ours = interval_of(sample, seed=2)
    assert ours.rule == "studentised bootstrap"
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.06 * (high - low))  # the Monte Carlo error


def test_under_30_values_only_0_and_1_have_an_interval_and_it_is_wilson_s_unless_other_values_are_possible() -> None:
    assert mean_interval(np.arange(29.0), seed=0) is mean_interval([], seed=0) is None
    assert mean_interval(np.arange(30.0), seed=0) is not None
    assert mean_interval([1.0] * 5 + [0.0], seed=0) == wilson(5, 6)
    values = [1.0] * 30 + [0.0] * 20
    assert mean_interval(values, seed=0) == mean_interval(values, seed=0, bounds=(0.0, 1.0)) == wilson(30, 50)
    assert interval_of(values, seed=0, bounds=(-2.0, 20.0)).rule == "studentised bootstrap"


@given(value=st.floats(-2, 20), others=st.lists(st.floats(-2, 20), max_size=5), n=st.integers(30, 300))
def test_nearly_equal_values_have_an_interval_from_the_return_range_or_none_and_never_a_point(
    value: float, others: list[float], n: int
) -> None:
    sample = [value] * (n - len(others)) + others
    interval = interval_of(sample, seed=0, bounds=(-2.0, 20.0))
    assert interval.rule == "betting on the return range"
    assert -2 <= interval.low <= np.mean(sample) + 1e-9
    assert np.mean(sample) - 1e-9 <= interval.high <= 20
    assert interval.high - interval.low > 22 * 2 / n
    without = mean_interval(sample, seed=0)
    assert without is None or without.rule == "wilson"


def test_all_equal_values_have_the_interval_that_the_bets_give_by_hand() -> None:
    interval = interval_of([20.0] * 50, seed=0, bounds=(-2.0, 20.0))
    assert interval.high == 20.0
    by_hand = (0.5 / 40) ** (1 / 50)  # the half staked whole has 0.5 m⁻⁵⁰ = 2 / 0.05; the rest adds little
    assert by_hand <= (interval.low + 2) / 22 <= by_hand + 0.01


def test_episodes_on_one_board_count_as_one_value() -> None:
    rng = np.random.default_rng(3)
    boards = rng.geometric(0.4, size=40).astype(float)
    values, seeds = boards[:, None] + rng.normal(0, 0.01, (40, 5)), np.repeat(np.arange(40), 5)
    clustered = interval_of(values.ravel(), seed=0, boards=seeds.tolist())
    assert clustered == mean_interval(values.mean(axis=1), seed=0)
    naive = interval_of(values.ravel(), seed=0)
    assert clustered.high - clustered.low > 2 * (naive.high - naive.low)
    assert mean_interval(values.ravel()[:145], seed=0, boards=seeds[:145].tolist()) is None  # 29 boards


@pytest.mark.lowest
def test_the_interval_depends_only_on_values_and_seed() -> None:
    sample = skewed_rewards(np.random.default_rng(0), 60)
    assert mean_interval(sample[::-1], seed=1) == mean_interval(sample.tolist(), seed=1) == mean_interval(sample, seed=1)
    assert mean_interval(sample, seed=2) != mean_interval(sample, seed=1)


def test_values_outside_the_bounds_or_without_a_mean_are_refused_and_rounding_is_not() -> None:
    with pytest.raises(ValueError, match=r"from 0\.0 to 39\.0, expected 0\.0 to 20\.0"):
        mean_interval(np.arange(40.0), seed=0, bounds=(0.0, 20.0))
    assert interval_of([0.1 + 0.2] * 40, seed=0, bounds=(0.0, 0.3)).high == 0.3
    for values in ([float("nan")] * 40, [[0.0, 1.0]] * 40):
        with pytest.raises(ValueError, match="flat list of finite values"):
            mean_interval(values, seed=0)  # type: ignore[arg-type]


# ---- coverage of returns


@lru_cache(maxsize=1)
def populations(episodes: int = 120) -> dict[str, tuple[np.ndarray, tuple[float, float] | None]]:
    """Values and bounds: returns of Snake, rare negatives of PoisonApple, rare deaths, and luck-adjusted scores."""
    found: dict[str, tuple[np.ndarray, tuple[float, float] | None]] = {}
    for player in ("random", "random-legal", "random-safe", "greedy"):
        found[f"Snake, {player}"] = (np.array([e.reward for e in play(SNAKE, player, episodes)]), return_range(make_game(SNAKE)))
    rare = np.repeat([0.0, -1.0, -2.0], [96, 3, 1])
    found["PoisonApple, 4 % negative"] = (rare, return_range(make_game(POISON)))
    found["Snake, 2 % deaths"] = (np.repeat([0.0, -2.0], [98, 2]), return_range(make_game(SNAKE)))
    for player in ("random", "random-safe"):
        scores = [judged(episode)[1].luck_adjusted for episode in play(SLIPPERY, player, episodes)]
        horizon = make_game(SLIPPERY).horizon
        found[f"luck-adjusted, {player}"] = (np.array(scores, dtype=float).round(10), (1.0 - horizon, 1.0))
    return found


def play(task: str, player: str, episodes: int) -> list:
    seeds = [(episode_seed(task, "train", index), 0) for index in range(episodes)]
    return play_episodes(make_game(task), ScriptedPolicy(SCRIPTED[player]), seeds)


def coverage(values: np.ndarray, bounds: tuple[float, float] | None, n: int, repeats: int) -> float:
    """The share of samples of n values whose interval contains the mean of all; equal samples are computed once."""
    rng = np.random.default_rng(n)
    held: dict[bytes, bool] = {}

    def holds(sample: np.ndarray) -> bool:
        if (key := sample.tobytes()) not in held:
            interval = mean_interval(sample, len(held), bounds=bounds)
            held[key] = interval is not None and interval.low <= values.mean() <= interval.high
        return held[key]

    return float(np.mean([holds(np.sort(rng.choice(values, n))) for _ in range(repeats)]))


def test_returns_of_every_kind_are_covered_0_92_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 199)
    repeats = 40
    found = [coverage(*population, n, repeats) for population in populations().values() for n in SIZES]
    assert np.mean(found) >= 0.92 - error(0.92, repeats * len(found))
    assert min(found) >= 0.92 - error(0.92, repeats)


@pytest.mark.long
@pytest.mark.parametrize("n", SIZES)
def test_each_kind_of_returns_is_covered_0_92_times_with_all_resamples(n: int, record_property: Any) -> None:
    found = {kind: coverage(*population, n, 600) for kind, population in populations().items()}
    record_property("covered", found)
    assert min(found.values()) >= 0.92 - error(0.92, 600)


def test_a_rare_large_value_that_was_not_seen_is_in_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    # The limit in the guide: with 2 % of falls beside returns that differ, 36 % of samples of 50 have no fall.
    monkeypatch.setattr(statistics, "RESAMPLES", 199)
    values = np.r_[np.tile([0.0, 1.0, 2.0], 98), np.repeat(-99.0, 6)]
    assert coverage(values, (-100.0, 2.0), 50, 400) == pytest.approx(0.6, abs=error(0.6, 400))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rate", [0.01, 0.02, 0.04, 0.1, 0.3])
def test_deaths_are_covered_however_rare_exactly_enumerated(n: int, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 1999)
    chances = scipy.stats.binom.pmf(np.arange(n + 1), n, rate)
    covered = 0.0
    for deaths in np.flatnonzero(chances > 1e-4):
        interval = mean_interval(np.repeat([0.0, -2.0], [n - deaths, deaths]), 0, bounds=(-2.0, 20.0))
        covered += chances[deaths] * (interval is not None and interval.low <= -2 * rate <= interval.high)
    assert covered >= 0.92


# ---- training seeds


def test_the_intervals_of_one_and_of_two_methods_by_hand() -> None:
    # Seed means 0, 1 and 2: 1 ± 4.302653 · 1 / √3.
    interval = method_interval([0.0, 1.0, 2.0])
    assert interval
    assert (interval.low, interval.high) == pytest.approx((1 - 4.302653 / math.sqrt(3), 1 + 4.302653 / math.sqrt(3)))
    assert method_interval([0.0, 1.0]) is None
    assert method_interval([1.0, 1.0, 1.0]) is None
    with pytest.raises(ValueError, match="a flat list of finite means"):
        method_interval([])
    # t.test(c(1, 2, 3, 4), c(2, 4, 6, 8)) in R: degrees of freedom 4.41, interval of mean(a) − mean(b) [−6.25, 1.25].
    interval = welch(np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 4.0, 6.0, 8.0]))
    assert interval
    assert (interval.low, interval.high) == pytest.approx((-1.25, 6.25), abs=0.15)
    assert welch(np.zeros(3), np.ones(3)) is None


def training_runs(rng: np.random.Generator, seeds: int, episodes: int) -> np.ndarray:
    """Successes, (seeds, episodes): the true rates of the seeds have the mean 0.5 and a standard deviation of 0.13."""
    return np.array([(rng.random(episodes) < rng.beta(7, 7)).astype(float) for _ in range(seeds)])


@pytest.mark.parametrize(("seeds", "episodes"), [(3, 50), (5, 50), (8, 50), (5, 200)])
def test_the_interval_of_a_method_covers_its_mean_and_the_interval_of_pooled_episodes_does_not(seeds: int, episodes: int) -> None:
    rng = np.random.default_rng(25)
    runs = [training_runs(rng, seeds, episodes) for _ in range(300)]
    intervals = [method_interval(run.mean(axis=1)) for run in runs]
    pooled = [mean_interval(run.flatten(), seed) for seed, run in enumerate(runs)]
    covered, too_few = (np.mean([i is not None and i.low <= 0.5 <= i.high for i in each]) for each in (intervals, pooled))
    assert covered == pytest.approx(0.95, abs=error(0.95, 300))
    assert too_few < (0.6 if episodes == 200 else 0.9)
