"""The modules for the `evaluate` library, loaded by path and offline, agree with our own functions."""

from __future__ import annotations

import doctest
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evaluate
import numpy as np
import pytest

from msgrpo_hub.evaluation.paired import compare_paired
from msgrpo_hub.evaluation.statistics import mean_interval

ROOT = Path(__file__).parents[2]
RETURN, PAIRED = "benchmark/metrics/episode_return", "benchmark/metrics/paired_return"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def refuse(*_: object) -> None:
        raise AssertionError("a metric that was loaded by path used the network")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return lambda path, **options: evaluate.load(path, cache_dir=str(tmp_path), **options)


def rewards(seed: int, n: int = 60) -> list[float]:
    return (np.random.default_rng(seed).integers(-6, 12, n) / 3).tolist()  # float32 would round thirds


def test_the_episode_return_is_our_mean_and_interval_also_of_parts(load: Callable[..., Any]) -> None:
    metric, sample, interval = load(RETURN), rewards(1), mean_interval(rewards(1), seed=7)
    with pytest.raises(ValueError, match="expected the return of at least one episode"):
        metric.compute(rewards=[])
    assert interval is not None
    expected = {"mean": pytest.approx(np.mean(sample), rel=1e-14), "low": interval.low, "high": interval.high, "n": 60}
    assert metric.compute(rewards=sample, seed=7) == metric.compute(rewards=np.array(sample), seed=7) == expected
    few = json.loads(json.dumps(metric.compute(rewards=sample[:29])))
    assert few == {"mean": pytest.approx(np.mean(sample[:29])), "low": None, "high": None, "n": 29}
    for reward in sample[:10]:
        metric.add(rewards=reward)
    metric.add_batch(rewards=sample[10:])
    assert metric.compute(seed=7) == expected


def test_the_paired_return_is_our_comparison(load: Callable[..., Any]) -> None:
    comparison = load(PAIRED, module_type="comparison")
    a, b = rewards(3), (np.array(rewards(3)) + np.abs(rewards(4))).tolist()
    expected = compare_paired(a, b, seed=5)
    assert expected.interval is not None
    names = ("difference", "p", "correlation", "detectable")
    figures = {name: getattr(expected, name) for name in names} | {"low": expected.interval.low, "high": expected.interval.high}
    assert comparison.compute(rewards_a=a, rewards_b=b, seed=5) == figures | {"verdict": "better", "n": 60}
    assert comparison.compute(rewards_a=b, rewards_b=a)["verdict"] == "worse"
    same = comparison.compute(rewards_a=[1, 0, 1], rewards_b=[1, 0, 1])
    assert (same["difference"], same["p"], same["verdict"]) == (0.0, 1.0, "inconclusive")
    with pytest.raises(ValueError, match=r"Mismatch in the number of rewards_a \(3\) and rewards_b \(2\)"):
        comparison.compute(rewards_a=[1.0, 0.0, 1.0], rewards_b=[1.0, 0.0])


@pytest.mark.usefixtures("load")
@pytest.mark.parametrize("folder", [RETURN, PAIRED])
def test_the_examples_of_the_card_are_true(folder: str) -> None:
    failed, attempted = doctest.testfile(str(ROOT / folder / "README.md"), module_relative=False)
    assert failed == 0
    assert attempted >= 4
