"""Loss and gradient of packs against the plain computation: samples apart, padded, nothing merged, one token at a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from peft import PeftModel
from torch import Tensor

from msgrpo_hub.models.log_probs import token_log_probs
from msgrpo_hub.models.token_tree import build_tree
from msgrpo_hub.msgrpo import LOSS_NORMALISATIONS, LossTerms, SelectedEpisode, policy_loss
from msgrpo_hub.training.batch import Pack, pack, to_samples
from tests.training.test_batch import VOCABULARY, Ids, episode_of, plain_log_probs, random_model, step_of

pytestmark = pytest.mark.lowest

EPSILON_LOW, EPSILON_UP, BETA = 0.2, 0.3, 0.05


def random_rows(rng: np.random.Generator, count: int) -> list[tuple[Ids, Ids]]:
    """(prompt, reply) pairs as an update has them: prompts share the rules, replies recur and share their beginnings.

    Prompts end with token 0, which no reply has, so that no reply can pass for the end of a prompt.
    """
    rules = tuple(rng.integers(1, VOCABULARY, 4).tolist())
    states = [rules + tuple(rng.integers(1, VOCABULARY, rng.integers(1, 4)).tolist()) + (0,) for _ in range(3)]
    return [(states[rng.integers(3)], tuple(rng.integers(1, 4, rng.integers(1, 6)).tolist())) for _ in range(count)]


def random_update(model: PeftModel, rng: np.random.Generator, temperature: float) -> list[SelectedEpisode]:
    """Selected episodes whose p_old lies within a factor of two of p_θ, one of two per context: all sides of the clip occur."""
    noise: dict[tuple[Ids, int], float] = {}
    selected = []
    for member in range(6):
        pairs = random_rows(rng, int(rng.integers(1, 5)))
        with torch.no_grad():
            scored = [plain_log_probs(model, [pair], temperature)[0].tolist() for pair in pairs]
        steps = []
        for (prompt, reply), scores in zip(pairs, scored, strict=True):
            keys = [prompt + reply[: k + 1] for k in range(len(reply))]
            kind = int(rng.integers(2))  # equal tokens with another p_old occur too
            shifts = [noise.setdefault((key, kind), float(rng.uniform(-0.7, 0.7))) for key in keys]
            old = [score + shift for score, shift in zip(scores, shifts, strict=True)]
            steps.append(step_of(prompt, reply, old))
        advantages = rng.normal(size=len(steps)) * (rng.random(len(steps)) > 0.2)  # some steps have none
        selected.append(SelectedEpisode(episode_of(*steps, member=member), tuple(advantages.tolist())))
    return selected


def naive_loss(model: PeftModel, selected: Sequence[SelectedEpisode], normalisation: str, temperature: float) -> Tensor:
    """SPEC §2.6 as it stands: every step of every selected episode a padded row, every token for itself."""
    steps = [
        (item, advantage, step.completion)
        for item in selected
        for step, advantage in zip(item.episode.steps, item.advantages, strict=True)
    ]
    rows = [(completion.prompt_ids, completion.token_ids) for *_, completion in steps]
    with torch.no_grad(), model.disable_adapter():
        reference = plain_log_probs(model, rows, temperature)
    current = plain_log_probs(model, rows, temperature)
    tokens = sum(len(reply) for _, reply in rows)
    total = torch.zeros(())
    for i, (item, advantage, completion) in enumerate(steps):
        length, turns = len(completion.token_ids), item.episode.steps
        n = {
            "token-mean": 1 / tokens,
            "step-mean": 1 / (len(rows) * length),
            "episode-mean": 1 / (len(selected) * sum(len(step.completion.token_ids) for step in turns)),
        }[normalisation]
        for k in range(length):
            w = torch.exp(current[i][k] - completion.log_probs[k])
            clipped = torch.clip(w, 1 - EPSILON_LOW, 1 + EPSILON_UP)
            r = torch.exp(reference[i][k] - current[i][k])
            kl = r - torch.log(r) - 1
            total = total + n * -(torch.min(w * advantage, clipped * advantage) - BETA * kl)
    return total


def gradient_of(model: PeftModel) -> Tensor:
    """The LoRA gradient as one vector; the gradients are cleared."""
    vector = torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad and p.grad is not None])
    model.zero_grad()
    return vector


@pytest.mark.parametrize("normalisation", LOSS_NORMALISATIONS)
@pytest.mark.parametrize(("seed", "temperature"), [(0, 1.0), (1, 1.25), (2, 0.5)])
def test_loss_and_lora_gradient_of_packs_are_those_of_padded_unmerged_rows(
    seed: int, temperature: float, normalisation: str
) -> None:
    model = random_model(seed)
    selected = random_update(model, np.random.default_rng(seed), temperature)
    expected = naive_loss(model, selected, normalisation, temperature)
    expected.backward()  # type: ignore[no-untyped-call]
    slopes = gradient_of(model)
    assert slopes.abs().max() > 1e-3
    samples, counts = to_samples(selected, LOSS_NORMALISATIONS[normalisation]), []
    for budget, tree_size in ((10_000, 96), (25, 12), (1, 1)):
        packs = pack(samples, budget, tree_size)
        counts.append(len(packs))
        loss = 0.0
        for packed in packs:
            with torch.no_grad(), model.disable_adapter():
                reference = token_log_probs(model, packed, temperature)
            terms = loss_of(packed, token_log_probs(model, packed, temperature), reference)
            terms.loss.backward()  # type: ignore[no-untyped-call]
            loss += terms.loss.item()
        assert loss == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
        assert (gradient_of(model) - slopes).abs().max() <= 1e-5 * slopes.abs().max()
    assert counts[0] == 1 < counts[1] < counts[2] == len(
        {(s.completion.prompt_ids, s.completion.token_ids) for s in samples}
    ) or counts[2] == len(samples)


def loss_of(packed: Pack, log_probs: Tensor, reference: Tensor) -> LossTerms:
    """The loss of a pack, as the trainer takes it."""
    entries = (packed.old_log_probs, reference[packed.tokens], packed.advantages, packed.weights)
    return policy_loss(log_probs[packed.tokens], *entries, epsilon_low=EPSILON_LOW, epsilon_up=EPSILON_UP, beta=BETA)


def test_the_random_updates_reach_both_sides_of_the_clip_and_merge_something() -> None:
    """Guards the test above: it would show little if all ratios stayed inside the clip, or if all rows were different."""
    sides: set[tuple[bool, bool]] = set()
    for seed, temperature in ((0, 1.0), (1, 1.25), (2, 0.5)):
        model = random_model(seed)
        selected = random_update(model, np.random.default_rng(seed), temperature)
        completions = [
            (advantage > 0, step.completion)
            for item in selected
            for step, advantage in zip(item.episode.steps, item.advantages, strict=True)
            if advantage
        ]
        samples = to_samples(selected, LOSS_NORMALISATIONS["token-mean"])
        tokens = build_tree([sample.token_ids for sample in samples])
        assert len(tokens) < sum(len(sample.token_ids) for sample in samples)
        for positive, completion in completions:
            with torch.no_grad():
                (scores,) = plain_log_probs(model, [(completion.prompt_ids, completion.token_ids)], temperature)
            ratios = torch.exp(scores - torch.tensor(completion.log_probs)).tolist()
            sides |= {(positive, w > 1) for w in ratios if not 1 - EPSILON_LOW < w < 1 + EPSILON_UP}
    assert sides == set(itertools.product([True, False], repeat=2))
