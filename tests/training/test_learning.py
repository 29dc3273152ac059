"""How an update learns: optimiser steps on parts of it, credits by name and of one's own, and credits that learn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from msgrpo_hub.credit import CREDITS, CreditContext, StepAdvantages
from msgrpo_hub.episode import Group
from msgrpo_hub.errors import UserError
from msgrpo_hub.training import Callback, TrainConfig, train
from msgrpo_hub.training.config import load_config
from tests.command import Command
from tests.training.trainers import trainer_of

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tiny_model: Path) -> TrainConfig:
    small: dict[str, Any] = {"updates": 2, "groups": 2, "group_size": 8, "selected_per_group": 4, "max_new_tokens": 4}
    return TrainConfig(model=str(tiny_model), lora_rank=4, learning_rate=1e-2, eval_every=0, test_episodes=0, **small)


# ---- minibatches


def test_with_one_optimiser_step_the_clip_never_acts_and_with_several_it_does(config: TrainConfig) -> None:
    fast = replace(config, learning_rate=0.1, group_size=16, selected_per_group=16)
    fractions = {}
    for minibatches in (1, 4):
        trainer = trainer_of(replace(fast, minibatches=minibatches))
        fractions[minibatches] = max(trainer.update(index).metrics["clip_fraction"] for index in (1, 2))
    assert fractions[1] == 0
    assert fractions[4] > 0.01


def test_minibatches_deal_the_selected_episodes_out_and_normalise_each_part_by_itself(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, minibatches=3))
    parts: list[float] = []

    def count(packs: Any, *_: object) -> dict[str, float]:
        parts.append(sum(packed.weights.sum().item() for packed in packs))
        return {"loss": float(len(parts))}

    trainer.gradient = count  # type: ignore[method-assign]
    update = trainer.update(1)
    assert len(update.selected) == 8
    assert update.metrics["loss"] == pytest.approx((1 + 2 + 3) / 3)
    assert parts == pytest.approx([1.0, 1.0, 1.0])


# ---- credits


@pytest.mark.parametrize("credit", CREDITS)
@pytest.mark.parametrize("scale", ["std", "none"])
def test_every_credit_and_scale_trains(config: TrainConfig, credit: str, scale: str) -> None:
    update = trainer_of(replace(config, credit=credit, advantage_scale=scale)).update(1)
    assert update.metrics["gradient_norm"] > 0
    per_step = {len(set(item.advantages)) > 1 for item in update.selected if len(item.advantages) > 1}
    assert per_step == {False} if credit == "whole-episode" else True in per_step


def test_a_credit_that_is_a_plain_function_of_ones_own_is_typed_on_the_command_line(
    msgrpo: Command, flags: list[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(Path("examples/own_credit.py").read_text(encoding="utf-8"), encoding="utf-8")
    arguments = ["train", *flags, "--updates", "2", "--test-episodes", "0", "--save-rollouts", "--output-dir", "run"]
    done = msgrpo(*arguments, "--credit", "mine:discounted", folder=tmp_path)
    assert done.code == 0, done.err
    assert 'credit = "mine:discounted"' in (tmp_path / "run" / "config.toml").read_text(encoding="utf-8")
    again = msgrpo("train", "--config", "run/config.toml", "--output-dir", "again", folder=tmp_path)
    assert again.code == 2
    assert again.said == [
        "error: credit = 'mine:discounted' in run/config.toml would import code: expected --credit mine:discounted typed as well"
    ]
    typed = msgrpo(
        "train", "--config", "run/config.toml", "--credit", "mine:discounted", "--output-dir", "again", folder=tmp_path
    )
    assert typed.code == 0, typed.err


def test_a_configuration_from_anywhere_imports_nothing(tmp_path: Path) -> None:
    for name in ("credit", "sampler", "loss_normalisation", "advantage_scale", "prompt_format"):
        (tmp_path / "config.toml").write_text(f'{name} = "antigravity:anything"\n', encoding="utf-8")
        with pytest.raises(UserError, match="would import code"):
            load_config(tmp_path / "config.toml")


# ---- a credit that learns


class Critic:
    """A baseline for each turn, learned over the updates: a critic as small as one can be."""

    def __init__(self) -> None:
        self.values = torch.zeros(32)

    def advantages(self, groups: Sequence[Group], _: Sequence[Tensor], context: CreditContext) -> StepAdvantages:
        return [[context.returns_to_go(e) - self.values[: len(e.steps)] for e in group.episodes] for group in groups]

    def update(self, groups: Sequence[Group], _: Sequence[Tensor], context: CreditContext) -> Mapping[str, float]:
        for group in groups:
            for episode in group.episodes:
                to_go = context.returns_to_go(episode)
                self.values[: len(to_go)] += 0.1 * (to_go - self.values[: len(to_go)])
        return {"start": self.values[0].item()}

    def state_dict(self) -> dict[str, Tensor]:
        return {"values": self.values}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.values = state["values"].clone()


class Stop(Callback):
    """Ends a run after an update."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_update(self, update: Any) -> None:
        if update.index > self.after:
            raise KeyboardInterrupt


def test_what_a_credit_has_learned_is_in_the_checkpoint_and_a_run_resumes_with_it(config: TrainConfig, tmp_path: Path) -> None:
    critic = replace(config, updates=4, credit=f"{__name__}:Critic")
    train(critic, tmp_path / "whole", show_progress=False)
    with pytest.raises(KeyboardInterrupt):
        train(critic, tmp_path / "parts", show_progress=False, callbacks=[Stop(2)])
    train(critic, tmp_path / "parts", show_progress=False, resume=True)
    whole, parts = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("whole", "parts")
    )
    assert [line["credit/start"] for line in whole] == [line["credit/start"] for line in parts]
    assert len({line["credit/start"] for line in whole}) == 4
    adapters = [(tmp_path / name / "adapter" / "adapter_model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert adapters[0] == adapters[1]
