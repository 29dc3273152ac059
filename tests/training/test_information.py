"""Mutual information between prompt and reply: by hand, against plain forwards, and without effect on the run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel

from msgrpo_hub.episode import Group
from msgrpo_hub.games import stream
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.load_options import EngineName
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.information import PROMPTS, SHARE, information_of, mutual_information, sampled_steps
from msgrpo_hub.training.trainer import Trainer
from tests.training.test_batch import Ids, episode_of, plain_log_probs, random_model, step_of
from tests.training.trainers import farthest, trained, trainer_of


def group_of(pairs: Sequence[tuple[Ids, Ids]]) -> Group:
    """A group with one step in each episode."""
    episodes = tuple(episode_of(step_of(prompt, reply), member=j) for j, (prompt, reply) in enumerate(pairs))
    return Group(game_id="g", seed=0, episodes=episodes)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# ---- by hand


def test_replies_that_do_not_depend_on_prompts_have_none() -> None:
    assert mutual_information(torch.tensor([0.1, 0.6, 0.3]).log()[:, None].expand(3, 3)) == pytest.approx(0, abs=1e-7)


def test_a_reply_of_its_own_to_each_prompt_has_log_n() -> None:
    assert mutual_information(torch.eye(5).log()) == pytest.approx(math.log(5))


def test_two_prompts_by_hand() -> None:
    """Reply 1 has 0.8 after its own prompt and 0.2 after the other, reply 2 has 0.6 and 0.4."""
    table = torch.tensor([[0.8, 0.2], [0.4, 0.6]]).log()
    assert mutual_information(table) == pytest.approx((math.log(0.8 / 0.5) + math.log(0.6 / 0.5)) / 2)


def test_a_single_prompt_has_none() -> None:
    assert mutual_information(torch.tensor([[-3.0]])) == 0


# ---- which steps


def test_the_steps_have_distinct_prompts_and_the_replies_that_were_given_to_them() -> None:
    pairs = [((1, k % 12), (k,)) for k in range(SHARE * PROMPTS**2)]
    steps = sampled_steps([group_of(pairs[:100]), group_of(pairs[100:])], rng())
    assert len({step.prompt_ids for step in steps}) == len(steps) == PROMPTS
    assert all((step.prompt_ids, step.token_ids) in pairs for step in steps)
    assert len(sampled_steps([group_of(pairs[:3] * 20)], rng())) == 3


def test_its_pairs_are_at_most_a_quarter_of_the_replies_and_one_prompt_has_none(model: PeftModel) -> None:
    pairs = [((1, k), (2,)) for k in range(3, 60)]
    assert [len(sampled_steps([group_of(pairs[:n])], rng())) for n in (1, 15, 16, 35, 36)] == [1, 1, 2, 2, 3]
    assert information_of(Engine(model, frozenset({0})), [group_of(pairs[:15])], 1.0, 100, rng()) == 0.0


def test_the_reply_to_a_prompt_is_a_random_one() -> None:
    group = group_of([((1,), (reply,)) for reply in (2, 2, 2, 3)])
    counts = Counter(sampled_steps([group], np.random.default_rng(seed))[0].token_ids for seed in range(400))
    assert counts[(2,)] / 400 == pytest.approx(0.75, abs=0.1)


# ---- against plain forwards


@pytest.fixture(scope="module")
def model() -> PeftModel:
    return random_model(0)


def naive(model: PeftModel, pairs: Sequence[tuple[Ids, Ids]], temperature: float) -> float:
    """One forward pass for each reply after each prompt."""
    with torch.no_grad():
        p = [
            [math.exp(float(plain_log_probs(model, [(x, y)], temperature)[0].double().sum())) for x, _ in pairs] for _, y in pairs
        ]
    return float(np.mean([math.log(p[i][i] / np.mean(p[i])) for i in range(len(pairs))]))


PAIRS: dict[str, list[tuple[Ids, Ids]]] = {
    "rules before a state": [((1, 2, 3, k), (5, k, 0)) for k in range(4, 9)],
    "of several lengths": [((1, 2), (3,)), ((1, 2, 4), (3, 3, 7, 1)), ((1, 9, 9, 9, 9), (3, 3)), ((2,), (8, 0))],
    "one prompt is the beginning of another": [((1, 2), (3, 4)), ((1, 2, 3), (4, 5)), ((1, 2, 3, 4), (5,))],
    "two": [((1,), (2, 3)), ((4, 5), (2, 3))],
    "one": [((1, 2), (3, 4))],
}


@pytest.mark.parametrize("kind", ["fast", "plain"])
@pytest.mark.parametrize(("temperature", "budget"), [(1.0, 10_000), (1.0, 1), (1.4, 25)])
@pytest.mark.parametrize("pairs", PAIRS.values(), ids=PAIRS)
def test_the_estimate_is_that_of_one_forward_for_each_pair(
    pairs: list[tuple[Ids, Ids]], temperature: float, budget: int, kind: EngineName, model: PeftModel
) -> None:
    engine = Engine(model, frozenset(), kind=kind)
    played = pairs * SHARE * len(pairs)  # so many that every pair counts
    found = information_of(engine, [group_of(played)], temperature, budget, rng())
    assert found == pytest.approx(naive(model, pairs, temperature), abs=1e-5)
    assert (abs(found) > 1e-3) == (len(pairs) > 1)


# ---- in a run


@pytest.fixture
def config(tiny_model: Path) -> TrainConfig:
    return TrainConfig(
        model=str(tiny_model), updates=3, groups=2, group_size=8, selected_per_group=4, max_new_tokens=4, learning_rate=1e-2
    )


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_an_adapter_is_the_same_to_the_bit_whether_it_is_measured_or_not(
    dropout: float, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config, lora_dropout=dropout)
    measured = trained(config)
    monkeypatch.setattr(Trainer, "mutual_information", lambda *_: 0.0)
    assert farthest(measured, trained(config)) == 0


def test_an_update_measures_the_policy_that_it_acted_with(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, temperature=1.3))
    trainer.update(1)
    groups = trainer.act(trainer.starts.of_update(2))
    steps = sampled_steps(groups, stream(0, "information", 2))
    expected = naive(trainer.model, [(step.prompt_ids, step.token_ids) for step in steps], 1.3)
    before = trainer.mutual_information(groups, 2)
    assert before == pytest.approx(expected, abs=1e-5)
    assert trainer.update(2).metrics["mutual_information"] == before
    assert 1e-6 < abs(before) <= math.log(PROMPTS)
