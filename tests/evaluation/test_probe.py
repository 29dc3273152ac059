"""A probe keeps its time, measures full batches where it can, and extrapolates where it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import THINK_ACTION
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation import probe
from msgrpo_hub.evaluation.probe import Probe, probe_tasks
from msgrpo_hub.games import make_game

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
LIMIT = 64


@dataclass
class Clock:
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time, which passes only while a model replies."""
    passing = Clock()
    monkeypatch.setattr(probe, "time", SimpleNamespace(monotonic=passing.monotonic))
    return passing


@dataclass
class Model:
    """A model that needs some seconds per batch, per row and per token."""

    clock: Clock
    per_batch: float = 0.0
    per_row: float = 0.0
    per_token: float = 0.0
    max_new_tokens: int = LIMIT
    largest: int = 0

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        self.largest = max(self.largest, len(prompts))
        self.clock.now += self.per_batch + self.per_row * len(prompts) + self.per_token * self.max_new_tokens
        return [Completion(text="", usage=(100, self.max_new_tokens)) for _ in prompts]


def probed(model: Model, *tasks: str, episodes: int = 50, seconds: float = 10.0) -> dict[str, Probe]:
    games = {task: make_game(task) for task in tasks or (LAKE,)}
    return probe_tasks(games, dict.fromkeys(games, range(episodes)), model, THINK_ACTION, 50, seconds)


def test_a_fast_model_plays_full_batches_and_its_time_per_reply_is_exact(clock: Clock) -> None:
    model = Model(clock, per_batch=0.01, per_row=0.001, per_token=0.001)
    [measured] = probed(model).values()
    assert (measured.rows, measured.is_full, measured.reply_tokens, measured.cut_at) == (50, True, LIMIT, None)
    assert measured.seconds_per_call == pytest.approx((0.01 + 50 * 0.001 + LIMIT * 0.001) / 50)


def test_batches_that_take_too_long_are_extrapolated_from_smaller_ones(clock: Clock) -> None:
    model = Model(clock, per_batch=0.5, per_row=0.4, per_token=0.001)
    [measured] = probed(model).values()
    assert model.largest == measured.rows < 50
    assert not measured.is_full
    assert measured.seconds_per_call == pytest.approx((0.5 + 50 * 0.4 + LIMIT * 0.001) / 50)


def test_replies_that_take_too_long_are_cut_and_extrapolated_for_all_tasks(clock: Clock) -> None:
    model = Model(clock, per_batch=0.3, per_row=0.2, per_token=0.5)
    first, second = probed(model, LAKE, SNAKE).values()
    assert first == second
    assert first.cut_at is not None
    assert first.cut_at < LIMIT
    assert (first.rows, first.is_full, first.reply_tokens) == (1, False, None)
    assert first.seconds_per_call == pytest.approx(0.3 + 0.2 + LIMIT * 0.5)


@pytest.mark.parametrize("per_token", [0.0001, 0.01, 0.5])
@pytest.mark.parametrize("per_row", [0.0001, 0.05, 1.0])
def test_a_probe_takes_no_longer_than_it_may_and_leaves_the_limit_of_replies(
    per_token: float, per_row: float, clock: Clock
) -> None:
    model = Model(clock, per_batch=0.01, per_row=per_row, per_token=per_token)
    probed(model, LAKE, SNAKE, seconds=10.0)
    longest_step = 0.01 + 50 * per_row + LIMIT * per_token
    assert clock.now <= 15.0 + min(longest_step, 5.0)
    assert model.max_new_tokens == LIMIT


def test_a_model_slower_than_the_probe_gets_two_single_tokens(clock: Clock) -> None:
    model = Model(clock, per_batch=20.0, per_token=1.0)
    [measured] = probed(model).values()
    assert clock.now == pytest.approx(42.0)
    assert measured.cut_at == 1


def test_all_episodes_played_end_the_probe_early(clock: Clock) -> None:
    model = Model(clock, per_batch=0.01)
    probed(model, episodes=3, seconds=1000.0)
    assert clock.now < 1.0
