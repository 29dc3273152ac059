"""Token trees against the definition: a token attends to the earlier tokens of its own sequence only."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.models.token_tree import TokenTree, build_tree, common_prefix, tree_inputs

Rows = list[tuple[int, ...]]
row = st.lists(st.integers(0, 2), max_size=7).map(tuple)
rows_strategy = st.lists(row, min_size=1, max_size=12)
"""Three tokens only, so that duplicates, prefixes of each other and empty sequences all occur."""


def prefixes(tree: TokenTree, rows: Rows) -> list[tuple[int, ...]]:
    """The prefix of each node, including its token, according to the paths."""
    prefix_of: dict[int, tuple[int, ...]] = {}
    for path, row in zip(tree.paths, rows, strict=True):
        for k, node in enumerate(path.tolist()):
            assert prefix_of.setdefault(node, row[: k + 1]) == row[: k + 1]
    assert sorted(prefix_of) == list(range(len(tree)))
    return [prefix_of[node] for node in range(len(tree))]


@given(rows=rows_strategy)
@settings(max_examples=200)
def test_paths_spell_the_sequences_and_every_distinct_prefix_is_one_node(rows: Rows) -> None:
    tree = build_tree(rows)
    assert [tuple(tree.token_ids[path].tolist()) for path in tree.paths] == rows
    distinct = {row[: k + 1] for row in rows for k in range(len(row))}
    nodes = prefixes(tree, rows)
    assert len(tree) == len(distinct)
    assert set(nodes) == distinct
    assert tree.depths.tolist() == [len(prefix) - 1 for prefix in nodes]


@given(forest=st.lists(rows_strategy.filter(any), min_size=1, max_size=3))
@settings(max_examples=150)
def test_a_token_attends_to_its_prefix_ancestors_and_to_itself_alone(forest: list[Rows]) -> None:
    trees = [build_tree(rows) for rows in forest]
    inputs = tree_inputs(trees)
    length = max(map(len, trees))
    assert inputs["attention_mask"].shape == (len(trees), 1, length, length)
    for number, (tree, rows) in enumerate(zip(trees, forest, strict=True)):
        nodes = prefixes(tree, rows)
        mask = inputs["attention_mask"][number, 0].numpy()
        expected = np.eye(length, dtype=bool)  # padding attends to itself only, and no token attends to padding
        for i, j in itertools.product(range(len(tree)), repeat=2):
            expected[i, j] = nodes[i][: len(nodes[j])] == nodes[j]
        assert np.array_equal(mask, expected)
        assert inputs["input_ids"][number, : len(tree)].tolist() == [prefix[-1] for prefix in nodes]
        assert inputs["position_ids"][number, : len(tree)].tolist() == [len(prefix) - 1 for prefix in nodes]


@given(rows=rows_strategy, data=st.data())
@settings(max_examples=100)
def test_the_tree_does_not_depend_on_the_order_of_the_sequences(rows: Rows, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(rows))))
    tree, shuffled = build_tree(rows), build_tree([rows[i] for i in order])
    for name in ("token_ids", "depths", "ends"):
        assert np.array_equal(getattr(tree, name), getattr(shuffled, name))
    assert all(np.array_equal(tree.paths[i], path) for i, path in zip(order, shuffled.paths, strict=True))


@given(a=row, b=row)
def test_common_prefix_is_where_two_sequences_first_differ(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert common_prefix(a, b) == sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
