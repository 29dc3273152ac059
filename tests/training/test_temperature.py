"""`--temperature adaptive`: the rule by hand, learning at the temperature of the play, and runs that go on with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from msgrpo_hub.errors import UserError
from msgrpo_hub.hub.rollout_card import RolloutCard, Statistics, render_rollouts
from msgrpo_hub.storage.tables import Origin, Rollout
from msgrpo_hub.training import Callback, TrainConfig, train
from msgrpo_hub.training.callbacks import Update
from msgrpo_hub.training.config import load_config
from msgrpo_hub.training.metrics import read_metrics
from msgrpo_hub.training.rollout_log import blocks
from msgrpo_hub.training.run_folder import fingerprint
from msgrpo_hub.training.temperature import COLDEST, HOTTEST, PATIENCE, AdaptiveTemperature
from msgrpo_hub.training.trainer import Trainer
from tests.files import sha256
from tests.training.interrupted import metrics
from tests.training.test_batch import episode_of, step_of
from tests.training.trainers import trainer_of

MIXED, FAILED, SOLVED = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0])


def after(updates: list[list[Tensor]], largest: float = 1.0) -> list[float]:
    """The temperature after each of some updates, each given as the returns of its groups."""
    adaptive, found = AdaptiveTemperature(), []
    for returns in updates:
        adaptive.update(returns, [largest] * len(returns))
        found.append(adaptive.value)
    return found


# ---- the rule


def test_it_rises_by_a_tenth_once_the_mean_return_has_not_risen_for_five_updates() -> None:
    assert after([[MIXED]] * (PATIENCE + 6)) == pytest.approx([1.0] * PATIENCE + [1.1, 1.21, 1.331, 1.4641, HOTTEST, HOTTEST])


def test_it_falls_by_as_much_while_the_mean_return_rises_and_not_below_1() -> None:
    rising = [[torch.tensor([0.0, float(k)])] for k in range(2, 9)]
    found = after([[MIXED]] * (PATIENCE + 2) + rising, largest=torch.inf)
    assert found[PATIENCE + 1 :] == pytest.approx([1.21, 1.1, *[COLDEST] * 6])
    assert after(rising, largest=torch.inf) == [COLDEST] * len(rising)


def test_groups_without_variance_raise_it_at_once_if_they_are_half_of_all() -> None:
    assert after([[FAILED, FAILED], [FAILED, torch.tensor([0.0, 9.0])]], largest=torch.inf) == pytest.approx([1.1, 1.21])
    assert after([[FAILED, MIXED, MIXED]]) == [COLDEST]


def test_solved_groups_do_not_stagnate_but_equal_returns_below_the_largest_do() -> None:
    assert after([[SOLVED, MIXED]] * 20) == [COLDEST] * 20
    assert after([[SOLVED, MIXED]] * 20, largest=2.0)[-1] == HOTTEST


def test_a_level_reached_at_a_lower_temperature_is_forgotten() -> None:
    """After 1 the mean return is 0.8, 0.64, …, and the best falls a tenth of the way there in each update."""
    adaptive = AdaptiveTemperature()
    for level in (1.0, 0.0, 0.0):
        adaptive.update([torch.full((2,), level)], [torch.inf])
    assert (adaptive.mean, adaptive.best) == pytest.approx((0.64, 0.98 + 0.1 * (0.64 - 0.98)))
    for _ in range(60):
        adaptive.update([MIXED], [torch.inf])
    assert adaptive.best == pytest.approx(0.5, abs=0.01)


def test_a_restored_state_goes_on_alike() -> None:
    first = AdaptiveTemperature()
    rng = np.random.default_rng(0)
    updates = [[torch.from_numpy(rng.random(4))] for _ in range(30)]
    for returns in updates[:20]:
        first.update(returns, [1.0])
    second = AdaptiveTemperature()
    second.restore(first.state())
    for returns in updates[20:]:
        first.update(returns, [1.0])
        second.update(returns, [1.0])
    assert first == second
    assert first.value > COLDEST


# ---- in a run


@pytest.fixture
def config(tiny_model: Path) -> TrainConfig:
    """Its replies are one token long, so most groups have no variance."""
    return TrainConfig(
        model=str(tiny_model),
        temperature="adaptive",
        updates=6,
        groups=2,
        group_size=2,
        selected_per_group=1,
        max_new_tokens=1,
        lora_rank=4,
        learning_rate=1e-2,
        eval_every=0,
        test_episodes=2,
    )


def largest_log_ratio(trainer: Trainer, index: int) -> float:
    """The largest |log p − log p_old| of the tokens that update `index` would learn from, as the loss computes them."""
    selected = trainer.select(trainer.act(trainer.starts.of_update(index)), index).selected
    found = []
    for packed in trainer.packed(selected):
        with torch.no_grad(), trainer.engine.learning():
            log_probs = trainer.engine.log_probs(packed, trainer.temperature)
        found.append(float((log_probs[packed.tokens] - packed.old_log_probs).abs().max()))
    return max(found)


def test_the_importance_ratio_is_1_at_the_temperature_of_the_play(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, max_new_tokens=4, group_size=8, selected_per_group=8))
    assert trainer.adaptive
    trainer.adaptive.value = 1.4
    assert trainer.update(1).metrics["temperature"] == trainer.agent.temperature == 1.4
    assert largest_log_ratio(trainer, 2) < 1e-5
    trainer.temperature = 1.0
    assert largest_log_ratio(trainer, 2) > 1e-2


@pytest.mark.parametrize("minibatches", [1, 2])
def test_one_step_clips_nothing_and_its_loss_is_that_of_the_temperature(config: TrainConfig, minibatches: int) -> None:
    trainer = trainer_of(replace(config, minibatches=minibatches, max_new_tokens=4, group_size=8, selected_per_group=8))
    assert trainer.adaptive
    trainer.adaptive.value = 1.4
    clipped = [trainer.update(index).metrics["clip_fraction"] for index in (1, 2)]
    assert (max(clipped) == 0) == (minibatches == 1)


def test_every_update_acts_at_what_the_updates_before_it_led_to(config: TrainConfig) -> None:
    trainer, rule, acted = trainer_of(config), AdaptiveTemperature(), []
    for index in range(1, 7):
        update = trainer.update(index)
        assert update.metrics["temperature"] == rule.value
        returns = [torch.tensor([e.reward - e.unreadable for e in group.episodes]) for group in update.groups]
        rule.update(returns, [1.0, 1.0])
        acted.append(update.metrics["temperature"])
    assert acted[0] == COLDEST < max(acted)


def test_a_fixed_temperature_is_measured_too(config: TrainConfig) -> None:
    assert trainer_of(replace(config, temperature=1.25)).update(1).metrics["temperature"] == 1.25


class Stopped(Callback):
    """Ends a run in its fourth update, before its checkpoint."""

    def on_update(self, update: Update) -> None:
        if update.index == 4:
            raise KeyboardInterrupt


def test_a_run_that_was_stopped_goes_on_bit_for_bit_with_its_temperature(config: TrainConfig, tmp_path: Path) -> None:
    config = replace(config, save_rollouts=True)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(config, whole, show_progress=False)
    with pytest.raises(KeyboardInterrupt):
        train(config, stopped, show_progress=False, callbacks=[Stopped()])
    assert len(read_metrics(stopped / "metrics.jsonl")) == 3
    train(config, stopped, show_progress=False, resume=True)
    assert metrics(stopped) == metrics(whole)
    assert metrics(stopped)[3]["temperature"] > COLDEST
    weights = Path("adapter") / "adapter_model.safetensors"
    assert sha256(stopped / weights) == sha256(whole / weights)
    assert blocks(stopped)[0].temperature is None


@pytest.mark.parametrize(("temperature", "words"), [(None, "adaptive temperature"), (1.25, "temperature 1.25")])
def test_the_card_of_its_episodes_says_so(temperature: float | None, words: str) -> None:
    origin = Origin(split="train", player="training", run="0", base="folder", temperature=temperature, max_new_tokens=32)
    statistics = Statistics()
    statistics.tallies[origin, "FrozenLake-NotSlippery-v1"].add(Rollout(episode=episode_of(step_of((1,), (2,)))))
    card = RolloutCard(repo_id="ada/lake", statistics=statistics, shown=("training",))
    assert f", {words}, at most 32 tokens a reply" in render_rollouts(card)


# ---- the setting


def test_it_is_part_of_a_run_and_a_whole_number_is_the_same_temperature(tmp_path: Path) -> None:
    def read(line: str) -> TrainConfig:
        (tmp_path / "config.toml").write_text(line)
        return load_config(tmp_path / "config.toml")

    adaptive, whole = read('temperature = "adaptive"'), read("temperature = 1")
    assert (adaptive.first_temperature, adaptive.fixed_temperature) == (COLDEST, None)
    assert fingerprint(whole) == fingerprint(TrainConfig()) != fingerprint(adaptive)
    assert whole.fixed_temperature == whole.first_temperature == 1.0


@pytest.mark.parametrize("value", ['"hot"', "0.0", "true", "[1.0]", "inf"])
def test_another_temperature_is_refused_in_one_line(value: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f"temperature = {value}")
    with pytest.raises(UserError, match=r"temperature = .*adaptive") as caught:
        load_config(tmp_path / "config.toml")
    assert "\n" not in str(caught.value)
