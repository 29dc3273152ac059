"""Attention over a shared prefix equals ordinary attention over the whole row, on every code path."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.models.attention import attend
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.forward import FastForward
from tests.models.engines import END, adapted_model, sampled


@given(
    rows=st.integers(1, 3),
    key_heads=st.integers(1, 3),
    share=st.integers(1, 3),
    queries=st.sampled_from([1, 2, 5]),
    shared=st.integers(0, 4),
    earlier=st.integers(0, 3),
    softcap=st.sampled_from([None, 2.0]),
    scaling=st.sampled_from([None, 0.3]),
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
