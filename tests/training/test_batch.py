"""The batch of an update against the plain computation: rows apart, padded, nothing merged, one token at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import PeftModel
from torch import Tensor

from msgrpo_hub.episode import Completion, Episode, Step
from msgrpo_hub.msgrpo import LOSS_NORMALISATIONS, SelectedEpisode
from msgrpo_hub.training.batch import Pack, StepSample, largest_tree, pack, signed_sums, to_samples
from tests.tiny import adapted, tiny_model

pytestmark = pytest.mark.lowest

VOCABULARY = 11
Ids = tuple[int, ...]


def step_of(prompt: Ids, reply: Ids, log_probs: Sequence[float] = (), reward: float = 0.0) -> Step:
    completion = Completion(text="", prompt_ids=prompt, token_ids=reply, log_probs=tuple(log_probs) or (0.0,) * len(reply))
    return Step(observation="", completion=completion, action="Up", status="ok", legal=True, reward=reward)


def episode_of(*steps: Step, member: int = 0) -> Episode:
    return Episode(game_id="g", seed=0, member=member, steps=steps, terminated=True, truncated=False, success=False)


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

ids = st.lists(st.integers(1, 3), min_size=1, max_size=5).map(tuple)
selections = st.lists(
    st.builds(
        lambda steps: SelectedEpisode(
            episode_of(*(step_of(prompt, reply) for prompt, reply, _ in steps)), tuple(advantage for *_, advantage in steps)
        ),
        st.lists(st.tuples(ids, ids, st.sampled_from([0.0, 0.5, -0.5, 2.0, -3.0])), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=6,
)
"""Three tokens only, so that equal rows, shared beginnings and rows that begin with another row all occur."""


@pytest.mark.parametrize("name", LOSS_NORMALISATIONS)
@given(selected=selections)
@settings(max_examples=50)
def test_merging_keeps_the_weight_and_the_advantage_of_every_reply(name: str, selected: list[SelectedEpisode]) -> None:
    weights = LOSS_NORMALISATIONS[name]([[len(step.completion.token_ids) for step in item.episode.steps] for item in selected])
    expected: dict[tuple[Ids, Ids], list[float]] = {}
    for item, of_steps in zip(selected, weights, strict=True):
        for step, advantage, n in zip(item.episode.steps, item.advantages, of_steps, strict=True):
            sums = expected.setdefault((step.completion.prompt_ids, step.completion.token_ids), [0.0] * 5)
            own = (n * max(advantage, 0), n * (advantage > 0), n * min(advantage, 0), n * (advantage < 0), n * (advantage == 0))
            for k, value in enumerate(own):
                sums[k] += value
    samples = to_samples(selected, LOSS_NORMALISATIONS[name])
    merged = {(sample.completion.prompt_ids, sample.completion.token_ids): sample.sums.tolist() for sample in samples}
    assert len(merged) == len(samples)
    assert merged == {key: pytest.approx(sums, abs=1e-12) for key, sums in expected.items()}
    assert sum(sample.sums[[1, 3, 4]].sum() * len(sample.completion.token_ids) for sample in samples) == pytest.approx(1.0)
    assert [sample.token_ids for sample in samples] == sorted(sample.token_ids for sample in samples)


def entries_of(packed: Pack) -> dict[tuple[int, float, float], float]:
    """(token, log p_old, advantage) → weight, of every entry of the loss."""
    fields = (packed.targets[packed.tokens], packed.old_log_probs, packed.advantages, packed.weights)
    rows = [
        (int(token), round(old, 5), round(a, 5), n)
        for token, old, a, n in zip(*(field.tolist() for field in fields), strict=True)
    ]
    assert len({row[:3] for row in rows}) == len(rows)
    return {row[:3]: row[3] for row in rows}


def sample_of(tokens: Ids) -> StepSample:
    return StepSample(step_of(tokens[:1], tokens[1:]).completion, signed_sums(0.0, 1.0))


def slots_of(packed: Pack) -> list[list[int]]:
    """The slots of each row's tokens behind the prefix, in the order of the rows."""
    length = max(map(len, packed.trees))
    first = len(packed.prefix)
    return [(first + number * length + path).tolist() for number, tree in enumerate(packed.trees) for path in tree.paths]


@given(
    rows=st.sets(st.lists(st.integers(1, 3), min_size=2, max_size=8).map(tuple), min_size=1, max_size=10),
    budget=st.integers(1, 60),
    tree_size=st.integers(1, 20),
)
@settings(max_examples=150)
def test_packs_keep_to_the_budget_and_spell_every_row_in_order(rows: set[Ids], budget: int, tree_size: int) -> None:
    ordered = [sample_of(tokens) for tokens in sorted(rows)]
    packs = pack(ordered, budget, tree_size)
    for packed in packs:
        size = len(packed.prefix) + len(packed.trees) * max(map(len, packed.trees))
        assert size <= budget or len(packed.trees) == 1
        assert all(len(tree) <= tree_size or len(tree.paths) == 1 for tree in packed.trees)
    trees = [(packed.prefix, tree, path) for packed in packs for tree in packed.trees for path in tree.paths]
    assert [(*prefix, *tree.token_ids[path].tolist()) for prefix, tree, path in trees] == [row.token_ids for row in ordered]


@pytest.mark.parametrize(("width", "trees"), [(576, 1), (128, 8)])
def test_samples_with_one_prompt_share_a_tree_but_for_narrow_models(width: int, trees: int) -> None:
    """Two prompts of 90 tokens behind 150 common ones, with four replies of 12 tokens each: as SmolLM2's, and one width less."""
    prompts = [(0,) * 150 + (board,) * 90 for board in (1, 2)]
    steps = [step_of(prompt, (first,) * 12) for prompt in prompts for first in (3, 4, 5, 6)]
    samples = to_samples([SelectedEpisode(episode_of(*steps), (1.0,) * 8)], LOSS_NORMALISATIONS["token-mean"])
    packs = pack(samples, 2048, largest_tree(90 + 12, width))
    assert sum(len(packed.trees) for packed in packs) == trees
    computed = 2 * (90 + 4 * 12) if width == 576 else 8 * (90 + 12)
    assert sum(len(tree) for packed in packs for tree in packed.trees) == computed


def test_a_token_that_two_replies_share_is_computed_once_and_has_an_entry_for_each_sign() -> None:
    samples = [
        StepSample(step_of((1, 2), (3, 4), (-0.5, -0.6)).completion, signed_sums(0.5, 0.5)),
        StepSample(step_of((1, 2), (3, 5), (-0.5, -0.7)).completion, signed_sums(-4.0, 0.25)),
        StepSample(step_of((1, 2), (3, 6), (-0.5, -0.8)).completion, signed_sums(0.0, 0.25)),
    ]
    (packed,) = pack(samples, 100)
    # Slots: 0 is the prefix, token 1; 1 is token 2, the end of the prompt; 2 is token 3.
    assert list(zip(packed.slots.tolist(), packed.targets.tolist(), strict=True)) == [(1, 3), (2, 4), (2, 5), (2, 6)]
    # The weight without advantage, 0.25, joins the entry of A > 0: n·A = 0.25 = 0.75 · 1/3.
    assert entries_of(packed) == {
        (3, -0.5, 0.33333): pytest.approx(0.75),
        (3, -0.5, -4.0): pytest.approx(0.25),
        (4, -0.6, 0.5): pytest.approx(0.5),
        (5, -0.7, -4.0): pytest.approx(0.25),
        (6, -0.8, 0.0): pytest.approx(0.25),
    }
