"""The plain engine: a model's own forward and cache, with the same sampler, so the same tokens as plain sampling."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.forward import PlainForward
from tests.families import tiny_model
from tests.models.engines import END, assert_same, distinct_contexts, generators, naive_reply, plain_scores, sampled, some_prompts
from tests.tiny import tiny_model as tiny_qwen

KINDS = ["mamba2", "qwen3_5_text", "lfm2", "granitemoehybrid", "deepseek_v3", "bamba"]
"""State-space, linear attention, convolution, hybrid, latent attention, and a cache that transformers computes inexactly."""


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> torch.nn.Module:
    return tiny_model(request.param)


def test_tokens_are_those_of_sampling_one_prompt_at_a_time(model: torch.nn.Module) -> None:
    prompts = some_prompts()
    samples = sampled(Engine(model, END), prompts)  # type: ignore[arg-type]
    for sample, prompt, rng in zip(samples, prompts, generators(len(prompts)), strict=True):
        assert sample.token_ids == naive_reply(model, prompt, rng, 0.3, END)


def test_equal_partial_replies_are_computed_once(model: torch.nn.Module) -> None:
    engine = Engine(model, END)  # type: ignore[arg-type]
    samples = sampled(engine, some_prompts())
    assert engine.forward_rows == distinct_contexts(samples)
    with engine.caching():
        first = sampled(engine, some_prompts())
        rows = engine.forward_rows
        assert_same(sampled(engine, some_prompts()), first)
    assert engine.forward_rows == rows


def test_scores_are_those_of_a_plain_forward_and_stay_in_order(model: torch.nn.Module) -> None:
    prompts, options = some_prompts(), [[(1, 2, 3), (4,)], [(5, 6)], [], [(4,)], [(1, 2, 3)], [(7,)], [], [(8, 9)]]
    scores = Engine(model, END, max_rows=3).score(prompts, options)  # type: ignore[arg-type]
    for prompt, replies, of_prompt in zip(prompts, options, scores, strict=True):
        for reply, log_probs in zip(replies, of_prompt, strict=True):
            with torch.no_grad():
                plain = torch.log_softmax(model(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1], -1)
            assert log_probs == pytest.approx(plain[range(len(reply)), reply].tolist(), abs=1e-5)


def test_both_engines_give_the_same_replies_where_both_are_exact() -> None:
    model = tiny_qwen(vocab_size=300)
    fast, plain = (sampled(Engine(model, END, kind=kind), some_prompts()) for kind in ("fast", "plain"))  # type: ignore[arg-type]
    assert_same(fast, plain)


def test_a_cache_that_transformers_computes_inexactly_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(tiny_model("bamba"), END)
    samples = sampled(engine, some_prompts(), 1.0)
    forward = engine.choose(some_prompts()[0], 1)
    assert isinstance(forward, PlainForward)
    assert not forward.cached
    assert "'bamba' samples and trains by the plain engine" in caplog.text
    assert "many times slower" in caplog.text
    for sample in samples:
        plain = plain_scores(engine.model, sample, 1.0)[range(len(sample.token_ids)), sample.token_ids]
        assert sample.log_probs == pytest.approx(plain.tolist(), abs=1e-5)


def test_the_line_about_the_plain_engine_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(tiny_model("lfm2"), END)
    for seed in range(2):
        engine.sample(some_prompts(seed), [np.random.default_rng(i) for i in range(8)], 1.0, 3)
    assert [record.message for record in caplog.records] == [
        "'lfm2' samples and trains by the plain engine (it has conv layers): exact, but several times slower"
    ]
