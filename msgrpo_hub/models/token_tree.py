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
    tokens, depths, ends = list[int](), list[int](), list[int]()
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
    made = [np.array(values, dtype=np.int64) for values in (tokens, depths, ends)]
    return TokenTree(made[0], made[1], made[2], paths)


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
    padded = torch.zeros(3, len(trees), length, dtype=torch.long)
    for row, tree in enumerate(trees):
        padded[:, row, : len(tree)] = torch.from_numpy(np.stack([tree.token_ids, tree.depths, tree.ends]))
    token_ids, depths, ends = padded.to(device)
    node = torch.arange(length, device=device)
    ancestor = (node[None, None, :] <= node[None, :, None]) & (node[None, :, None] < ends[:, None, :])
    ancestor |= torch.eye(length, dtype=torch.bool, device=device)  # padding attends to itself, so that no mask row is empty
    return {"input_ids": token_ids, "position_ids": depths, "attention_mask": ancestor[:, None]}
