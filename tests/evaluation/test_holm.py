"""Holm's adjustment for several tasks."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgrpo_hub.evaluation.paired import holm
from tests.evaluation.pairs import error

probabilities = st.floats(0, 1)


# Holm


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])  # 3 · 0.01, then 2 · 0.03 over 1 · 0.04
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


@given(st.lists(probabilities, min_size=1, max_size=6))
def test_holm_is_the_closed_test_with_bonferroni(p_values: list[float]) -> None:
    """A hypothesis falls where every set of hypotheses that holds it falls: that is where the familywise level is from."""
    members = range(len(p_values))
    sets = [chosen for size in range(1, len(p_values) + 1) for chosen in itertools.combinations(members, size)]
    bonferroni = {chosen: min(1.0, len(chosen) * min(p_values[i] for i in chosen)) for chosen in sets}
    expected = [max(p for chosen, p in bonferroni.items() if i in chosen) for i in members]
    assert holm(p_values) == pytest.approx(expected)


@given(st.lists(probabilities, max_size=30), st.randoms(use_true_random=False))
def test_holm_keeps_the_order_of_p_and_forgets_the_order_of_rows(p_values: list[float], random: Random) -> None:
    adjusted = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    assert sorted(adjusted) == [q for _, q in sorted(zip(p_values, adjusted, strict=True))]
    shuffled = list(range(len(p_values)))
    random.shuffle(shuffled)
    assert holm([p_values[i] for i in shuffled]) == [adjusted[i] for i in shuffled]


def test_holm_holds_the_familywise_level() -> None:
    families = np.random.default_rng(14).random((5000, 8))
    families[:, :3] *= 1e-4  # three true differences among five equalities
    wrong = np.mean([min(holm(family.tolist())[3:]) < 0.05 for family in families])
    assert wrong == pytest.approx(1 - (1 - 0.05 / 5) ** 5, abs=error(0.05, 5000))
