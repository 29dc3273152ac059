"""Updates: what they change, and everything that must not change them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file

from msgrpo_hub.games import GAMES
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.msgrpo import token_mean
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.batch import pack, to_samples
from msgrpo_hub.training.metrics import read_metrics
from msgrpo_hub.training.trainer import Optimisation
from tests.training.trainers import farthest, trained, trainer_of, weights

pytestmark = pytest.mark.lowest

if TYPE_CHECKING:
    from tests.command import Command

LOGGED = {
    *("reward", "reward_std", "success", "zero_variance_groups", "unreadable_rate", "truncated_rate", "illegal_rate"),
    *("entropy", "kl", "clip_fraction", "gradient_norm", "learning_rate", "distinct_prompt_ratio"),
    *("near_draws", "composite_return", "composite_return_std", "temperature"),
    *("episodes_per_second", "tokens_per_second", "seconds_acting", "seconds_training", "memory_mb"),
}
"""What is measured in every update."""
TIMED = {"episodes_per_second", "tokens_per_second", "seconds_acting", "seconds_training", "seconds_validating", "memory_mb"}


@pytest.fixture
def config(tiny_model: Path) -> TrainConfig:
    return TrainConfig(
        model=str(tiny_model),
        updates=4,
        groups=2,
        group_size=8,
        selected_per_group=4,
        max_new_tokens=4,
        lora_rank=4,
        learning_rate=1e-2,
        eval_episodes=10,
        test_episodes=10,
    )


# ---- what an update does


def test_the_scheduled_rate_is_the_one_that_is_used(config: TrainConfig) -> None:
    """The first step of AdamW moves every parameter with a gradient by the learning rate."""
    trainer = trainer_of(replace(config, warmup=4))
    before = weights(trainer)
    metrics = trainer.update(1).metrics
    assert metrics["learning_rate"] == pytest.approx(0.0025)
    assert farthest(before, weights(trainer)) == pytest.approx(0.0025, rel=1e-3)


def test_a_small_random_model_learns_to_win_a_small_game(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GAMES, "Pond-v0", FrozenLake("Pond-v0", size=2, frozen_probability=1.0, horizon=4))
    pond = replace(config, game="Pond-v0", format_penalty=0.0, seed=3)  # which learns steadily, however its numbers are rounded
    trainer = trainer_of(replace(pond, updates=20, groups=4, group_size=16, selected_per_group=8))
    rewards = [trainer.update(index).metrics["reward"] for index in range(1, 21)]
    assert np.mean(rewards[:2]) < 0.2
    assert np.mean(rewards[-2:]) > 0.5


def test_groups_of_equal_returns_are_counted_and_left_out(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, groups=16, group_size=2, selected_per_group=1, max_new_tokens=1))
    groups = trainer.act(trainer.starts.of_update(1))
    unread = {group.seed: {sum(step.action is None for step in e.steps) - e.reward for e in group.episodes} for group in groups}
    equal = {seed for seed, counts in unread.items() if len(counts) == 1}
    assert 1 < len(equal) < 14
    assert [item.episode.seed for item in trainer.select(groups, 1).selected] == [
        group.seed for group in groups if group.seed not in equal
    ]
    assert trainer.update(1).metrics["zero_variance_groups"] == len(equal)


def test_an_update_that_draws_no_episode_changes_nothing(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, groups=1, group_size=2, selected_per_group=1, max_new_tokens=1))
    trainer.update(1)
    before, steps = weights(trainer), [float(state["step"]) for state in trainer.optimizer.state.values()]
    trainer.method = replace(trainer.method, format_penalty=0.0)
    metrics = trainer.update(2).metrics
    assert metrics["zero_variance_groups"] == 1
    assert metrics["gradient_norm"] == 0
    assert farthest(before, weights(trainer)) == 0
    assert [float(state["step"]) for state in trainer.optimizer.state.values()] == steps


def test_the_measured_rates_are_those_of_the_episodes(config: TrainConfig) -> None:
    trainer = trainer_of(config)
    groups = trainer.act(trainer.starts.of_update(1))
    metrics = trainer.update(1).metrics
    assert metrics.keys() >= LOGGED
    assert all(math.isfinite(value) for value in metrics.values())
    episodes = [episode for group in groups for episode in group.episodes]
    steps = [step for episode in episodes for step in episode.steps]
    unread = [step for step in steps if step.action is None]
    cut = [step for step in unread if step.completion.finish == "length"]
    unparsed = {id(episode): sum(step.action is None for step in episode.steps) for episode in episodes}
    returns = [[e.reward - config.format_penalty * unparsed[id(e)] for e in group.episodes] for group in groups]
    assert metrics["composite_return"] == pytest.approx(np.mean(returns))
    assert metrics["composite_return_std"] == pytest.approx(np.std(returns, axis=1).mean())
    assert metrics["near_draws"] == sum(step.completion.near_draws for step in steps)
    assert metrics["truncated_rate"] == len(cut) / len(steps)
    assert metrics["unreadable_rate"] == (len(unread) - len(cut)) / len(steps)
    assert metrics["illegal_rate"] == len([s for s in steps if s.action and not s.legal]) / len(steps) > 0
    assert metrics["reward"] == np.mean([sum(step.reward for step in episode.steps) for episode in episodes])
    assert metrics["distinct_prompt_ratio"] == len({step.observation for step in steps}) / len(steps)
    entropies = [entropy for step in steps for entropy in step.completion.entropies]
    assert metrics["entropy"] == pytest.approx(np.mean(entropies))


# ---- what must not matter


def test_the_token_budget_changes_neither_gradient_nor_adapter(config: TrainConfig) -> None:
    config = replace(config, seed=1)  # enough samples for three sizes of packs
    trainer = trainer_of(config)
    trainer.update(1)  # until then half of the gradient is zero
    groups = trainer.act(trainer.starts.of_update(2))
    samples = to_samples(trainer.select(groups, 1).selected, token_mean)
    gradients, counts = [], []
    for budget in (300, 450, 1_000_000):
        packs = pack(samples, budget)
        loss = torch.tensor(trainer.gradient(packs)["loss"])
        gradients.append({name: parameter.grad for name, parameter in trainer.parameters.items()} | {"": loss})
        counts.append(len(packs))
    assert counts[0] > counts[1] > counts[2] == 1
    assert max(gradient.abs().max().item() for gradient in gradients[0].values()) > 1e-2
    assert farthest(gradients[0], gradients[2]) < 1e-6
    assert farthest(gradients[1], gradients[2]) < 1e-6
    adapters = [trained(replace(config, token_budget=budget)) for budget in (200, 1_000_000)]
    assert farthest(*adapters) < 1e-5  # Adam divides by the root of its second moment, which enlarges rounding


def test_the_rows_that_act_together_do_not_change_the_adapter(config: TrainConfig) -> None:
    gradients = []
    for own in (replace(config, max_rows=3), config):
        trainer = trainer_of(own)
        selected = trainer.select(trainer.act(trainer.starts.of_update(1)), 1).selected
        trainer.gradient(pack(to_samples(selected, token_mean), 100_000))
        gradients.append({name: parameter.grad for name, parameter in trainer.parameters.items()})
    assert max(gradient.abs().max().item() for gradient in gradients[0].values()) > 1e-2
    assert farthest(*gradients) < 1e-6
    assert farthest(trained(replace(config, max_rows=3)), trained(config)) < 5e-6  # Adam enlarges rounding, as above


def test_gradient_checkpointing_recomputes_and_gives_the_same_adapter(config: TrainConfig) -> None:
    passes = []
    for checkpointing in (False, True):
        trainer = trainer_of(replace(config, gradient_checkpointing=checkpointing, beta=0.0, token_budget=100_000))
        groups = trainer.act(trainer.starts.of_update(1))
        samples = to_samples(trainer.select(groups, 1).selected, token_mean)
        calls: list[Any] = []
        layer = trainer.model.get_base_model().model.layers[0].mlp
        layer.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        trainer.gradient(pack(samples, 100_000))
        passes.append(len(calls))
    assert passes == [1, 2]
    assert farthest(trained(replace(config, gradient_checkpointing=True)), trained(config)) < 1e-6


def test_a_bfloat16_base_trains_a_float32_adapter(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, dtype="bfloat16"))
    before = weights(trainer)
    metrics = [trainer.update(index).metrics for index in (1, 2)]
    kinds = {name: parameter.dtype for name, parameter in trainer.model.named_parameters()}
    assert {kinds[name] for name in trainer.parameters} == {torch.float32}
    assert {kind for name, kind in kinds.items() if name not in trainer.parameters and "norm" not in name} == {torch.bfloat16}
    assert all(math.isfinite(value) for line in metrics for value in line.values())
    assert all(line["gradient_norm"] > 0 for line in metrics)
    assert farthest(before, weights(trainer)) > 1e-3


def test_two_processes_train_the_adapter_of_one(one_and_two: Path) -> None:
    runs = [one_and_two / "two", one_and_two / "one"]
    assert [json.loads((run / "summary.json").read_text())["processes"] for run in runs] == [2, 1]
    adapters = [load_file(run / "adapter" / "adapter_model.safetensors") for run in runs]
    assert farthest(*adapters) < 1e-6
    assert max(weight.abs().max().item() for name, weight in adapters[0].items() if "lora_B" in name) > 1e-2
    for a, b in zip(*(read_metrics(run / "metrics.jsonl") for run in runs), strict=True):
        assert {name: a[name] for name in a.keys() - TIMED} == pytest.approx(
            {name: b[name] for name in b.keys() - TIMED}, rel=1e-3
        )
    assert (one_and_two / "two.txt").read_text().count("95 % intervals") == 1


# ---- what is kept


@pytest.fixture(scope="module")
def run(msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that reports to TensorBoard."""
    folder = tmp_path_factory.mktemp("run") / "run"
    assert msgrpo("train", *flags, "--report-to", "tensorboard", "--output-dir", folder).code == 0
    return folder


