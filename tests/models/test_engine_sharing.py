"""Shared work changes no reply: batches, cached logits, threads and scores; equal work is done once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.forward import FastForward
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.load_options import EngineName
from msgrpo_hub.models.sampling import Replies, Sample
from msgrpo_hub.rollout import play_episodes
from tests.examples import examples
from tests.models.engines import (
    END,
    LIMIT,
    adapted_model,
    assert_same,
    computed_rows,
    generators,
    sampled,
    some_prompts,
)
from tests.tiny import tiny_model

MODEL = adapted_model()
WINDOWS: dict[str, dict[str, Any]] = {"mistral": {"sliding_window": 9}}


@given(order=st.permutations(range(8)), max_rows=st.sampled_from([1, 3, 5]))
@examples(5)
def test_no_reply_depends_on_order_batch_size_or_earlier_calls(order: list[int], max_rows: int) -> None:
    engine, prompts, rngs = Engine(MODEL, END, max_rows=max_rows), some_prompts(), generators(8)
    sampled(engine, some_prompts(1))
    samples = engine.sample([prompts[i] for i in order], [rngs[i] for i in order], 0.3, LIMIT)
    alone = sampled(Engine(MODEL, END), prompts)
    assert_same(samples, [alone[i] for i in order])


def test_a_reply_ends_at_an_end_token_or_at_the_limit_and_both_at_once_are_a_stop() -> None:
    samples = sampled(Engine(MODEL, END), some_prompts(), 1.0)
    for sample in samples:
        assert not END & set(sample.token_ids[:-1])
        assert sample.finish == ("stop" if sample.token_ids[-1] in END else "length")
        assert sample.finish == "stop" or len(sample.token_ids) == LIMIT
    assert {sample.finish for sample in samples} == {"stop", "length"}
    ended = next(sample for sample in samples if sample.finish == "stop")
    assert ended in sampled(Engine(MODEL, END), some_prompts(), 1.0, limit=len(ended.token_ids))


def test_two_threads_get_the_replies_of_one() -> None:
    engines = [Engine(MODEL, END), Engine(MODEL, END)]

    def play(number: int) -> list[list[tuple[int, ...]]]:
        with engines[number % 2].caching(merge=True):
            return [[sample.token_ids for sample in sampled(engines[number % 2], some_prompts(seed), 1.0)] for seed in range(4)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(play, range(8))) == [play(0)] * 8


def test_replies_without_near_draws_are_the_same_in_both_engines_and_in_other_batches() -> None:
    prompts = some_prompts() * 8

    def replies(kind: EngineName, size: int) -> list[tuple[tuple[int, ...], int]]:
        engine, rngs = Engine(MODEL, END, kind=kind), generators(len(prompts))
        parts = [engine.sample(prompts[k : k + size], rngs[k : k + size], 1.0, 4) for k in range(0, len(prompts), size)]
        return [(sample.token_ids, sample.near_draws) for part in parts for sample in part]

    expected = replies("fast", len(prompts))
    for kind, size in (("fast", 3), ("plain", len(prompts)), ("plain", 5)):
        for (tokens, count), (others, _) in zip(expected, replies(kind, size), strict=True):  # type: ignore[arg-type]
            assert tokens == others or count


@pytest.mark.parametrize("family", ["qwen2", "mistral"])
def test_drafts_save_passes_if_they_are_right_and_change_no_reply_if_they_are_wrong(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, passes, run = tiny_model(family, vocab_size=300, **WINDOWS.get(family, {})), list[int](), FastForward.run
    monkeypatch.setattr(FastForward, "run", lambda *given: passes.append(1) or run(*given))
    alone, engine = sampled(Engine(model, END, kind="fast"), some_prompts()), Engine(model, END, kind="fast")
    counts = []
    for _ in range(2):  # the second context has no drafts of the first
        with engine.caching():
            for _ in range(2):
                passes.clear()
                assert_same(sampled(engine, some_prompts()), alone)
                counts.append(len(passes))
    assert counts[0] == counts[2] > counts[1] == counts[3]
    with engine.caching():
        rng = np.random.default_rng(0)
        monkeypatch.setattr(Replies, "draft", lambda *_: rng.integers(0, 300, rng.integers(0, 5)).tolist())
        assert_same(sampled(engine, some_prompts()), alone)


@cache
def uncached(prompts: int, rngs: int, temperature: float, limit: int) -> list[Sample]:
    return sampled(Engine(MODEL, END), some_prompts(prompts), temperature, limit, rngs)


CALLS = st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([1, 4, LIMIT]))
"""Seed of the prompts, seed of the generators, temperature and limit."""


@pytest.mark.slow
@given(
    calls=st.lists(CALLS, min_size=1, max_size=5),
    max_rows=st.sampled_from([1, 3, 512]),
)
@examples(8)
def test_no_reply_depends_on_earlier_ones(calls: list[tuple[int, int, float, int]], max_rows: int) -> None:
    engine = Engine(MODEL, END, max_rows=max_rows)
    with engine.caching():
        for prompts, rngs, temperature, limit in calls:
            ours = sampled(engine, some_prompts(prompts), temperature, limit, rngs)
            assert_same(ours, uncached(prompts, rngs, temperature, limit))


@pytest.mark.slow
@pytest.mark.parametrize(("game_id", "least"), [("FrozenLake-NotSlippery-v1", 2.0), ("Snake-Solo-v1", 1.2)])
def test_episodes_are_played_with_fewer_rows(game_id: str, least: float) -> None:
    keys = [(episode_seed(game_id, "train", index), member) for index in range(2) for member in range(12)]

    def play(cached: bool) -> tuple[list[Episode], int]:
        agent = LanguageModel.from_pretrained("pocket", max_new_tokens=32)
        policy: Any = agent if cached else SimpleNamespace(complete=agent.complete)  # without `caching`
        return play_episodes(make_game(game_id), policy, keys), computed_rows(agent.engine)

    (ours, rows), (theirs, plain) = play(cached=True), play(cached=False)
    replies = [[[step.completion.token_ids for step in episode.steps] for episode in both] for both in (ours, theirs)]
    assert replies[0] == replies[1]
    assert plain > least * rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_probabilities_of_all_single_tokens_add_up_to_one(dtype: torch.dtype) -> None:
    """In float32 for bfloat16 models too, because a bfloat16 log-softmax is off by per cents."""
    engine = Engine(adapted_model().to(dtype), frozenset())
    [scores] = engine.score([(7, 8, 9)], [[(token,) for token in range(300)]])
    assert sum(np.exp(log_p) for (log_p,) in scores) == pytest.approx(1, abs=1e-5)


def test_weights_that_become_non_finite_after_the_check_are_refused() -> None:
    model = adapted_model()
    engine = Engine(model, frozenset())
    engine.score([(1, 2)], [[(3,)]])
    with torch.no_grad():
        model.get_base_model().lm_head.weight[5, 0] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        engine.score([(1, 2)], [[(3,)]])
    with pytest.raises(UserError, match="not finite"):
        sampled(engine, some_prompts())
