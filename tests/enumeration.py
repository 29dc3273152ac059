"""An oracle of sampling without replacement."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def subset_probabilities(p: Sequence[float], count: int) -> dict[tuple[int, ...], float]:
    """Successive draws without replacement, enumerated: every order of every subset, renormalised after each draw."""
    found: dict[tuple[int, ...], float] = {}
    for order in itertools.permutations(range(len(p)), count):
        chance, left = 1.0, 1.0
        for index in order:
            chance, left = chance * p[index] / left, left - p[index]
        key = tuple(sorted(order))
        found[key] = found.get(key, 0.0) + chance
    return found