def test_the_adapter_loads_with_peft_and_the_best_is_that_of_the_best_validation(run: Path) -> None:
    assert AutoPeftModelForCausalLM.from_pretrained(run / "adapter").peft_config["default"].r == 4
    rewards = {int(m["update"]): m["validation_reward"] for m in read_metrics(run / "metrics.jsonl") if "validation_reward" in m}
    assert list(rewards) == [2, 4, 6]
    last, best = (load_file(run / name / "adapter_model.safetensors") for name in ("adapter", "best"))
    assert (farthest(last, best) == 0) == (max(rewards, key=rewards.__getitem__) == 6)


def test_the_learning_rate_warms_up_and_decays_once_while_taught_and_once_after() -> None:
    shape = {"learning_rate": 0.1, "learning_rate_end": 0.2, "warmup": 2}
    rates = [Optimisation(updates=5, **shape).rate(index) for index in range(1, 6)]
    assert rates == pytest.approx([0.05, 0.08, 0.06, 0.04, 0.02])
    rates = [Optimisation(updates=8, taught=5, **shape).rate(index) for index in range(1, 9)]
    assert rates == pytest.approx([0.05, 0.08, 0.06, 0.04, 0.02, 0.05, 0.06, 0.02])
    assert Optimisation(learning_rate=0.1).rate(1) == 0.1
