"""Updates: learning, metrics, credits, and settings that must not change the adapter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file
from torch import Tensor

from msgrpo_hub.credit import CREDITS, CreditContext, StepAdvantages
from msgrpo_hub.episode import Group
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.msgrpo import LOSS_NORMALISATIONS
from msgrpo_hub.training import Callback, TrainConfig, train
from msgrpo_hub.training.batch import Pack, pack, to_samples
from msgrpo_hub.training.config import load_config
from msgrpo_hub.training.summary import read_metrics
from msgrpo_hub.training.trainer import Trainer, scheduled_rate
from tests.training.runs import WEIGHTS, Stop, farthest, metrics, summary_of, trained, trainer_of, weights

pytestmark = pytest.mark.lowest

if TYPE_CHECKING:
    from tests.command import Command

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
LOGGED = {
    *("reward", "reward_std", "success", "zero_variance_groups", "unreadable_rate", "truncated_rate", "illegal_rate"),
    *("entropy", "kl", "clip_fraction", "gradient_norm", "learning_rate", "distinct_prompt_ratio"),
    *("near_draws", "composite_return", "composite_return_std", "temperature"),
    *("episodes_per_second", "tokens_per_second", "seconds_acting", "seconds_training", "memory_mb"),
}
"""The metrics of every update."""


# ---- updates


def test_the_learning_rate_warms_up_and_decays_once_while_taught_and_once_after() -> None:
    def rates(updates: int, **taught: Any) -> list[float]:
        config = TrainConfig(updates=updates, learning_rate=0.1, learning_rate_end=0.2, warmup=2, **taught)
        return [scheduled_rate(config, index) for index in range(1, updates + 1)]

    assert rates(5) == pytest.approx([0.05, 0.08, 0.06, 0.04, 0.02])
    assert rates(8, teacher="optimal", taught=5) == pytest.approx([0.05, 0.08, 0.06, 0.04, 0.02, 0.05, 0.06, 0.02])
    assert rates(8, teacher="optimal", taught=5, sft_learning_rate=1.0)[3:] == pytest.approx([0.4, 0.2, 0.05, 0.06, 0.02])
    assert scheduled_rate(TrainConfig(learning_rate=0.1), 1) == 0.1


def test_a_small_random_model_learns_to_win_a_small_game(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GAMES, "Pond-v0", FrozenLake("Pond-v0", size=2, frozen_probability=1.0, horizon=4))
    pond = replace(config, game="Pond-v0", format_penalty=0.0, seed=3)  # learns steadily under any rounding
    trainer = trainer_of(replace(pond, updates=20, groups=4, group_size=16, selected_per_group=8))
    rewards = [trainer.update(index).metrics["reward"] for index in range(1, 21)]
    assert np.mean(rewards[:2]) < 0.2
    assert np.mean(rewards[-2:]) > 0.5


def test_groups_of_equal_returns_are_counted_and_left_out(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, groups=16, group_size=2, selected_per_group=1, max_new_tokens=1))
    groups = trainer.act(trainer.starts.of_update(1))
    unread = {group.seed: {sum(step.action is None for step in e.steps) - e.reward for e in group.episodes} for group in groups}
    differing = [seed for seed, counts in unread.items() if len(counts) > 1]
    assert 2 < len(differing) < 15
    assert [item.episode.seed for item in trainer.select(groups, 1).selected] == differing
    assert trainer.update(1).metrics["zero_variance_groups"] == 16 - len(differing)


def test_an_update_without_selected_episodes_changes_nothing(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, groups=1, group_size=2, selected_per_group=1, max_new_tokens=1))
    trainer.update(1)
    before, steps = weights(trainer), [float(state["step"]) for state in trainer.optimizer.state.values()]
    trainer.config = replace(trainer.config, format_penalty=0.0)
    line = trainer.update(2).metrics
    assert (line["zero_variance_groups"], line["gradient_norm"]) == (1, 0)
    assert farthest(before, weights(trainer)) == 0
    assert [float(state["step"]) for state in trainer.optimizer.state.values()] == steps


def test_the_measured_rates_are_those_of_the_episodes(config: TrainConfig) -> None:
    trainer = trainer_of(config)
    groups = trainer.act(trainer.starts.of_update(1))
    line = trainer.update(1).metrics
    assert line.keys() >= LOGGED
    assert all(math.isfinite(value) for value in line.values())
    episodes = [episode for group in groups for episode in group.episodes]
    steps = [step for episode in episodes for step in episode.steps]
    unread = [step for step in steps if step.action is None]
    truncated = [step for step in unread if step.completion.finish == "length"]
    unparsed = {id(episode): sum(step.action is None for step in episode.steps) for episode in episodes}
    returns = [[e.reward - config.format_penalty * unparsed[id(e)] for e in group.episodes] for group in groups]
    assert line["composite_return"] == pytest.approx(np.mean(returns))
    assert line["composite_return_std"] == pytest.approx(np.std(returns, axis=1).mean())
    assert line["near_draws"] == sum(step.completion.near_draws for step in steps)
    assert line["truncated_rate"] == len(truncated) / len(steps)
    assert line["unreadable_rate"] == (len(unread) - len(truncated)) / len(steps)
    assert line["illegal_rate"] == len([s for s in steps if s.action and not s.legal]) / len(steps) > 0
    assert line["reward"] == np.mean([sum(step.reward for step in episode.steps) for episode in episodes])
    assert line["distinct_prompt_ratio"] == len({step.observation for step in steps}) / len(steps)
    assert line["entropy"] == pytest.approx(np.mean([entropy for step in steps for entropy in step.completion.entropies]))


def test_the_importance_ratio_is_1_at_the_temperature_of_the_rollouts(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, temperature=1.4))
    assert trainer.update(1).metrics["temperature"] == trainer.agent.temperature == 1.4
    packs = trainer.packed(trainer.select(trainer.act(trainer.starts.of_update(2)), 2).selected)

    def largest_log_ratio(temperature: float) -> float:
        with torch.no_grad(), trainer.engine.learning():
            ratios = [trainer.engine.log_probs(p, temperature)[p.tokens] - p.old_log_probs for p in packs]
        return max(float(ratio.abs().max()) for ratio in ratios)

    assert largest_log_ratio(1.4) < 1e-5
    assert largest_log_ratio(1.0) > 1e-2


def test_with_one_optimiser_step_the_clip_never_acts_and_with_several_it_does(config: TrainConfig) -> None:
    fractions = {}
    for minibatches in (1, 4):
        fast = replace(config, learning_rate=0.1, group_size=16, selected_per_group=16, minibatches=minibatches)
        trainer = trainer_of(fast)
        fractions[minibatches] = max(trainer.update(index).metrics["clip_fraction"] for index in (1, 2))
    assert fractions[1] == 0
    assert fractions[4] > 0.01


def test_the_scheduled_rate_is_the_one_that_is_used(config: TrainConfig) -> None:
    """The first step of AdamW moves every parameter with a gradient by the learning rate."""
    trainer = trainer_of(replace(config, warmup=4))
    before = weights(trainer)
    assert trainer.update(1).metrics["learning_rate"] == pytest.approx(0.0025)
    assert farthest(before, weights(trainer)) == pytest.approx(0.0025, rel=1e-3)


def test_minibatches_share_out_the_selected_episodes_and_normalise_each_part_by_itself(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, parts = trainer_of(replace(config, minibatches=3)), list[float]()

    def count(packs: Any, *_: object) -> dict[str, float]:
        parts.append(sum(packed.weights.sum().item() for packed in packs))
        return {"loss": float(len(parts))}

    monkeypatch.setattr(trainer, "gradient", count)
    update = trainer.update(1)
    assert len(update.selection.selected) == 8
    assert update.metrics["loss"] == pytest.approx((1 + 2 + 3) / 3)
    assert parts == pytest.approx([1.0, 1.0, 1.0])


# ---- credits


@pytest.mark.parametrize("credit", CREDITS)
@pytest.mark.parametrize("scale", ["std", "none"])
def test_every_credit_and_scale_trains(config: TrainConfig, credit: str, scale: str) -> None:
    update = trainer_of(replace(config, credit=credit, advantage_scale=scale)).update(1)
    assert update.metrics["gradient_norm"] > 0
    per_step = {len(set(item.advantages)) > 1 for item in update.selection.selected if len(item.advantages) > 1}
    assert per_step == {False} if credit == "whole-episode" else True in per_step


@pytest.mark.slow
def test_your_own_credit_is_a_function_typed_on_the_command_line(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(Path("examples/own_credit.py").read_text(encoding="utf-8"), encoding="utf-8")
    own = ["--credit", "mine:discounted"]
    first = ["train", *flags, "--updates", "2", "--test-episodes", "0", "--save-rollouts", "--output-dir", "run", *own]
    done = msgrpo(*first, folder=tmp_path)
    assert done.code == 0, done.err
    assert load_config(tmp_path / "run" / "config.toml", {"credit": own[1]}).credit == own[1]
    again = ["train", "--config", "run/config.toml", "--output-dir", "again"]
    refused, typed = msgrpo(*again, folder=tmp_path), msgrpo(*again, *own, folder=tmp_path)
    assert (refused.code, len(refused.said)) == (2, 1)
    assert "would import code: expected --credit mine:discounted typed as well" in refused.err
    assert typed.code == 0, typed.err


@pytest.mark.parametrize("name", ["credit", "sampler", "loss_normalisation", "advantage_scale", "prompt_format"])
def test_a_configuration_from_anywhere_imports_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f'{name} = "antigravity:anything"\n', encoding="utf-8")
    with pytest.raises(UserError, match="would import code"):
        load_config(tmp_path / "config.toml")
    assert getattr(load_config(tmp_path / "config.toml", {name: "builtins:len"}), name) == "builtins:len"


class Critic:
    """A learned baseline for each turn."""

    def __init__(self) -> None:
        self.values = torch.zeros(32)

    def __call__(self, groups: Sequence[Group], _: Sequence[Tensor], context: CreditContext) -> StepAdvantages:
        return [[context.returns_to_go(e) - self.values[: len(e.steps)] for e in group.episodes] for group in groups]

    def update(self, groups: Sequence[Group], _: Sequence[Tensor], context: CreditContext) -> Mapping[str, float]:
        for episode in (episode for group in groups for episode in group.episodes):
            to_go = context.returns_to_go(episode)
            self.values[: len(to_go)] += 0.1 * (to_go - self.values[: len(to_go)])
        return {"start": self.values[0].item()}

    def state_dict(self) -> dict[str, Tensor]:
        return {"values": self.values}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.values = state["values"].clone()


@pytest.mark.slow
def test_a_run_resumes_with_the_state_of_its_credit(config: TrainConfig, tmp_path: Path) -> None:
    critic = replace(config, credit=f"{__name__}:Critic", eval_every=0, test_episodes=0)
    train(critic, tmp_path / "whole", show_progress=False)
    with pytest.raises(KeyboardInterrupt):
        train(critic, tmp_path / "parts", show_progress=False, callbacks=[Stop(3)])
    train(critic, tmp_path / "parts", show_progress=False, resume=True)
    assert len({line["credit/start"] for line in metrics(tmp_path / "whole")}) == 4
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "parts")
    adapters = [(tmp_path / name / "adapter" / WEIGHTS).read_bytes() for name in ("whole", "parts")]
    assert adapters[0] == adapters[1]


# ---- what must not matter


def packs_of(trainer: Trainer, index: int, budget: int) -> list[Pack]:
    selected = trainer.select(trainer.act(trainer.starts.of_update(index)), 1).selected
    return pack(to_samples(selected, LOSS_NORMALISATIONS["token-mean"]), budget)


def gradients(trainer: Trainer, packs: Sequence[Pack]) -> dict[str, Tensor]:
    loss = trainer.gradient(packs)["loss"]
    found = {name: parameter.grad.clone() for name, parameter in trainer.parameters.items()}  # type: ignore[union-attr]
    assert max(gradient.abs().max().item() for gradient in found.values()) > 1e-2
    return found | {"": torch.tensor(loss)}


def test_the_token_budget_changes_neither_gradient_nor_adapter(config: TrainConfig) -> None:
    config = replace(config, seed=1)  # enough samples for three sizes of packs
    trainer = trainer_of(config)
    trainer.update(1)  # half of the first gradient is zero
    packs = [packs_of(trainer, 2, budget) for budget in (60, 200, 1_000_000)]
    assert len(packs[0]) > len(packs[1]) > len(packs[2]) == 1
    small, middle, whole = (gradients(trainer, own) for own in packs)
    assert max(farthest(small, whole), farthest(middle, whole)) < 1e-6
    adapters = [trained(replace(config, token_budget=budget)) for budget in (60, 1_000_000)]
    assert farthest(*adapters) < 1e-5  # Adam divides by the root of its second moment, which enlarges rounding


def test_gradient_checkpointing_recomputes_and_gives_the_same_adapter(config: TrainConfig) -> None:
    passes = []
    for checkpointing in (False, True):
        trainer = trainer_of(replace(config, gradient_checkpointing=checkpointing, beta=0.0))
        assert not any(module._forward_hooks for module in trainer.model.modules())
        packs, calls = packs_of(trainer, 1, 100_000), list[int]()
        layer = trainer.model.get_base_model().model.layers[0].mlp
        layer.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        trainer.gradient(packs)
        passes.append(len(calls))
    assert passes == [2, 4]  # the shared prefix and one pack
    assert farthest(trained(replace(config, gradient_checkpointing=True)), trained(config)) < 1e-6


def test_a_bfloat16_base_trains_a_float32_adapter(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, dtype="bfloat16"))
    before, lines = weights(trainer), [trainer.update(index).metrics for index in (1, 2)]
    kinds = {name: parameter.dtype for name, parameter in trainer.model.named_parameters()}
    assert {kinds[name] for name in trainer.parameters} == {torch.float32}
    assert {kind for name, kind in kinds.items() if name not in trainer.parameters and "norm" not in name} == {torch.bfloat16}
    assert all(math.isfinite(value) for line in lines for value in line.values())
    assert all(line["gradient_norm"] > 0 for line in lines)
    assert farthest(before, weights(trainer)) > 1e-3


def test_two_processes_train_the_adapter_of_one(one_and_two: Path) -> None:
    runs = [one_and_two / "two", one_and_two / "one"]
    assert [summary_of(run)["processes"] for run in runs] == [2, 1]
    two, one = (load_file(run / "adapter" / WEIGHTS) for run in runs)
    assert farthest(two, one) < 1e-6
    assert max(weight.abs().max().item() for name, weight in two.items() if "lora_B" in name) > 1e-2
    for a, b in zip(*map(metrics, runs), strict=True):
        assert a == pytest.approx(b, rel=1e-3)
    assert (one_and_two / "two.txt").read_text().count("95 % intervals") == 1


# ---- a whole run


def test_the_adapter_loads_with_peft_and_the_best_is_that_of_the_best_validation(
    msgrpo: Command, flags: list[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = msgrpo("train", *flags, "--report-to", "tensorboard", "--output-dir", run)
    assert done.code == 0, done.err
    assert [*run.rglob("events.out.tfevents*")]
    assert AutoPeftModelForCausalLM.from_pretrained(run / "adapter").peft_config["default"].r == 4
    rewards = {int(m["update"]): m["validation_reward"] for m in read_metrics(run / "metrics.jsonl") if "validation_reward" in m}
    assert list(rewards) == [2, 4, 6]
    last, best = (load_file(run / name / WEIGHTS) for name in ("adapter", "best"))
    assert (farthest(last, best) == 0) == (max(rewards, key=rewards.__getitem__) == 6)


class Diary(Callback):
    """Records its calls and the games of each update."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def on_start(self, run: Any) -> None:
        self.calls.append((run.updates, run.folder.name))

    def on_update(self, update: Any) -> None:
        self.calls.append((update.index, sorted(group.game_id for group in update.groups)))
        assert all(len(group.episodes) == 4 for group in update.groups)
        assert ("validation_reward" in update.metrics) == (update.index == 2)

    def on_end(self, summary: Mapping[str, Any]) -> None:
        self.calls.append(summary["game"])


@pytest.mark.slow
def test_a_run_over_two_games_learns_from_both_and_calls_its_callbacks(config: TrainConfig, tmp_path: Path) -> None:
    own = replace(config, game=f"{LAKE}=3,{SNAKE}=1", updates=2, groups=4, group_size=4, eval_every=2, test_episodes=3)
    diary, run = Diary(), tmp_path / "run"
    summary = train(own, run, show_progress=False, callbacks=[diary])
    assert diary.calls == [(0, "run"), (1, [LAKE] * 3 + [SNAKE]), (2, [LAKE] * 3 + [SNAKE]), LAKE]
    *_, line = read_metrics(run / "metrics.jsonl")
    assert line.keys() >= {f"{name}/{game}" for name in ("reward", "success", "validation_reward") for game in (LAKE, SNAKE)}
    mean = (line[f"validation_reward/{LAKE}"] + line[f"validation_reward/{SNAKE}"]) / 2
    assert line["validation_reward"] == pytest.approx(mean)
    [other] = summary["other_games"]
    assert (summary["game"], other["game"]) == (LAKE, SNAKE)
    assert other["adapter"]["episodes"] == summary["adapter"]["episodes"] == 3
