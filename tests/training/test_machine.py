"""A run says how much memory it needs and does not start if a CPU has too little."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from torch import nn
from transformers import AutoTokenizer

from msgrpo_hub.episode import Step
from msgrpo_hub.errors import UserError
from msgrpo_hub.models import weights
from msgrpo_hub.models.engine import CAPACITY
from msgrpo_hub.models.weights import HAS_ONE_DNN
from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.training import TrainConfig, machine, train
from msgrpo_hub.training.machine import memory_needed
from tests.tiny import save_model
from tests.training.trainers import trainer_of

REPLY = 8


@pytest.fixture(params=[("qwen2", 256, 4), ("gemma3_text", 256, 4), ("qwen2", 64, 16)], ids=str)
def config(request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path) -> TrainConfig:
    """Of a model whose layers keep more than its logits, like real models; and of one whose trees are small."""
    family, width, heads = request.param
    size = {
        "hidden_size": width,
        "intermediate_size": 3 * width,
        "num_attention_heads": heads,
        "num_key_value_heads": 1,
        "head_dim": 64,
    }
    model = save_model(tmp_path / "model", AutoTokenizer.from_pretrained(tiny_model), family, seed=0, **size)
    groups = {"groups": 4, "group_size": 8, "selected_per_group": 8, "eval_episodes": 4, "test_episodes": 4}
    return TrainConfig(model=str(model), max_new_tokens=REPLY, token_budget=1024, **groups)


def test_the_estimate_is_close_to_the_bytes_that_a_backward_pass_keeps(config: TrainConfig) -> None:
    trainer, rng = trainer_of(config), np.random.default_rng(0)

    def full(step: Step) -> Step:
        tokens = tuple(rng.integers(100, 500, REPLY).tolist())
        return replace(step, completion=replace(step.completion, token_ids=tokens, log_probs=(-1.0,) * REPLY))

    episodes = [episode for group in trainer.act(trainer.starts.of_update(1)) for episode in group.episodes]
    played = [replace(episode, steps=tuple(map(full, episode.steps))) for episode in episodes]
    packs = trainer.packed([SelectedEpisode(episode, (1.0,) * len(episode.steps)) for episode in played])
    parameters = {p.untyped_storage().data_ptr() for p in trainer.model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes() * (storage.data_ptr() not in parameters)
        return tensor

    with trainer.engine.learning(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        trainer.engine.log_probs(max(packs, key=lambda packed: len(packed.trees)), 1.0).sum()
    needed = memory_needed(trainer.agent, trainer.starts.games.values(), episodes=1, learned=32, token_budget=1024)
    assert sum(kept.values()) / 1.12 < [*needed.values()][-1] < sum(kept.values()) * 1.12
    assert needed["weights"] == sum(p.nbytes for p in trainer.model.parameters() if not p.requires_grad)


def test_sampling_includes_cached_logits_and_the_copies_of_one_dnn(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(config)

    def sampling() -> float:
        games = trainer.starts.games.values()
        return memory_needed(trainer.agent, games, episodes=10**4, learned=1, token_budget=1)["sampling 512 replies"]

    full = sampling()
    monkeypatch.setattr(machine, "CAPACITY", CAPACITY - 10**6)
    assert full - sampling() == 10**6
    monkeypatch.setattr(weights, "LARGE", 1)
    linear = [layer for layer in trainer.model.modules() if type(layer) is nn.Linear]
    copies = HAS_ONE_DNN * sum(layer.weight.nbytes for layer in linear)
    assert sampling() == full - 10**6 + copies


def test_a_run_that_does_not_fit_is_refused_and_writes_nothing(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "free_memory", lambda _device: -psutil.Process().memory_info().rss)
    with pytest.raises(UserError, match=r"training needs about .* GB are free: lower --token-budget and --max-rows"):
        train(config, tmp_path / "run", show_progress=False)
    assert not (tmp_path / "run" / "config.toml").exists()
