"""The engine, which shares work between samples, against plain forwards, `generate`, and a sampler that shares nothing."""

from __future__ import annotations

import copy

import pytest
import torch

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.log_probs import token_log_probs
from msgrpo_hub.training.batch import StepSample, pack, signed_sums
from tests.models.engines import END, LIMIT, TOLERANCE, generators, naive_reply, plain_scores, sampled, some_prompts

# ---- against plain computations, for every family


@pytest.mark.parametrize("temperature", [1.0, 0.3, 0.0])
def test_log_probs_and_entropies_are_those_of_a_plain_forward(family: LanguageModel, temperature: float) -> None:
    for sample in sampled(Engine(family.model, END), some_prompts(), temperature):
        scores = plain_scores(family.model, sample, temperature)
        expected = scores.gather(1, torch.tensor(sample.token_ids)[:, None])[:, 0]
        assert sample.log_probs == pytest.approx(expected.tolist(), abs=TOLERANCE / (temperature or 1))
        assert sample.entropies == pytest.approx((-(scores.exp() * scores).sum(-1)).tolist(), abs=1e-4)


@pytest.mark.lowest
def test_log_probs_are_those_of_eager_attention_too(family: LanguageModel) -> None:
    eager = copy.deepcopy(family.model)
    eager.set_attn_implementation("eager")
    for sample in sampled(Engine(family.model, END), some_prompts(), 1.0):
        expected = plain_scores(eager, sample, 1.0).gather(1, torch.tensor(sample.token_ids)[:, None])[:, 0]
        assert sample.log_probs == pytest.approx(expected.tolist(), abs=TOLERANCE)


def test_greedy_replies_equal_those_of_generate(family: LanguageModel) -> None:
    prompts = some_prompts()
    for sample in sampled(Engine(family.model, END), prompts, temperature=0.0):
        ids = torch.tensor([sample.prompt_ids])
        options = {"do_sample": False, "max_new_tokens": LIMIT, "eos_token_id": sorted(END), "pad_token_id": 0}
        output = family.model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        assert sample.token_ids == tuple(output[0, ids.shape[1] :].tolist())


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_tokens_are_those_of_sampling_one_prompt_at_a_time(family: LanguageModel, temperature: float) -> None:
    prompts = some_prompts()
    samples = sampled(Engine(family.model, END), prompts, temperature)
    naive = [
        naive_reply(family.model, prompt, rng, temperature, END)
        for prompt, rng in zip(prompts, generators(len(prompts)), strict=True)
    ]
    assert [sample.token_ids for sample in samples] == naive
    assert [sample.prompt_ids for sample in samples] == prompts


@pytest.mark.lowest
def test_training_sees_the_log_probs_that_acting_recorded(family: LanguageModel, prompts: list[Prompt]) -> None:
    replies = family.complete(prompts, generators(len(prompts)))
    distinct = {reply.prompt_ids + reply.token_ids: reply for reply in replies}
    (packed,) = pack([StepSample(distinct[key], signed_sums(0.0, 1.0)) for key in sorted(distinct)], 10_000)
    with torch.no_grad():
        log_probs = token_log_probs(family.model, packed, family.temperature)
    assert log_probs.tolist() == pytest.approx(packed.old_log_probs.tolist(), abs=TOLERANCE)
