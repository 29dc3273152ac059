"""Layers with a sliding window: acting and training see what a plain forward sees, whatever the window."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmark.families.measure import measure

WINDOWED: dict[str, dict[str, Any]] = {
    "mistral": {},
    "gemma2": {},
    "gemma3_text": {},
    "gpt_oss": {},  # with attention sinks
    "qwen2": {"use_sliding_window": True, "max_window_layers": 1},
}


@pytest.mark.parametrize("family", WINDOWED)
@given(window=st.integers(1, 24))  # prompts have 7 to 15 tokens, replies up to 6
@example(window=1)
@example(window=9)
@settings(max_examples=4)
def test_log_probs_and_gradients_are_those_of_a_plain_forward_for_every_window(family: str, window: int) -> None:
    row = measure(family, sliding_window=window, **WINDOWED[family])
    assert row["engine"] == "fast", row
    assert max(row["acting"], row["training"], row["gradient"]) <= 1e-5, row
