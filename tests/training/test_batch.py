"""The batch of an update, its loss and its gradient against the plain computation: padded rows, nothing merged."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import PeftModel
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from msgrpo_hub.episode import Completion, Step
from msgrpo_hub.models import log_probs
from msgrpo_hub.models.log_probs import token_log_probs
from msgrpo_hub.models.token_tree import build_tree
from msgrpo_hub.msgrpo import LOSS_NORMALISATIONS, SelectedEpisode, policy_loss
from msgrpo_hub.training.batch import Pack, StepSample, pack, signed_sums, to_samples
from tests.test_msgrpo import episode_of
from tests.tiny import adapted, tiny_model

pytestmark = pytest.mark.lowest

VOCABULARY = 11
EPSILON_LOW, EPSILON_UP, BETA = 0.2, 0.3, 0.05
Ids = tuple[int, ...]


def step_of(prompt: Ids, reply: Ids, scores: Sequence[float] = ()) -> Step:
    completion = Completion(text="", prompt_ids=prompt, token_ids=reply, log_probs=tuple(scores) or (0.0,) * len(reply))
    return Step(observation="", completion=completion, action="Up", status="ok", legal=True, reward=0.0)


def sample_of(prompt: Ids, reply: Ids) -> StepSample:
    return StepSample(step_of(prompt, reply).completion, signed_sums(0.0, 1.0))


def random_model(seed: int) -> PeftModel:
    """A random Qwen2 with LoRA on all linear layers, both of its matrices random."""
    return adapted(tiny_model(seed=seed, vocab_size=VOCABULARY), size=0.1)


@pytest.fixture(scope="module")
def model() -> PeftModel:
    return random_model(0)


def plain_log_probs(model: PeftModel, rows: Sequence[tuple[Ids, Ids]], temperature: float) -> list[Tensor]:
    """log p of every reply token of every (prompt, reply), from one forward pass over right-padded rows."""
    tokens = [prompt + reply for prompt, reply in rows]
    longest = max(map(len, tokens))
    ids = torch.tensor([row + (0,) * (longest - len(row)) for row in tokens])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in tokens])
    log_p = torch.log_softmax(model(input_ids=ids, attention_mask=mask).logits / temperature, -1)
    return [
        torch.stack([log_p[i, len(prompt) + k - 1, token] for k, token in enumerate(reply)])
        for i, (prompt, reply) in enumerate(rows)
    ]


# ---- samples and packs


@given(
    rows=st.sets(st.lists(st.integers(1, 3), min_size=2, max_size=8).map(tuple), min_size=1, max_size=10),
    budget=st.integers(1, 60),
    trees=st.booleans(),
)
@settings(max_examples=150)
def test_packs_keep_to_the_budget_and_contain_every_row_once(rows: set[Ids], budget: int, trees: bool) -> None:
    packs = pack([sample_of(tokens[:1], tokens[1:]) for tokens in sorted(rows)], budget, trees)
    for packed in packs:
        assert len(packed.trees) * max(map(len, packed.trees)) <= budget or len(packed.trees) == 1
        assert all(len(tree) <= budget or len(tree.paths) == 1 for tree in packed.trees)
        assert trees or (not packed.prefix and all(len(tree.paths) == 1 for tree in packed.trees))
    found = [(packed.prefix, tree, path) for packed in packs for tree in packed.trees for path in tree.paths]
    assert sorted((*prefix, *tree.token_ids[path].tolist()) for prefix, tree, path in found) == sorted(rows)


@pytest.mark.parametrize(("same", "trees", "computed"), [(45, 2, 45 + 2 * 45 + 8 * 12), (44, 3, 2 * (90 + 4 * 12))])
def test_replies_to_one_prompt_share_a_tree_and_so_do_prompts_that_are_half_equal(same: int, trees: int, computed: int) -> None:
    """Three prompts of 90 tokens after 150 common ones, with four replies of 12 tokens each; two prompts begin the same."""
    boards = [(7,) * same + (1,) * (90 - same), (7,) * same + (2,) * (90 - same), (8,) * 90]
    steps = [step_of((0,) * 150 + board, (first,) * 12) for board in boards for first in (3, 4, 5, 6)]
    samples = to_samples([SelectedEpisode(episode_of(*steps), (1.0,) * 12)], LOSS_NORMALISATIONS["token-mean"])
    packs = pack(samples, 2048)
    assert {len(packed.prefix) for packed in packs} == {150}
    assert sum(len(packed.trees) for packed in packs) == trees
    assert sum(len(tree) for packed in packs for tree in packed.trees) == computed + 90 + 4 * 12


def test_a_token_that_two_replies_share_is_computed_once_and_has_an_entry_for_each_sign() -> None:
    samples = [
        StepSample(step_of((1, 2), (3, 4), (-0.5, -0.6)).completion, signed_sums(0.5, 0.5)),
        StepSample(step_of((1, 2), (3, 5), (-0.5, -0.7)).completion, signed_sums(-4.0, 0.25)),
        StepSample(step_of((1, 2), (3, 6), (-0.5, -0.8)).completion, signed_sums(0.0, 0.25)),
    ]
    (packed,) = pack(samples, 100)
    # Slots: 0 is token 2, the end of the prompt; 1 is token 3.
    assert list(zip(packed.slots.tolist(), packed.targets.tolist(), strict=True)) == [(0, 3), (1, 4), (1, 5), (1, 6)]
    fields = (packed.targets[packed.tokens], packed.old_log_probs, packed.advantages, packed.weights)
    entries = sorted(zip(*(field.tolist() for field in fields), strict=True))
    # The weight without advantage, 0.25, joins the entry of A > 0: n·A = 0.25 = 0.75 · 1/3.
    expected = [(3, -0.5, -4.0, 0.25), (3, -0.5, 1 / 3, 0.75), (4, -0.6, 0.5, 0.5), (5, -0.7, -4.0, 0.25), (6, -0.8, 0.0, 0.25)]
    assert entries == [pytest.approx(entry) for entry in expected]


# ---- loss and gradient


def random_rows(rng: np.random.Generator, count: int) -> list[tuple[Ids, Ids]]:
    """(prompt, reply) pairs as in an update: prompts share the rules, replies recur and share their beginnings.

    Prompts end with token 0, which no reply contains, so a reply cannot be mistaken for the end of a prompt.
    """
    rules = tuple(rng.integers(1, VOCABULARY, 4).tolist())
    states = [rules + tuple(rng.integers(1, VOCABULARY, rng.integers(1, 4)).tolist()) + (0,) for _ in range(3)]
    return [(states[rng.integers(3)], tuple(rng.integers(1, 4, rng.integers(1, 6)).tolist())) for _ in range(count)]


def random_update(model: PeftModel, rng: np.random.Generator, temperature: float) -> list[SelectedEpisode]:
    """Selected episodes with two values of p_old per context, within a factor of two of p_θ, and some steps with A = 0."""
    noise: dict[tuple[Ids, int], float] = {}
    selected = []
    for member in range(6):
        pairs = random_rows(rng, int(rng.integers(1, 5)))
        with torch.no_grad():
            scored = [plain_log_probs(model, [pair], temperature)[0].tolist() for pair in pairs]
        steps = []
        for (prompt, reply), scores in zip(pairs, scored, strict=True):
            kind = int(rng.integers(2))
            keys = [(prompt + reply[: k + 1], kind) for k in range(len(reply))]
            shifts = [noise.setdefault(key, float(rng.uniform(-0.7, 0.7))) for key in keys]
            steps.append(step_of(prompt, reply, [score + shift for score, shift in zip(scores, shifts, strict=True)]))
        advantages = rng.normal(size=len(steps)) * (rng.random(len(steps)) > 0.2)
        selected.append(SelectedEpisode(episode_of(*steps, member=member), tuple(advantages.tolist())))
    return selected


def naive_loss(
    model: PeftModel, selected: Sequence[SelectedEpisode], normalisation: str, temperature: float
) -> tuple[Tensor, set[tuple[bool, bool]]]:
    """The formula of the loss, one token at a time; and the sides of the clip that ratios reach, as (A > 0, w > 1)."""
    steps = [
        (item, advantage, step.completion)
        for item in selected
        for step, advantage in zip(item.episode.steps, item.advantages, strict=True)
    ]
    rows = [(completion.prompt_ids, completion.token_ids) for *_, completion in steps]
    with torch.no_grad(), model.disable_adapter():
        reference = plain_log_probs(model, rows, temperature)
    current = plain_log_probs(model, rows, temperature)
    total, sides = torch.zeros(()), set()
    for i, (item, advantage, completion) in enumerate(steps):
        length = len(completion.token_ids)
        n = {
            "token-mean": 1 / sum(len(reply) for _, reply in rows),
            "step-mean": 1 / (len(rows) * length),
            "episode-mean": 1 / (len(selected) * sum(len(step.completion.token_ids) for step in item.episode.steps)),
        }[normalisation]
        for k in range(length):
            w = torch.exp(current[i][k] - completion.log_probs[k])
            clipped = torch.clip(w, 1 - EPSILON_LOW, 1 + EPSILON_UP)
            r = torch.exp(reference[i][k] - current[i][k])
            total = total + n * -(torch.min(w * advantage, clipped * advantage) - BETA * (r - torch.log(r) - 1))
            sides |= {(advantage > 0, bool(w > 1))} if advantage and clipped != w else set()
    return total, sides


def gradient_of(model: PeftModel) -> Tensor:
    """The LoRA gradient as one vector; the gradients are cleared."""
    vector = torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad and p.grad is not None])
    model.zero_grad()
    return vector


@pytest.mark.parametrize("normalisation", LOSS_NORMALISATIONS)
def test_loss_and_lora_gradient_of_packs_are_those_of_padded_unmerged_rows(normalisation: str) -> None:
    reached: set[tuple[bool, bool]] = set()
    for seed, temperature in ((0, 1.0), (1, 1.25), (2, 0.5)):
        model = random_model(seed)
        selected = random_update(model, np.random.default_rng(seed), temperature)
        expected, sides = naive_loss(model, selected, normalisation, temperature)
        expected.backward()  # type: ignore[no-untyped-call]
        slopes, reached = gradient_of(model), reached | sides
        assert slopes.abs().max() > 1e-3
        samples, counts = to_samples(selected, LOSS_NORMALISATIONS[normalisation]), []
        assert len(build_tree([sample.token_ids for sample in samples])) < sum(len(sample.token_ids) for sample in samples)
        any_size = np.random.default_rng(seed).integers(2, 200, 5).tolist()
        for budget in (10_000, 25, 1, *any_size):
            packs, loss = pack(samples, budget), 0.0
            counts.append(len(packs))
            for packed in packs:
                with torch.no_grad(), model.disable_adapter():
                    reference = token_log_probs(model, packed, temperature)
                entries = (packed.old_log_probs, reference[packed.tokens], packed.advantages, packed.weights)
                ours = token_log_probs(model, packed, temperature)[packed.tokens]
                terms = policy_loss(ours, *entries, epsilon_low=EPSILON_LOW, epsilon_up=EPSILON_UP, beta=BETA)
                terms.loss.backward()  # type: ignore[no-untyped-call]
                loss += terms.loss.item()
            assert loss == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
            assert (gradient_of(model) - slopes).abs().max() <= 1e-5 * slopes.abs().max()
        assert counts[0] == 1 < counts[1] < counts[2] == len(samples)
    assert reached == set(itertools.product([True, False], repeat=2)), "the updates are too easy"


# ---- log-probabilities, with the logits of a few tokens at a time


def some_pack() -> Pack:
    pairs = sorted(set(random_rows(np.random.default_rng(0), 12)), key=lambda pair: pair[0] + pair[1])
    (packed,) = pack([sample_of(*pair) for pair in pairs], 10_000)
    return packed


def scored(model: PeftModel, packed: Pack) -> tuple[Tensor, Tensor]:
    """The log-probabilities, and the gradient of a sum with weights of both signs."""
    scores = token_log_probs(model, packed, 0.7)
    (scores * torch.linspace(-1, 1, len(scores))).sum().backward()  # type: ignore[no-untyped-call]
    return scores.detach(), gradient_of(model)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_logits_in_chunks_change_no_log_prob_and_no_gradient(
    model: PeftModel, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = some_pack()
    whole, expected = scored(model, packed)
    monkeypatch.setattr(log_probs, "CHUNK_BYTES", 4 * VOCABULARY * size)
    ours, slopes = scored(model, packed)
    assert size < len(packed.slots.unique()) / 2
    assert ours.tolist() == pytest.approx(whole.tolist(), abs=3e-6)  # they are near -7, where float32 has steps of 5e-7
    assert expected.abs().max() > 1e-3
    assert (slopes - expected).abs().max() <= 1e-5 * expected.abs().max()


class Sizes(TorchDispatchMode):
    """Records the bytes of every tensor that is made, also in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.seen += [part.untyped_storage().nbytes() for part in tree_leaves(made) if isinstance(part, Tensor)]
        return made


def test_the_logits_of_an_update_never_exist_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model, packed = adapted(tiny_model(vocab_size=4000, hidden_size=8)), some_pack()
    monkeypatch.setattr(log_probs, "CHUNK_BYTES", 4 * 4000 * 4)
    kept: list[tuple[int, ...]] = []

    def keep(part: Tensor) -> Tensor:
        kept.append(tuple(part.shape))
        return part

    with Sizes() as sizes, saved_tensors_hooks(keep, lambda part: part):
        scored(model, packed)
    assert (4, 4000) not in kept  # the backward pass computes each chunk again
    largest = max(weight.nbytes for weight in model.parameters())
    assert max(sizes.seen) <= largest < 4 * 4000 * len(packed.slots.unique())
