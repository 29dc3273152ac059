"""A cache of next-token logits, kept while episodes are played: one entry per prompt and partial reply.

Other episodes and later turns of a game reach the same states, and the replies to equal prompts share prefixes. With
unchanged weights the next-token distribution of a prefix is unchanged too. Replies that repeat a cached prefix are
therefore sampled from cached logits, without a forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from msgrpo_hub.models.sampling import TokenIds

Node = tuple[int, int | TokenIds]
"""The end of a partial reply: its parent node and the token sampled there; (-1, prompt) for an empty reply."""

CAPACITY = 2**30
"""Size limit of the logits, in bytes."""
NOT_CACHED = -2
"""The index of a node that exceeded the capacity. A full cache stays full, so no descendant is cached either."""


class LogitCache:
    """A tree of partial replies with the logits at each node.

    Args:
        capacity: size limit of the logits, in bytes; 0 caches nothing.
    """

    def __init__(self, capacity: int = 0) -> None:
        self._capacity = capacity
        self._nodes: dict[Node, int] = {}
        self._logits: Tensor | None = None  # (nodes, vocabulary), allocated when the vocabulary is known

    def __contains__(self, node: Node) -> bool:
        return node in self._nodes

    def get(self, nodes: Sequence[Node]) -> tuple[list[int], Tensor]:
        """The index of each node and its logits, (nodes, vocabulary)."""
        assert self._logits is not None
        indices = [self._nodes[node] for node in nodes]
        return indices, self._logits[indices]

    def add(self, nodes: Sequence[Node], logits: Tensor) -> list[int]:
        """Stores the logits of new nodes, (nodes, vocabulary), up to the capacity. Returns the indices of all these nodes."""
        if self._logits is None:
            self._logits = logits.new_empty(self._capacity // (logits.shape[1] * logits.element_size()), logits.shape[1])
        start = len(self._nodes)
        new = [row for row, node in enumerate(nodes) if node not in self._nodes][: len(self._logits) - start]
        self._logits[start : start + len(new)] = logits if len(new) == len(logits) else logits[new]
        self._nodes |= {nodes[row]: start + k for k, row in enumerate(new)}
        return [self._nodes.get(node, NOT_CACHED) for node in nodes]
