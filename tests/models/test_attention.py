"""Attention over a shared prefix and over token trees: a token attends to the earlier tokens of its sequence only."""

from __future__ import annotations

import itertools
import math
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.models import attention
from msgrpo_hub.models.attention import attend
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.forward import FastForward
from msgrpo_hub.models.token_tree import TokenTree, build_tree, tree_inputs
from tests.models.engines import END, adapted_model, sampled


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 2, 5])),
    shared=st.integers(0, 4),
    earlier=st.integers(0, 3),
    softcap=st.sampled_from([None, 2.0]),
    scaling=st.sampled_from([None, 0.3]),
    seed=st.integers(0, 99),
    fused=st.booleans(),
)
@settings(max_examples=250)
def test_attention_is_one_softmax_over_the_shared_keys_and_the_rows_own_keys(
    shape: tuple[int, int, int, int],
    shared: int,
    earlier: int,
    softcap: float | None,
    scaling: float | None,
    seed: int,
    fused: bool,
) -> None:
    """On every code path; shape: rows, key heads, query heads per key head, queries."""
    rows, key_heads, share, queries = shape
    rng, size, own = np.random.default_rng(seed), 4, earlier + queries
    q = rng.normal(size=(rows, key_heads * share, queries, size))
    k, v = (rng.normal(size=(rows, key_heads, own, size)) for _ in range(2))
    first_k, first_v = (rng.normal(size=(key_heads, shared, size)) for _ in range(2))
    seen = (rng.random((rows, 1, queries, own)) < 0.5) | np.eye(queries, own, earlier, dtype=bool)
    mask = torch.zeros(seen.shape).masked_fill(~torch.from_numpy(seen), torch.finfo(torch.float32).min)
    q_, k_, v_, first_k_, first_v_ = (torch.from_numpy(states).float() for states in (q, k, v, first_k, first_v))
    with patch.object(attention, "MOST_SCORES", 0 if fused else 2**25):
        ours = attend(q_, k_, v_, mask, (first_k_, first_v_) if shared else None, scaling, softcap).numpy()
    for row, head, query in itertools.product(range(rows), range(key_heads * share), range(queries)):
        keys = np.concatenate([first_k[head // share], k[row, head // share]])
        values = np.concatenate([first_v[head // share], v[row, head // share]])
        scores = keys @ q[row, head, query] * (1 / math.sqrt(size) if scaling is None else scaling)
        scores = scores if softcap is None else softcap * np.tanh(scores / softcap)
        weights = np.exp(scores) * np.concatenate([np.ones(shared), seen[row, 0, query]])
        assert ours[row, head, query] == pytest.approx(weights @ values / weights.sum(), abs=1e-5)


def test_every_token_attends_to_a_token_and_so_does_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kernels return NaN for an empty row, and the values of padding would spread it: zero times NaN is NaN."""
    seen, run = list[torch.Tensor](), FastForward.run

    def watched(self: FastForward, token_ids: torch.Tensor, visible: torch.Tensor, *rest: Any) -> torch.Tensor:
        seen.append(visible)
        return run(self, token_ids, visible, *rest)

    monkeypatch.setattr(FastForward, "run", watched)
    sampled(Engine(adapted_model(), END), [(5,), (7, 8, 9), (5, 1, 2, 3, 4)])
    assert any(not visible.all() for visible in seen)
    assert all(visible.any(-1).all() for visible in seen)


Rows = list[tuple[int, ...]]
row = st.lists(st.integers(0, 2), max_size=7).map(tuple)
"""Three tokens only, so that duplicates, prefixes of each other and empty sequences all occur."""
rows_strategy = st.lists(row, min_size=1, max_size=12)


def prefixes(tree: TokenTree, rows: Rows) -> list[tuple[int, ...]]:
    """The prefix of each node, including its token, according to the paths."""
    prefix_of: dict[int, tuple[int, ...]] = {}
    for path, row in zip(tree.paths, rows, strict=True):
        for k, node in enumerate(path.tolist()):
            assert prefix_of.setdefault(node, row[: k + 1]) == row[: k + 1]
    assert sorted(prefix_of) == list(range(len(tree)))
    return [prefix_of[node] for node in range(len(tree))]


@given(rows=rows_strategy, data=st.data())
@settings(max_examples=200)
def test_paths_spell_the_sequences_in_any_order_and_every_distinct_prefix_is_one_node(rows: Rows, data: st.DataObject) -> None:
    tree = build_tree(rows)
    assert [tuple(tree.token_ids[path].tolist()) for path in tree.paths] == rows
    nodes, distinct = prefixes(tree, rows), {row[: k + 1] for row in rows for k in range(len(row))}
    assert (len(tree), set(nodes)) == (len(distinct), distinct)
    assert tree.depths.tolist() == [len(prefix) - 1 for prefix in nodes]
    order = data.draw(st.permutations(range(len(rows))))
    shuffled = build_tree([rows[i] for i in order])
    assert all(np.array_equal(getattr(tree, name), getattr(shuffled, name)) for name in ("token_ids", "depths", "ends"))
    assert all(np.array_equal(tree.paths[i], path) for i, path in zip(order, shuffled.paths, strict=True))


@given(forest=st.lists(rows_strategy.filter(any), min_size=1, max_size=3))
@settings(max_examples=150)
def test_a_token_attends_to_its_prefix_ancestors_and_to_itself(forest: list[Rows]) -> None:
    trees = [build_tree(rows) for rows in forest]
    inputs, length = tree_inputs(trees), max(map(len, trees))
    assert inputs["attention_mask"].shape == (len(trees), 1, length, length)
    for number, (tree, rows) in enumerate(zip(trees, forest, strict=True)):
        nodes = prefixes(tree, rows)
        expected = np.eye(length, dtype=bool)  # padding attends to itself only, and no token attends to padding
        for i, j in itertools.product(range(len(tree)), repeat=2):
            expected[i, j] = nodes[i][: len(nodes[j])] == nodes[j]
        assert np.array_equal(inputs["attention_mask"][number, 0].numpy(), expected)
        assert inputs["input_ids"][number, : len(tree)].tolist() == [prefix[-1] for prefix in nodes]
        assert inputs["position_ids"][number, : len(tree)].tolist() == [len(prefix) - 1 for prefix in nodes]
