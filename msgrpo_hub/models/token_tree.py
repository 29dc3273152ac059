"""Token trees: many token sequences as one prefix tree, so that every distinct beginning is computed once.

The rows of an update share the rules, often the state, and often the beginning of the reply. Laid out in depth-first
order, a node's descendants are the interval `(node, ends[node])`, so the whole attention mask is two comparisons: a
token attends to its ancestors and to itself. Position ids are depths. Nothing else about the model changes, and the
gradients are those of the separate rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

IntArray = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True)
class TokenTree:
    """A prefix tree of token sequences in depth-first order; N nodes.

    Args:
        token_ids: (N,) the token of each node.
        depths: (N,) its position in the sequence.
        ends: (N,) one past its last descendant.
        paths: for each row, in the order given, the nodes of its tokens.
    """

    token_ids: IntArray
    depths: IntArray
    ends: IntArray
    paths: list[IntArray]

    def __len__(self) -> int:
        return len(self.token_ids)


def build_tree(rows: Sequence[Sequence[int]]) -> TokenTree:
    """Builds the tree of some token sequences.

    >>> tree = build_tree([[7, 8, 9], [7, 8, 5], [7, 8, 9]])
    >>> tree.token_ids.tolist(), tree.ends.tolist(), tree.paths[0].tolist()
    ([7, 8, 5, 9], [4, 4, 3, 4], [0, 1, 3])
    """
    tokens: list[int] = []
    depths: list[int] = []
    ends: list[int] = []
    paths: list[IntArray] = [np.empty(0, dtype=np.int64)] * len(rows)
    path: list[int] = []
    before: Sequence[int] = ()
    for index in sorted(range(len(rows)), key=lambda index: tuple(rows[index])):
        row = rows[index]
        shared = common_prefix(before, row)
        for node in path[shared:]:
            ends[node] = len(tokens)
        del path[shared:]
        first = len(tokens)
        path.extend(range(first, first + len(row) - shared))
        tokens.extend(row[shared:])
        depths.extend(range(shared, len(row)))
        ends.extend([0] * (len(row) - shared))
        paths[index] = np.array(path, dtype=np.int64)
        before = row
    for node in path:
        ends[node] = len(tokens)
    return TokenTree(np.array(tokens, dtype=np.int64), np.array(depths, dtype=np.int64), np.array(ends, dtype=np.int64), paths)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """The number of leading tokens that two sequences share.

    >>> common_prefix((1, 2, 3), (1, 2, 4, 5))
    2
    """
    limit = min(len(a), len(b))
    if a[:limit] == b[:limit]:
        return limit
    low, high = 0, limit  # a[:low] == b[:low], a[:high] != b[:high]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle)
    return low


def tree_inputs(trees: Sequence[TokenTree], device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """The model inputs of some trees, padded to the largest: ids and positions (B, N), boolean mask (B, 1, N, N)."""
    length = max(len(tree) for tree in trees)
    token_ids = torch.zeros(len(trees), length, dtype=torch.long)
    depths = torch.zeros_like(token_ids)
    ends = torch.zeros_like(token_ids)
    for row, tree in enumerate(trees):
        token_ids[row, : len(tree)] = torch.from_numpy(tree.token_ids)
        depths[row, : len(tree)] = torch.from_numpy(tree.depths)
        ends[row, : len(tree)] = torch.from_numpy(tree.ends)
    token_ids, depths, ends = token_ids.to(device), depths.to(device), ends.to(device)
    node = torch.arange(length, device=device)
    ancestor = (node[None, None, :] <= node[None, :, None]) & (node[None, :, None] < ends[:, None, :])
    ancestor |= torch.eye(length, dtype=torch.bool, device=device)  # padding attends to itself: no empty rows
    return {"input_ids": token_ids, "position_ids": depths, "attention_mask": ancestor[:, None]}


def prefix_inputs(
    prefix: Sequence[int], trees: Sequence[TokenTree], dtype: torch.dtype, device: torch.device | str
) -> dict[str, Tensor]:
    """The model inputs for `tree_attention`: a prefix of P tokens, then B trees that continue it, padded to L nodes each.

    Ids and positions are (1, P + B·L); the additive mask is (B, 1, L, L).
    """
    branches = tree_inputs(trees, device)
    first = torch.tensor(prefix, dtype=torch.long, device=device)
    positions = torch.cat([torch.arange(len(prefix), device=device), (branches["position_ids"] + len(prefix)).flatten()])
    visible = branches["attention_mask"]
    return {
        "input_ids": torch.cat([first, branches["input_ids"].flatten()])[None],
        "position_ids": positions[None],
        "attention_mask": torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min),
    }
