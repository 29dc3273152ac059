"""Token trees: many token sequences as one prefix tree, so that every distinct prefix is computed once.

The sequences of an update share the rules, often the state, and often a prefix of the reply. In depth-first order, a
node's descendants are the interval `(node, ends[node])`, so two comparisons give the whole attention mask: a token
attends to its ancestors and to itself. Position ids are depths. Separate sequences have the same gradients.
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
        paths: for each sequence, in input order, the nodes of its tokens.
    """

    token_ids: IntArray
    depths: IntArray
    ends: IntArray
    paths: list[IntArray]

    def __len__(self) -> int:
        return len(self.token_ids)


def build_tree(sequences: Sequence[Sequence[int]]) -> TokenTree:
    """Builds the prefix tree of token sequences.

    >>> tree = build_tree([[7, 8, 9], [7, 8, 5], [7, 8, 9]])
    >>> tree.token_ids.tolist(), tree.ends.tolist(), tree.paths[0].tolist()
    ([7, 8, 5, 9], [4, 4, 3, 4], [0, 1, 3])
    """
    tokens: list[int] = []
    depths: list[int] = []
    ends: list[int] = []
    paths: list[IntArray] = [np.empty(0, dtype=np.int64)] * len(sequences)
    path: list[int] = []
    previous: Sequence[int] = ()
    for index in sorted(range(len(sequences)), key=lambda index: tuple(sequences[index])):
        sequence = sequences[index]
        shared = common_prefix(previous, sequence)
        for node in path[shared:]:
            ends[node] = len(tokens)
        del path[shared:]
        first = len(tokens)
        path.extend(range(first, first + len(sequence) - shared))
        tokens.extend(sequence[shared:])
        depths.extend(range(shared, len(sequence)))
        ends.extend([0] * (len(sequence) - shared))
        paths[index] = np.array(path, dtype=np.int64)
        previous = sequence
    for node in path:
        ends[node] = len(tokens)
    return TokenTree(np.array(tokens, dtype=np.int64), np.array(depths, dtype=np.int64), np.array(ends, dtype=np.int64), paths)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the longest common prefix of two sequences.

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
    """The model inputs of trees, padded to the largest: ids and positions (B, N), boolean mask (B, 1, N, N)."""
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
    ancestor |= torch.eye(length, dtype=torch.bool, device=device)  # padding attends to itself, so that no mask row is empty
    return {"input_ids": token_ids, "position_ids": depths, "attention_mask": ancestor[:, None]}


def prefix_inputs(
    prefix: Sequence[int], trees: Sequence[TokenTree], dtype: torch.dtype, device: torch.device | str
) -> dict[str, Tensor]:
    """The model inputs for `tree_attention`: a prefix of P tokens, then B trees that continue it, padded to L nodes each.

    Ids and positions are (1, P + B·L); the additive mask is (B, 1, L, L), and the positions of the trees are (B, L).
    """
    branches = tree_inputs(trees, device)
    first = torch.tensor(prefix, dtype=torch.long, device=device)
    of_trees = branches["position_ids"] + len(prefix)
    positions = torch.cat([torch.arange(len(prefix), device=device), of_trees.flatten()])
    visible = branches["attention_mask"]
    return {
        "input_ids": torch.cat([first, branches["input_ids"].flatten()])[None],
        "position_ids": positions[None],
        "attention_mask": torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min),
        "tree_positions": of_trees,
    }
