"""The modules for the `evaluate` library, loaded by path as a user does, against our own functions."""

from __future__ import annotations

import doctest
import json
import socket
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import evaluate
import numpy as np
import pytest

from msgrpo_hub.evaluation.paired import compare_paired
from msgrpo_hub.evaluation.statistics import mean_interval

ROOT = Path(__file__).parents[2]
EPISODE_RETURN = "benchmark/metrics/episode_return"
PAIRED_RETURN = "benchmark/metrics/paired_return"


@pytest.fixture(autouse=True)
def in_the_clone_and_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a metric loaded by path asked the network")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def rewards(seed: int, n: int = 60) -> list[float]:
    """Thirds: float32 would round them."""
    return (np.random.default_rng(seed).integers(-6, 12, n) / 3).tolist()


def test_the_episode_return_is_our_mean_and_interval(tmp_path: Path) -> None:
    metric = evaluate.load(EPISODE_RETURN, cache_dir=str(tmp_path))
    sample, interval = rewards(1), mean_interval(rewards(1), seed=7)
    assert interval is not None
    expected = {"mean": pytest.approx(np.mean(sample), rel=1e-14), "low": interval.low, "high": interval.high, "n": 60}
    assert metric.compute(rewards=sample, seed=7) == expected
    assert metric.compute(rewards=np.array(sample), seed=7) == expected
    assert json.loads(json.dumps(metric.compute(rewards=sample[:29]))) == {
        "mean": pytest.approx(np.mean(sample[:29])),
        "low": None,
        "high": None,
        "n": 29,
    }


def test_rewards_may_come_one_by_one_and_in_batches(tmp_path: Path) -> None:
    metric = evaluate.load(EPISODE_RETURN, cache_dir=str(tmp_path))
    for reward in rewards(2)[:10]:
        metric.add(rewards=reward)
    metric.add_batch(rewards=rewards(2)[10:])
    by_parts = metric.compute()
    assert by_parts == metric.compute(rewards=rewards(2))
    assert by_parts["n"] == 60


def test_the_paired_return_is_our_comparison(tmp_path: Path) -> None:
    comparison = evaluate.load(PAIRED_RETURN, module_type="comparison", cache_dir=str(tmp_path))
    a, b = rewards(3), (np.array(rewards(3)) + np.abs(rewards(4))).tolist()
    expected = compare_paired(a, b, seed=5)
    assert expected.interval is not None
    assert expected.verdict == "better"
    assert comparison.compute(rewards_a=a, rewards_b=b, seed=5) == {
        "difference": expected.difference,
        "low": expected.interval.low,
        "high": expected.interval.high,
        "p": expected.p,
        "correlation": expected.correlation,
        "detectable": expected.detectable,
        "verdict": "better",
        "n": 60,
    }
    assert comparison.compute(rewards_a=b, rewards_b=a)["verdict"] == "worse"


def test_players_that_never_differ_do_not_divide_by_zero(tmp_path: Path) -> None:
    comparison = evaluate.load(PAIRED_RETURN, cache_dir=str(tmp_path))
    result = comparison.compute(rewards_a=[1, 0, 1], rewards_b=[1, 0, 1])
    assert (result["difference"], result["p"], result["verdict"]) == (0.0, 1.0, "inconclusive")


def test_players_with_unequal_numbers_of_episodes_are_refused(tmp_path: Path) -> None:
    comparison = evaluate.load(PAIRED_RETURN, cache_dir=str(tmp_path))
    with pytest.raises(ValueError, match=r"Mismatch in the number of rewards_a \(3\) and rewards_b \(2\)"):
        comparison.compute(rewards_a=[1.0, 0.0, 1.0], rewards_b=[1.0, 0.0])


@pytest.mark.parametrize("setting", [{"experiment_id": "{}"}, {"keep_in_memory": True}])
def test_two_evaluations_at_once_do_not_mix(setting: dict[str, object], tmp_path: Path) -> None:
    first, second = (
        evaluate.load(EPISODE_RETURN, cache_dir=str(tmp_path), **{k: v if v is True else name for k, v in setting.items()})
        for name in ("first", "second")
    )
    first.add_batch(rewards=[1.0, 2.0])
    second.add_batch(rewards=[10.0])
    first.add(rewards=6.0)
    assert (second.compute()["mean"], first.compute()["mean"]) == (10.0, 3.0)


def mean_of(cache: Path, worker: int) -> float:
    """In a process of its own."""
    metric = evaluate.load(EPISODE_RETURN, cache_dir=str(cache), experiment_id=str(worker))
    for reward in range(200):
        metric.add(rewards=reward * worker)
    mean: float = metric.compute()["mean"]
    return mean


def test_processes_with_an_experiment_id_each_share_a_cache(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, get_context("fork")) as processes:
        means = list(processes.map(mean_of, [tmp_path] * 3, (1, 2, 3)))
    assert means == [99.5, 2 * 99.5, 3 * 99.5]


@pytest.mark.parametrize("folder", [EPISODE_RETURN, PAIRED_RETURN])
def test_the_examples_of_the_card_are_true(folder: str) -> None:
    failed, attempted = doctest.testfile(str(ROOT / folder / "README.md"), module_relative=False)
    assert failed == 0
    assert attempted >= 4
