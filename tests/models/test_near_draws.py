"""Exactness: another rounding changes a reply only by a draw near a boundary, and those draws are counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.load_options import EngineName
from msgrpo_hub.models.sampling import draw_tokens
from tests.models.engines import END, some_prompts

ENGINES: tuple[EngineName, ...] = ("fast", "plain")
FLOAT32 = 2e-5  # nats


@pytest.fixture(scope="module")
def model(make_folder: Callable[..., Path]) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(make_folder("qwen2")).eval()


def near(probabilities: list[float], uniforms: list[float], temperature: float = 1.0) -> list[bool]:
    rows = torch.zeros(len(uniforms), dtype=torch.long)
    *_, flags = draw_tokens(torch.tensor([probabilities]).log(), rows, uniforms, temperature)
    return list(flags.tolist())


def test_draws_within_1e_4_of_a_boundary_are_counted_and_zero_and_one_are_no_boundaries() -> None:
    uniforms = {0.49995: True, 0.50005: True, 0.49985: False, 0.50015: False, 0.80005: True, 0.65: False, 1e-6: False}
    assert near([0.5, 0.3, 0.2], [*uniforms, 1 - 1e-6]) == [*uniforms.values(), False]
    assert near([0.0, 1.0, 0.0], [1e-6, 0.5, 1 - 1e-6]) == [False] * 3


def test_a_greedy_choice_between_two_tokens_within_1e_4_nats_is_counted() -> None:
    for gap, counted in ((5e-5, True), (2e-4, False)):
        logits = torch.tensor([[1.0, 1.0 + gap, -3.0]], dtype=torch.float64)
        assert draw_tokens(logits, torch.tensor([0]), [0.0], 0.0)[3].tolist() == [counted]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_token_that_another_rounding_turns_was_counted(temperature: float) -> None:
    """Greedy rows are nearly tied, so that some of them turn."""
    generator, rows = torch.Generator().manual_seed(0), torch.arange(2_000).repeat_interleave(100 if temperature else 1)
    logits = torch.randn(2_000, 20, generator=generator) * (1.0 if temperature else 1e-4)
    noise = FLOAT32 * (2 * torch.rand(logits.shape, generator=generator) - 1)
    uniforms = torch.rand(len(rows), generator=generator, dtype=torch.float64).tolist()
    tokens, _, _, counted = draw_tokens(logits, rows, uniforms, temperature)
    turned = draw_tokens(logits + noise, rows, uniforms, temperature)[0] != tokens
    assert turned.sum() > 3
    assert counted[turned].all()
    assert not temperature or counted.float().mean() < 0.01


def test_replies_without_near_draws_are_the_same_in_both_engines_alone_and_together(model: PreTrainedModel) -> None:
    prompts = some_prompts() * 8

    def replies(engine: EngineName, size: int) -> list[tuple[list[int], int]]:
        made, rngs = Engine(model, END, kind=engine), [np.random.default_rng(k) for k in range(len(prompts))]
        starts = range(0, len(prompts), size)
        parts = [made.sample(prompts[k : k + size], rngs[k : k + size], 1.0, 4) for k in starts]
        return [(sample.token_ids, sample.near_draws) for part in parts for sample in part]

    expected = replies("fast", len(prompts))
    assert any(count for _, count in expected)
    for engine, size in (("fast", 3), ("plain", len(prompts)), ("plain", 5)):
        for (tokens, count), (others, _) in zip(expected, replies(engine, size), strict=True):  # type: ignore[arg-type]
            assert tokens == others or count
