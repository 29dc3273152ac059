"""Attention over a shared prefix equals ordinary attention over the whole row, on every code path."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.models import attention, fast_forward
from msgrpo_hub.models.attention import acting, attend
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.fast_forward import FastForward
from msgrpo_hub.models.row_cache import RowCache
from msgrpo_hub.models.sampling import Sample
from tests.models.engines import END, adapted_model, sampled, some_prompts


@given(
    rows=st.integers(1, 3),
    key_heads=st.integers(1, 3),
    share=st.integers(1, 3),
    queries=st.sampled_from([1, 2, 5]),
    shared=st.integers(0, 4),
    earlier=st.integers(0, 3),
    softcap=st.sampled_from([None, 2.0]),
    scaling=st.sampled_from([None, 0.3]),
    kernel=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=150)
def test_attention_is_one_softmax_over_the_shared_keys_and_the_rows_own_keys(
    rows: int,
    key_heads: int,
    share: int,
    queries: int,
    shared: int,
    earlier: int,
    softcap: float | None,
    scaling: float | None,
    kernel: bool,
    seed: int,
) -> None:
    rng, size, own = np.random.default_rng(seed), 4, earlier + queries
    q = rng.normal(size=(rows, key_heads * share, queries, size))
    k, v = (rng.normal(size=(rows, key_heads, own, size)) for _ in range(2))
    first_k, first_v = (rng.normal(size=(key_heads, shared, size)) for _ in range(2))
    seen = (rng.random((rows, 1, queries, own)) < 0.5) | np.eye(queries, own, earlier, dtype=bool)
    mask = torch.zeros(seen.shape).masked_fill(~torch.from_numpy(seen), torch.finfo(torch.float32).min)

    q_, k_, v_, first_k_, first_v_ = (torch.from_numpy(states).float() for states in (q, k, v, first_k, first_v))
    prefix = (first_k_, first_v_) if shared else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "KERNEL_FROM", 0 if kernel else math.inf)
        ours = attend(q_, k_, v_, mask, prefix, scaling, softcap).numpy()

    for row in range(rows):
        for head in range(key_heads * share):
            keys = np.concatenate([first_k[head // share], k[row, head // share]])
            values = np.concatenate([first_v[head // share], v[row, head // share]])
            for query in range(queries):
                scores = keys @ q[row, head, query] * (1 / math.sqrt(size) if scaling is None else scaling)
                scores = scores if softcap is None else softcap * np.tanh(scores / softcap)
                weights = np.exp(scores) * np.concatenate([np.ones(shared), seen[row, 0, query]])
                assert ours[row, head, query] == pytest.approx(weights @ values / weights.sum(), abs=1e-5)


@pytest.mark.parametrize("rows", [1, 4, 32])
def test_a_decoding_step_in_bfloat16_is_as_exact_by_kernels_as_by_products(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(rows, heads, length, 64, generator=draws) for heads, length in ((14, 1), (2, 9), (2, 9)))
    keys, values = (torch.randn(2, 150, 64, generator=draws) for _ in range(2))
    exact = attend(q.double(), k.double(), v.double(), None, (keys.double(), values.double()), None, None)

    def error() -> float:
        half = [states.bfloat16() for states in (q, k, v)]
        mixed = attend(*half, torch.zeros(rows, 1, 1, 9).bfloat16(), (keys.bfloat16(), values.bfloat16()), None, None)
        return float((mixed - exact).abs().max())

    by_kernels = error()
    monkeypatch.setattr(attention, "KERNEL_FROM", math.inf)
    assert 0 < by_kernels < 0.02
    assert by_kernels < 2 * error()


@pytest.mark.parametrize("threads", [1, 2])
def test_few_rows_hold_the_shared_prefix_themselves_and_many_share_it(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight replies to two prompts: two rows at first, then more, at last few again."""
    monkeypatch.setattr(attention, "KERNEL_FROM", 1)
    model, done = adapted_model(), list[str]()
    rules = tuple(np.random.default_rng(0).integers(3, 20, 30).tolist())
    prompts = [rules + (number, 9) * (1 + number) for number in (5, 6) for _ in range(4)]
    for name, act in (("hold", RowCache.hold), ("drop", RowCache.drop)):
        monkeypatch.setattr(RowCache, name, lambda *given, act=act, name=name: (done.append(name), act(*given))[1])

    def replies(few: int) -> list[Sample]:
        done.clear()
        monkeypatch.setattr(fast_forward, "FEW", few)
        return sampled(Engine(model, END, threads=threads), prompts, limit=24)

    shared = replies(0)
    assert not done
    for few, some in ((10**6, {"hold"}), (4 * len(rules), {"hold", "drop"})):
        held = replies(few)
        assert set(done) == some
        assert [reply.token_ids for reply in held] == [reply.token_ids for reply in shared]
        for one, other in zip(held, shared, strict=True):
            assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)


def test_every_token_attends_to_a_token_and_so_does_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kernels return NaN for an empty row, and the values of padding would spread it: zero times NaN is NaN."""
    seen, run = list[torch.Tensor](), FastForward.run

    def watched(self: FastForward, token_ids: torch.Tensor, visible: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        seen.append(visible)
        return run(self, token_ids, visible, *rest, **options)

    monkeypatch.setattr(FastForward, "run", watched)
    sampled(Engine(adapted_model(), END), [(5,), (7, 8, 9), (5, 1, 2, 3, 4)])
    assert any(not visible.all() for visible in seen)
    assert all(visible.any(-1).all() for visible in seen)


def test_a_play_of_many_turns_switches_the_attention_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = adapted_model()
    engine, base, switched = Engine(model, END), model.get_base_model(), list[str]()
    before, switch = base.config._attn_implementation, base.set_attn_implementation
    monkeypatch.setattr(base, "set_attn_implementation", lambda name: (switched.append(name), switch(name)))
    engine.choose((1, 2, 3), 10)
    switched.clear()
    with engine.caching():
        for seed in range(3):
            sampled(engine, some_prompts(seed))
    assert len(switched) == 2
    assert base.config._attn_implementation == before
    with acting(model), acting(model):
        assert base.config._attn_implementation != before
    assert base.config._attn_implementation == before
