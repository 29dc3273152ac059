"""Families of causal language models: each samples and trains exactly, or is refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msgrpo_hub.errors import UserError
from msgrpo_hub.models import attention
from msgrpo_hub.models.engine import Engine
from tests.families import tiny_model
from tests.models.plain_passes import END, NEW_TOKENS, measure, some_prompts

ENGINES = {
    **dict.fromkeys(("llama", "qwen2", "gemma3_text", "gpt_oss", "gemma4_text", "gpt2"), "fast"),
    **dict.fromkeys(("lfm2", "qwen3_5_text", "mamba2", "granitemoehybrid", "falcon_h1", "deepseek_v3", "bloom"), "plain"),
    "bamba": "plain without cache",
}
"""Family → its engine."""
WINDOWED: dict[str, dict[str, Any]] = {
    "mistral": {},
    "gemma2": {},
    "gemma3_text": {},
    "gpt_oss": {},  # with attention sinks
    "qwen2": {"use_sliding_window": True, "max_window_layers": 1},
}
EXACT = 2e-5
"""Largest difference to a plain forward pass in float32: random models have large logits."""


@pytest.mark.parametrize("family", ENGINES)
def test_a_family_samples_and_trains_as_plain_forward_passes_do(family: str) -> None:
    row = measure(family)
    assert row["engine"] == ENGINES[family]
    assert max(row["acting"], row["training"], row["gradient"]) < EXACT, row


@pytest.mark.parametrize("family", WINDOWED)
@given(window=st.integers(1, 24))  # prompts have 7 to 15 tokens, replies up to 6
@example(window=1)
@example(window=9)
@settings(max_examples=4)
def test_log_probs_and_gradients_are_those_of_a_plain_forward_for_every_window(family: str, window: int) -> None:
    row = measure(family, sliding_window=window, **WINDOWED[family])
    assert row["engine"] == "fast", row
    assert max(row["acting"], row["training"], row["gradient"]) <= 1e-5, row


@pytest.mark.parametrize("family", ["mamba2", "lfm2", "qwen3_5_text", "deepseek_v3", "bloom", "stablelm", "phimoe", "diffllama"])
def test_what_the_fast_engine_would_compute_inexactly_is_refused_by_its_check(family: str) -> None:
    with pytest.raises(UserError, match=rf"'{family}' .*fast engine cannot compute it exactly.*--engine auto"):
        Engine(tiny_model(family), END, kind="fast").choose(some_prompts()[0], NEW_TOKENS)


def test_a_model_that_sees_later_tokens_is_refused() -> None:
    with pytest.raises(UserError, match="not causal"):
        Engine(tiny_model("cpmant"), END).choose(some_prompts()[0], NEW_TOKENS)


def test_a_window_is_checked_when_prompts_first_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short prompt passes the check of an engine that ignores windows."""

    def nothing_hidden(queries: torch.Tensor, keys: torch.Tensor, _window: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(*queries.shape, keys.shape[-1], dtype=dtype)

    monkeypatch.setattr(attention, "beyond_window", nothing_hidden)
    engine = Engine(tiny_model("mistral", sliding_window=12), END, kind="fast")
    engine.choose((1, 2, 3), 4)
    with pytest.raises(UserError, match="cannot compute it exactly"):
        engine.choose(tuple(range(11)), 4)


def test_a_bfloat16_model_is_chosen_for_like_a_float32_one() -> None:
    for family, name in (("gemma3_text", "fast"), ("lfm2", "plain")):
        assert Engine(tiny_model(family).to(torch.bfloat16), END).choose(some_prompts()[1], NEW_TOKENS).name == name
