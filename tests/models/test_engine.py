"""The engine, which shares work, against uncached passes and a naive sampler, for every family of models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.models import attention
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.training.adapter import new_lora, without_dropout
from msgrpo_hub.training.batch import StepSample, pack, signed_sums
from tests.families import tiny_model
from tests.models.engines import (
    END,
    LIMIT,
    Ids,
    assert_same,
    computed_rows,
    distinct_contexts,
    generators,
    naive_reply,
    plain_log_p,
    plain_log_probs,
    sampled,
    some_prompts,
)

COMMON = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3")
ENGINES = {
    **dict.fromkeys((*COMMON, "gpt_oss", "gemma4_text", "gpt2", "opt"), "fast"),
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

families = pytest.mark.parametrize(
    "family", [pytest.param(name, marks=[pytest.mark.lowest] if name in COMMON else []) for name in ENGINES]
)


def check_training(base: PreTrainedModel, pairs: list[tuple[Ids, Ids]]) -> None:
    """With LoRA on all linear layers, log-probabilities and gradients equal the sums over one forward pass per sequence."""
    without_dropout(base)
    model = new_lora(base, r=2, lora_alpha=4)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.05)
    engine = Engine(model, END)
    shared = engine.choose(max((prompt for prompt, _ in pairs), key=len), LIMIT).shares_prefixes
    replies = [Completion(text="", prompt_ids=p, token_ids=r, log_probs=(0.0,) * len(r)) for p, r in pairs]
    [packed] = pack([StepSample(reply, signed_sums(0.0, 1.0)) for reply in replies], 10**6, shared)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    with engine.learning(), engine.sharing(packed.prefix) as states:
        ours = engine.log_probs(packed, 1.0, states)
        ours.sum().backward()  # type: ignore[no-untyped-call]
    our_gradient = [weight.grad for weight in weights]
    tokens = [(p + r[: k + 1], log_p) for p, r in pairs for k, log_p in enumerate(plain_log_probs(model, p, r))]
    expected = torch.stack([*dict(tokens).values()] if shared else [log_p for _, log_p in tokens])  # equal contexts are one
    assert ours.sort().values.tolist() == pytest.approx(expected.sort().values.tolist(), abs=EXACT)
    gradient = torch.autograd.grad(expected.sum(), weights, allow_unused=True)
    largest = max(part.abs().max().item() for part in gradient if part is not None)
    both = zip(our_gradient, gradient, strict=True)
    assert max((a - b).abs().max().item() for a, b in both if a is not None and b is not None) < EXACT * largest


@families
def test_replies_and_gradients_are_those_of_uncached_passes(family: str) -> None:
    model, prompts = tiny_model(family), some_prompts()
    engine = Engine(model, END)
    for temperature in (1.0, 0.3, 0.0):
        samples = sampled(engine, prompts, temperature)
        assert [sample.prompt_ids for sample in samples] == prompts
        for sample, rng in zip(samples, generators(len(prompts)), strict=True):
            with torch.no_grad():
                scores = plain_log_p(model, sample.prompt_ids, sample.token_ids, temperature)
            own = scores.gather(1, torch.tensor(sample.token_ids)[:, None])[:, 0]
            assert sample.log_probs == pytest.approx(own.tolist(), abs=EXACT / (temperature or 1))
            assert sample.entropies == pytest.approx((-(scores.exp() * scores).sum(-1)).tolist(), abs=2e-4)
            greedy = tuple(scores.argmax(-1).tolist())
            expected = naive_reply(model, sample.prompt_ids, rng, temperature) if temperature else greedy
            assert sample.token_ids == expected
    assert engine.choose(prompts[0], LIMIT).name == ENGINES[family]
    check_training(model, sorted({(sample.prompt_ids, sample.token_ids) for sample in samples}))


@families
def test_equal_partial_replies_are_computed_once_and_drafts_change_none(family: str) -> None:
    engine = Engine(tiny_model(family), END)
    samples = sampled(engine, some_prompts())
    prefix = ENGINES[family] == "fast"
    assert computed_rows(engine) == prefix + distinct_contexts(samples)
    with engine.caching():
        for _ in range(2):
            assert_same(sampled(engine, some_prompts()), samples)


@families
@pytest.mark.parametrize(("max_rows", "drafted"), [(512, 96), (5, 96), (1, 0)])
def test_scores_are_those_of_uncached_passes_and_stay_in_order(
    family: str, max_rows: int, drafted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Continuations of all kinds: some share a prefix, one is a prefix of another, some occur twice, a prompt has none."""
    model, prompts = tiny_model(family), some_prompts()
    options: list[list[Ids]] = [[(1, 2, 3), (4,)], [(5, 6)], [], [(4,), (1, 2), (1, 2, 7)], [(1, 2, 3)], [(7,)], [], [(8, 9)] * 2]
    monkeypatch.setattr("msgrpo_hub.models.engine.DRAFTED", drafted)
    scores = Engine(model, END, max_rows=max_rows).score(prompts, options)
    assert [len(row) for row in scores] == [len(row) for row in options]
    for prompt, replies, of_prompt in zip(prompts, options, scores, strict=True):
        for reply, log_probs in zip(replies, of_prompt, strict=True):
            with torch.no_grad():
                assert log_probs == pytest.approx(plain_log_probs(model, prompt, reply).tolist(), abs=EXACT)


