"""A reply does not depend on the batch, and equal work is done once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, PreTrainedModel

from msgrpo_hub.models.engine import Engine
from tests.models.engines import (
    END,
    LIMIT,
    adapted_model,
    assert_same,
    distinct_contexts,
    generators,
    sampled,
    some_prompts,
)

# ---- sharing changes no result


@pytest.fixture(scope="module")
def model(make_folder: Callable[..., Path]) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(make_folder("qwen2")).eval()


def test_a_reply_alone_equals_the_reply_in_a_batch(model: PreTrainedModel) -> None:
    prompts = some_prompts()
    alone = [Engine(model, END).sample([p], [rng], 0.3, LIMIT)[0] for p, rng in zip(prompts, generators(8), strict=True)]
    assert_same(sampled(Engine(model, END), prompts), alone)


@given(order=st.permutations(range(8)))
@settings(max_examples=5)
def test_the_order_of_the_prompts_changes_no_reply(order: list[int]) -> None:
    prompts, rngs = some_prompts(), generators(8)
    engine = Engine(adapted_model(), END)
    samples = engine.sample([prompts[i] for i in order], [rngs[i] for i in order], 0.3, LIMIT)
    again = engine.sample(prompts, generators(8), 0.3, LIMIT)
    assert_same(samples, [again[i] for i in order])


@pytest.mark.parametrize("max_rows", [1, 3, 5])
def test_max_rows_changes_nothing(model: PreTrainedModel, max_rows: int) -> None:
    prompts = some_prompts()
    assert_same(sampled(Engine(model, END, max_rows=max_rows), prompts), sampled(Engine(model, END), prompts))


def test_replies_do_not_depend_on_earlier_calls(model: PreTrainedModel) -> None:
    engine = Engine(model, END)
    for seed in (1, 2, 0, 0):
        samples = sampled(engine, some_prompts(seed))
        assert samples == sampled(Engine(model, END), some_prompts(seed))


def test_every_distinct_context_is_one_row_and_finished_replies_leave(model: PreTrainedModel) -> None:
    engine = Engine(model, END)
    samples = sampled(engine, some_prompts())
    assert engine.forward_rows == 1 + distinct_contexts(samples)  # 1 for the shared prefix
    assert distinct_contexts(samples) < sum(len(s.token_ids) for s in samples)
    assert len({len(s.token_ids) for s in samples}) > 1


def test_a_reply_ends_by_its_end_token_or_at_the_limit(model: PreTrainedModel) -> None:
    samples = sampled(Engine(model, END), some_prompts(), 1.0)
    for sample in samples:
        assert not END & set(sample.token_ids[:-1])
        assert sample.finish == ("stop" if sample.token_ids[-1] in END else "length")
        assert sample.finish == "stop" or len(sample.token_ids) == LIMIT
    assert {sample.finish for sample in samples} == {"stop", "length"}


def test_an_end_token_at_the_limit_is_a_stop(model: PreTrainedModel) -> None:
    ended = next(sample for sample in sampled(Engine(model, END), some_prompts(), 1.0) if sample.finish == "stop")
    limit = len(ended.token_ids)
    again = sampled(Engine(model, END), some_prompts(), 1.0, limit)
    assert next(s for s in again if s.token_ids == ended.token_ids).finish == "stop"
    assert {s.finish for s in again if s.token_ids[-1] not in END} <= {"length"}


def test_two_threads_get_the_replies_of_one() -> None:
    """Each plays several turns with one model, which is merged meanwhile."""
    model = adapted_model()
    engines = [Engine(model, END), Engine(model, END)]

    def play(number: int) -> list[list[tuple[int, ...]]]:
        with engines[number % 2].caching(merge=True):
            return [[sample.token_ids for sample in sampled(engines[number % 2], some_prompts(seed), 1.0)] for seed in range(4)]

    expected = play(0)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(play, range(8))) == [expected] * 8
