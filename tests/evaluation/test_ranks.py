"""Ranks say which places the paired tests leave open, and no more."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from msgrpo_hub.evaluation import compare, evaluate
from msgrpo_hub.evaluation.paired import Rank, ranks_of
from msgrpo_hub.evaluation.results import find_results
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.tables import ranks

LAKE = "FrozenLake-NotSlippery-v1"


def test_the_true_places_lie_in_the_ranks_in_19_of_20_tables() -> None:
    """Seen elsewhere: a table sorted by means alone gives four equal players four places."""
    rng = np.random.default_rng(0)
    wrong = sum(any(rank != Rank(1, 4) for rank in ranks_of(list(rng.integers(0, 2, (4, 40)).astype(float)))) for _ in range(300))
    assert wrong / 300 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 300)
    sure = ranks_of([np.where(rng.random(200) < rate, 1.0, 0.0) for rate in (0.1, 0.5, 0.9)])
    assert [str(rank) for rank in sure] == ["3", "2", "1"]


def test_two_rows_share_a_place_unless_the_test_tells_them_apart() -> None:
    best, near, far = np.ones(100), np.ones(100), np.zeros(100)
    near[:5] = 0  # five discordant pairs: p = 1/16, before any correction
    far[:60] = 1
    assert [str(rank) for rank in ranks_of([far, best, near])] == ["3", "1–2", "1–2"]


def test_a_table_of_many_rows_still_tells_players_apart() -> None:
    """Seen here: a simulated p is at least 1e-4, which Holm's correction over 528 pairs would raise above 0.05."""
    rng = np.random.default_rng(2)
    crowd = [rng.integers(-2, 3, 60).astype(float) for _ in range(32)]
    assert ranks_of([*crowd, rng.integers(2, 6, 60).astype(float)])[-1] == Rank(1, 1)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    evaluate(["random", "random-safe", "greedy"], Suite(name="mine", tasks=(LAKE,), episodes=40), folder)
    return folder


def test_a_pair_of_rows_has_the_verdict_of_the_command_compare(results: Path) -> None:
    random, safe, greedy = (find_results(results / name)[0] for name in ("random", "random-safe", "greedy"))
    assert ranks([greedy, random]) == [Rank(1, 1), Rank(2, 2)]
    [alone] = compare([random], [safe])
    assert (ranks([random, safe])[0] == Rank(1, 2)) == (alone.rewards.verdict == "inconclusive")


def test_a_run_that_is_not_complete_has_no_rank(results: Path) -> None:
    random, greedy = (find_results(results / name)[0] for name in ("random", "greedy"))
    broken = replace(greedy, summary=greedy.summary | {"complete": False})
    assert ranks([random, broken]) == [Rank(1, 1), None]