@pytest.mark.parametrize("family", WINDOWED)
@given(window=st.integers(1, 24))  # prompts have 7 to 15 tokens, replies up to 10
@example(window=1)
@example(window=9)
@settings(max_examples=4)
def test_log_probs_and_gradients_are_exact_for_every_window(family: str, window: int) -> None:
    model = tiny_model(family, sliding_window=window, **WINDOWED[family])
    engine = Engine(model, END, kind="fast")
    samples = sampled(engine, some_prompts(), 1.0)
    with torch.no_grad():
        for sample in samples:
            plain = plain_log_probs(model, sample.prompt_ids, sample.token_ids)
            assert sample.log_probs == pytest.approx(plain.tolist(), abs=EXACT)
    check_training(model, sorted({(sample.prompt_ids, sample.token_ids) for sample in samples}))


@pytest.mark.parametrize("family", ["mamba2", "lfm2", "qwen3_5_text", "deepseek_v3", "bloom", "stablelm", "phimoe", "diffllama"])
def test_the_check_refuses_the_fast_engine_where_it_is_inexact(family: str) -> None:
    with pytest.raises(UserError, match=rf"'{family}' .*fast engine cannot compute it exactly.*--engine auto"):
        Engine(tiny_model(family), END, kind="fast").choose(some_prompts()[0], LIMIT)


def test_a_model_that_sees_later_tokens_is_refused() -> None:
    with pytest.raises(UserError, match="not causal"):
        Engine(tiny_model("cpmant"), END).choose(some_prompts()[0], LIMIT)


def test_a_window_is_checked_when_prompts_first_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "beyond_window", lambda q, k, _, dtype: torch.zeros(*q.shape, k.shape[-1], dtype=dtype))
    engine = Engine(tiny_model("mistral", sliding_window=12), END, kind="fast")
    engine.choose((1, 2, 3), 4)
    with pytest.raises(UserError, match="cannot compute it exactly"):
        engine.choose(tuple(range(11)), 4)


@pytest.mark.parametrize(
    ("family", "said"),
    [("lfm2", "(it has conv layers): exact, but several times slower"), ("bamba", "since its cache is inexact")],
)
def test_a_slower_engine_is_logged_once_with_the_reason(family: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_model(family)
    for _ in range(2):
        Engine(model, END).choose(some_prompts()[0], LIMIT)
    [line] = caplog.messages
    assert line.startswith(f"'{family}' samples and trains by the plain engine (")
    assert said in line
