"""What a model would say next: the logits after each prompt and each beginning of a reply that was computed, while it plays.

In a game the same state comes up again, in other episodes and in later turns, and the replies to it begin alike. With the
same weights the next-token distribution there is the same, so a reply is drawn from what is remembered for as long as it
goes where a reply went before, without the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from msgrpo_hub.models.sampling import TokenIds

Node = tuple[int, int | TokenIds]
"""Where a reply has come to: the node before, and the token that was drawn there; at its beginning (-1, prompt)."""

NOT_CACHED = -2
"""The node of a place for which there was no capacity. A full memory stays full, so nothing after it is remembered either."""


class LogitCache:
    """A tree of replies with the logits at each node.

    Args:
        capacity: for logits, in bytes; 0 remembers nothing.
    """

    def __init__(self, capacity: int = 0) -> None:
        self._capacity = capacity
        self._nodes: dict[Node, int] = {}
        self._logits: Tensor | None = None  # (nodes, vocabulary), made when the vocabulary is known

    def __contains__(self, place: Node) -> bool:
        return place in self._nodes

    def get(self, places: Sequence[Node]) -> tuple[list[int], Tensor, Tensor]:
        """The node at each place, the logits of the distinct ones (rows, vocabulary), and the row of each."""
        assert self._logits is not None
        nodes = [self._nodes[place] for place in places]
        distinct, rows = torch.unique(torch.tensor(nodes, device=self._logits.device), return_inverse=True)
        return nodes, self._logits[distinct], rows

    def add(self, places: Sequence[Node], logits: Tensor) -> list[int]:
        """Keeps the logits at new places, (places, vocabulary), for as many as there is capacity. Returns all their nodes."""
        if self._logits is None:
            self._logits = logits.new_empty(self._capacity // (logits.shape[1] * logits.element_size()), logits.shape[1])
        start = len(self._nodes)
        new = [row for row, place in enumerate(places) if place not in self._nodes][: len(self._logits) - start]
        self._logits[start : start + len(new)] = logits[new]
        self._nodes |= {places[row]: start + k for k, row in enumerate(new)}
        return [self._nodes.get(place, NOT_CACHED) for place in places]
