"""Every family of causal language models that transformers knows acts exactly, or is refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import transformers

from benchmark.families.__main__ import PAGE, RESULTS
from benchmark.families.measure import END, NEW_TOKENS, acting_error, some_prompts
from benchmark.families.page import page
from benchmark.families.tiny import families, tiny_model
from msgrpo_hub.errors import UserError
from msgrpo_hub.models import attention
from msgrpo_hub.models.engine import Engine
from tests.models.engines import generators

TABLE: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))["families"]
ACTING = [family for family, row in TABLE.items() if "engine" in row]
EXACT = 2e-5
"""Largest difference of a log-probability to a plain forward, in float32: random models have large logits."""
INEXACT_IN_TRANSFORMERS = {"nemotron_h", "zamba2"}
"""Families whose own cache is off by up to 1e-3 in transformers; the engine uses it as `generate` does."""


def test_the_table_is_of_this_version_of_transformers_and_lists_every_family() -> None:
    assert json.loads(RESULTS.read_text(encoding="utf-8"))["transformers"] == transformers.__version__
    assert list(TABLE) == families()
    assert PAGE.read_text(encoding="utf-8") == page(json.loads(RESULTS.read_text(encoding="utf-8")))


@pytest.mark.parametrize("family", ACTING)
def test_a_family_acts_exactly_by_the_engine_of_the_table(family: str) -> None:
    model, prompts = tiny_model(family), some_prompts()
    engine = Engine(model, END)
    samples = engine.sample(prompts, generators(len(prompts)), 1.0, NEW_TOKENS)
    row = TABLE[family]
    uncached = " without cache" if row.get("cached") is False else ""
    assert engine.choose(prompts[0], NEW_TOKENS).name == row["engine"] + uncached
    assert acting_error(model, samples) < (1e-3 if family in INEXACT_IN_TRANSFORMERS else EXACT)


def test_the_errors_of_the_table_are_those_of_rounding() -> None:
    for family in ACTING:
        row = TABLE[family]
        assert row["acting"] < (1e-3 if family in INEXACT_IN_TRANSFORMERS else EXACT), family
        if "not_trained" not in row:
            assert (row["training"] < EXACT, row["gradient"] < EXACT) == (True, True), family


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
