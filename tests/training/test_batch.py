"""The batch of an update against the plain computation: rows apart, padded, nothing merged, one token at a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import PeftModel
from torch import Tensor

from msgrpo_hub.episode import Completion, Episode, Group, Step
from msgrpo_hub.models.token_tree import build_tree
from msgrpo_hub.msgrpo import NORMALISATIONS, group_advantages, policy_loss, sample_episodes, sample_top
from msgrpo_hub.training.batch import Drawn, Pack, Row, draw, pack, to_rows
from msgrpo_hub.training.log_probs import token_log_probs
from tests.tiny import adapted, tiny_model

pytestmark = pytest.mark.lowest

VOCABULARY = 11
EPSILON_LOW, EPSILON_UP, BETA = 0.2, 0.3, 0.05
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


# ---- drawing


def group_of(*returns: float, seed: int = 0) -> Group:
    episodes = [episode_of(step_of((1,), (2,), reward=r), member=member) for member, r in enumerate(returns)]
    return Group(game_id="g", seed=seed, episodes=tuple(episodes))


def test_advantages_stay_per_group_and_a_group_without_variance_is_left_out() -> None:
    groups = [group_of(1, 0, 0, 1), group_of(5, 5, 5, 5), group_of(100, 0, 0, 0)]
    advantages, drawn = draw(groups, 2, sample_top, 1.0, torch.Generator())
    third = 3**0.5  # C = 100, 0, 0, 0: mean 25, std 25·√3, so A = √3 and −1/√3
    assert advantages == [[1, -1, -1, 1], [0, 0, 0, 0], pytest.approx([third, -1 / third, -1 / third, -1 / third])]
    assert [item.episode for item in drawn] == [*groups[0].episodes[:2], *groups[2].episodes[:2]]
    assert [item.advantage for item in drawn] == pytest.approx([1, -1, third, -1 / third])


def test_no_variance_anywhere_draws_nothing() -> None:
    assert draw([group_of(1, 1, 1), group_of(0, 0, 0)], 2, sample_top, 1.0, torch.Generator())[1] == []


def test_the_format_penalty_is_part_of_the_return() -> None:
    silent = Step(observation="", completion=Completion(text=""), action=None, status="unreadable", legal=False, reward=0.0)
    group = Group(game_id="g", seed=0, episodes=(episode_of(silent), episode_of(step_of((1,), (2,)))))
    assert draw([group], 1, sample_top, 1.0, torch.Generator())[0] == [[-1.0, 1.0]]
    assert draw([group], 1, sample_top, 0.0, torch.Generator())[0] == [[0.0, 0.0]]


def test_every_drawn_episode_carries_its_own_advantage() -> None:
    groups = [group_of(*np.random.default_rng(i).integers(0, 9, 12).astype(float).tolist(), seed=i) for i in range(3)]
    _, drawn = draw(groups, 4, sample_episodes, 1.0, torch.Generator().manual_seed(0))
    assert len(drawn) == 12
    for number, item in enumerate(drawn):
        group = groups[number // 4]
        expected = group_advantages(torch.tensor([episode.reward for episode in group.episodes]))
        assert item.episode is group.episodes[item.episode.member]
        assert item.advantage == expected[item.episode.member].item()


# ---- rows and packs

ids = st.lists(st.integers(1, 3), min_size=1, max_size=5).map(tuple)
drawn_strategy = st.lists(
    st.builds(
        lambda steps, advantage: Drawn(episode_of(*(step_of(prompt, reply) for prompt, reply in steps)), advantage),
        st.lists(st.tuples(ids, ids), min_size=1, max_size=4),
        st.floats(-3, 3),
    ),
    min_size=1,
    max_size=6,
)
"""Three tokens only, so that equal rows, shared beginnings and rows that begin with another row all occur."""


@pytest.mark.parametrize("name", NORMALISATIONS)
@given(drawn=drawn_strategy)
@settings(max_examples=50, deadline=None)
def test_merging_keeps_the_weight_of_every_reply(name: str, drawn: list[Drawn]) -> None:
    weights = NORMALISATIONS[name]([[len(step.completion.token_ids) for step in item.episode.steps] for item in drawn])
    expected: dict[tuple[Ids, Ids], list[float]] = {}
    for item, masses in zip(drawn, weights, strict=True):
        for step, n in zip(item.episode.steps, masses, strict=True):
            sums = expected.setdefault((step.completion.prompt_ids, step.completion.token_ids), [0.0, 0.0, 0.0])
            for k, value in enumerate((n * max(item.advantage, 0), n * max(-item.advantage, 0), n)):
                sums[k] += value
    rows = to_rows(drawn, NORMALISATIONS[name])
    merged = {(row.completion.prompt_ids, row.completion.token_ids): [row.gain, row.loss, row.mass] for row in rows}
    assert len(merged) == len(rows)
    assert merged == {key: pytest.approx(sums, abs=1e-12) for key, sums in expected.items()}
    assert sum(row.mass * len(row.completion.token_ids) for row in rows) == pytest.approx(1.0)
    assert [row.token_ids for row in rows] == sorted(row.token_ids for row in rows)


def test_replies_to_different_prompts_stay_apart_though_they_spell_the_same_tokens() -> None:
    steps = [step_of((1,), (2, 3)), step_of((1, 2), (3,))]
    rows = to_rows([Drawn(episode_of(*steps), 1.0)], NORMALISATIONS["token-mean"])
    assert sorted((row.completion.prompt_ids, row.mass) for row in rows) == [((1,), 1 / 3), ((1, 2), 1 / 3)]
    (packed,) = pack(rows, 100)
    assert dict(zip(packed.targets.tolist(), packed.weights.mass.tolist(), strict=True)) == pytest.approx({2: 1 / 3, 3: 2 / 3})


def row_of(tokens: Ids) -> Row:
    return Row(step_of(tokens[:1], tokens[1:]).completion, 0.0, 0.0, 1.0)


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
@settings(max_examples=150, deadline=None)
def test_packs_keep_to_the_budget_and_spell_every_row_in_order(rows: set[Ids], budget: int, tree_size: int) -> None:
    ordered = [row_of(tokens) for tokens in sorted(rows)]
    packs = pack(ordered, budget, tree_size)
    for packed in packs:
        size = len(packed.prefix) + len(packed.trees) * max(map(len, packed.trees))
        assert size <= budget or len(packed.trees) == 1
        assert all(len(tree) <= tree_size or len(tree.paths) == 1 for tree in packed.trees)
    trees = [(packed.prefix, tree, path) for packed in packs for tree in packed.trees for path in tree.paths]
    assert [(*prefix, *tree.token_ids[path].tolist()) for prefix, tree, path in trees] == [row.token_ids for row in ordered]


@given(drawn=drawn_strategy, budget=st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_packing_keeps_the_total_weight(drawn: list[Drawn], budget: int) -> None:
    rows = to_rows(drawn, NORMALISATIONS["token-mean"])
    packs = pack(rows, budget)
    for name in ("gain", "loss", "mass"):
        expected = sum(getattr(row, name) * len(row.completion.token_ids) for row in rows)
        assert sum(getattr(packed.weights, name).sum().item() for packed in packs) == pytest.approx(expected, rel=1e-6)


def test_a_token_that_two_replies_share_is_one_token_with_added_weights() -> None:
    rows = [
        Row(step_of((1, 2), (3, 4), (-0.5, -0.6)).completion, 0.25, 0.0, 0.5),
        Row(step_of((1, 2), (3, 5), (-0.5, -0.7)).completion, 0.0, 1.0, 0.25),
    ]
    (packed,) = pack(rows, 100)
    found = {
        (node, target): (old, gain, loss, mass)
        for node, target, old, gain, loss, mass in zip(
            packed.slots.tolist(),
            packed.targets.tolist(),
            np.float64(packed.old_log_probs.double().numpy().round(6)).tolist(),
            packed.weights.gain.tolist(),
            packed.weights.loss.tolist(),
            packed.weights.mass.tolist(),
            strict=True,
        )
    }
    # Slots: 0 is the prefix, token 1; 1 is token 2, the end of the prompt; 2 is token 3.
    assert found == {(1, 3): (-0.5, 0.25, 1.0, 0.75), (2, 4): (-0.6, 0.25, 0.0, 0.5), (2, 5): (-0.7, 0.0, 1.0, 0.25)}


# ---- log-probabilities, loss and gradient


def random_rows(rng: np.random.Generator, count: int) -> list[tuple[Ids, Ids]]:
    """(prompt, reply) pairs as an update has them: prompts share the rules, replies recur and share their beginnings.

    Prompts end with token 0, which no reply has, so that no reply can pass for the end of a prompt.
    """
    rules = tuple(rng.integers(1, VOCABULARY, 4).tolist())
    states = [rules + tuple(rng.integers(1, VOCABULARY, rng.integers(1, 4)).tolist()) + (0,) for _ in range(3)]
    return [(states[rng.integers(3)], tuple(rng.integers(1, 4, rng.integers(1, 6)).tolist())) for _ in range(count)]


def random_update(model: PeftModel, rng: np.random.Generator, temperature: float) -> list[Drawn]:
    """Drawn episodes whose p_old lies within a factor of two of p_θ, one value per context: all sides of the clip occur."""
    noise: dict[Ids, float] = {}
    drawn = []
    for member in range(6):
        pairs = random_rows(rng, int(rng.integers(1, 5)))
        with torch.no_grad():
            scored = [plain_log_probs(model, [pair], temperature)[0].tolist() for pair in pairs]
        steps = []
        for (prompt, reply), scores in zip(pairs, scored, strict=True):
            keys = [prompt + reply[: k + 1] for k in range(len(reply))]
            old = [score + noise.setdefault(key, float(rng.uniform(-0.7, 0.7))) for key, score in zip(keys, scores, strict=True)]
            steps.append(step_of(prompt, reply, old))
        drawn.append(Drawn(episode_of(*steps, member=member), float(rng.normal())))
    return drawn


def naive_loss(model: PeftModel, drawn: Sequence[Drawn], normalisation: str, temperature: float) -> Tensor:
    """SPEC §2.6 as it stands: every step of every drawn episode a padded row, every token for itself."""
    steps = [(item, step.completion) for item in drawn for step in item.episode.steps]
    rows = [(completion.prompt_ids, completion.token_ids) for _, completion in steps]
    with torch.no_grad(), model.disable_adapter():
        reference = plain_log_probs(model, rows, temperature)
    current = plain_log_probs(model, rows, temperature)
    tokens = sum(len(reply) for _, reply in rows)
    total = torch.zeros(())
    for i, (item, completion) in enumerate(steps):
        length, turns = len(completion.token_ids), item.episode.steps
        n = {
            "token-mean": 1 / tokens,
            "step-mean": 1 / (len(rows) * length),
            "episode-mean": 1 / (len(drawn) * sum(len(step.completion.token_ids) for step in turns)),
        }[normalisation]
        for k in range(length):
            w = torch.exp(current[i][k] - completion.log_probs[k])
            clipped = torch.clip(w, 1 - EPSILON_LOW, 1 + EPSILON_UP)
            r = torch.exp(reference[i][k] - current[i][k])
            kl = r - torch.log(r) - 1
            total = total + n * -(torch.min(w * item.advantage, clipped * item.advantage) - BETA * kl)
    return total


def gradient_of(model: PeftModel) -> Tensor:
    """The LoRA gradient as one vector; the gradients are cleared."""
    vector = torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad and p.grad is not None])
    model.zero_grad()
    return vector


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize(("seed", "temperature"), [(0, 1.0), (1, 1.25), (2, 0.5)])
def test_loss_and_lora_gradient_of_packs_are_those_of_padded_unmerged_rows(
    seed: int, temperature: float, normalisation: str
) -> None:
    model = random_model(seed)
    drawn = random_update(model, np.random.default_rng(seed), temperature)
    expected = naive_loss(model, drawn, normalisation, temperature)
    expected.backward()  # type: ignore[no-untyped-call]
    slopes = gradient_of(model)
    assert slopes.abs().max() > 1e-3
    rows, counts = to_rows(drawn, NORMALISATIONS[normalisation]), []
    for budget, tree_size in ((10_000, 96), (25, 12), (1, 1)):
        packs = pack(rows, budget, tree_size)
        counts.append(len(packs))
        loss = 0.0
        for packed in packs:
            with torch.no_grad(), model.disable_adapter():
                reference = token_log_probs(model, packed, temperature)
            log_p, old = token_log_probs(model, packed, temperature), packed.old_log_probs
            limits = {"epsilon_low": EPSILON_LOW, "epsilon_up": EPSILON_UP}
            terms = policy_loss(log_p, old, reference, packed.weights, beta=BETA, **limits)
            terms.loss.backward()  # type: ignore[no-untyped-call]
            loss += terms.loss.item()
        assert loss == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
        assert (gradient_of(model) - slopes).abs().max() <= 1e-5 * slopes.abs().max()
    assert counts[0] == 1 < counts[1] < counts[2] == len(rows)


def test_the_random_updates_reach_both_sides_of_the_clip_and_merge_something() -> None:
    """Guards the test above: it would show little if all ratios stayed inside the clip, or if all rows were different."""
    sides: set[tuple[bool, bool]] = set()
    for seed, temperature in ((0, 1.0), (1, 1.25), (2, 0.5)):
        model = random_model(seed)
        drawn = random_update(model, np.random.default_rng(seed), temperature)
        completions = [(item.advantage > 0, step.completion) for item in drawn for step in item.episode.steps]
        rows = to_rows(drawn, NORMALISATIONS["token-mean"])
        tokens = build_tree([row.token_ids for row in rows])
        assert len(tokens) < sum(len(row.token_ids) for row in rows)
        for positive, completion in completions:
            with torch.no_grad():
                (scores,) = plain_log_probs(model, [(completion.prompt_ids, completion.token_ids)], temperature)
            ratios = torch.exp(scores - torch.tensor(completion.log_probs)).tolist()
            sides |= {(positive, w > 1) for w in ratios if not 1 - EPSILON_LOW < w < 1 + EPSILON_UP}
    assert sides == set(itertools.product([True, False], repeat=2))
