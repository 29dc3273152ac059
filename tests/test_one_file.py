"""examples/one_file.py has the trainer's loss and gradient, plays like the library, and learns."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training.config import preset
from tests.training.runs import trainer_of


@pytest.fixture(scope="module")
def one_file() -> Any:
    spec = spec_from_file_location("one_file", Path(__file__).parents[1] / "examples" / "one_file.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_loss_and_gradient_of_an_update_are_the_trainers(one_file: Any) -> None:
    """Also with an adapter that is no longer its base, so that the KL penalty counts."""
    settings = one_file.Settings()
    small = {"selected_per_group": 3, "beta": settings.beta}
    trainer = trainer_of(replace(preset("quickstart"), **small))
    with torch.no_grad():
        for name, parameter in trainer.parameters.items():
            if "lora_B" in name:
                parameter.normal_(std=0.05)
    groups = trainer.act(trainer.starts.of_update(1))
    plan = trainer.select(groups, 1)
    for group, returns, advantages in zip(groups, plan.returns, plan.advantages, strict=True):
        episodes = [
            one_file.Episode([one_file.Step([], [], step.action, step.reward) for step in episode.steps])
            for episode in group.episodes
        ]
        composite = [one_file.composite_return(episode, settings.format_penalty) for episode in episodes]
        assert composite == pytest.approx(returns.tolist())
        assert one_file.group_advantages(composite).tolist() == pytest.approx(advantages.tolist(), abs=1e-6)
    ours = trainer.gradient(trainer.packed(plan.selected))
    expected = {name: parameter.grad.clone() for name, parameter in trainer.parameters.items()}  # type: ignore[union-attr]
    samples = [
        (one_file.Step([*step.completion.prompt_ids], [*step.completion.token_ids], step.action, step.reward), advantage)
        for item in plan.selected
        for step, advantage in zip(item.episode.steps, item.advantages, strict=True)
    ]
    trainer.optimizer.zero_grad()
    loss = one_file.gradient(trainer.model, samples, settings)
    assert len(samples) > 8
    assert ours["kl"] > 1e-4
    assert loss == pytest.approx(ours["loss"], abs=1e-6)
    assert max(gradient.abs().max().item() for gradient in expected.values()) > 1e-2
    for name, parameter in trainer.parameters.items():
        assert parameter.grad is not None
        assert (parameter.grad - expected[name]).abs().max().item() < 1e-6, name


def test_greedy_play_is_the_librarys(one_file: Any) -> None:
    settings, agent = one_file.Settings(), LanguageModel.from_pretrained("pocket", temperature=0.0, max_new_tokens=32)
    game, keys = one_file.make_game(settings.game), [(seed, member) for seed in (3, 4) for member in (0, 1)]
    theirs = play_episodes(game, agent, keys)
    ours = one_file.play(agent.model, agent.tokenizer, game, keys, settings, 0)
    for a, b in zip(ours, theirs, strict=True):
        assert [step.reply for step in a.steps] == [[*step.completion.token_ids] for step in b.steps]
        assert [step.prompt for step in a.steps] == [[*step.completion.prompt_ids] for step in b.steps]
        assert [(step.action, step.reward) for step in a.steps] == [(step.action, step.reward) for step in b.steps]
        assert a.success == b.success


@pytest.mark.slow
def test_it_learns_on_the_built_in_base_and_saves_its_adapter(one_file: Any, tmp_path: Path) -> None:
    *_, history = one_file.train(one_file.Settings(updates=7, output=str(tmp_path / "adapter")))
    assert history[0] < 0.1
    assert np.mean(history[-2:]) > 0.3
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
