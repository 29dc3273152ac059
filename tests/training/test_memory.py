"""A run says how much memory it needs, and does not begin where that is not free."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from transformers import AutoTokenizer

from msgrpo_hub.agent.policy import format_of
from msgrpo_hub.episode import Step
from msgrpo_hub.errors import UserError
from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.players.sample_play import longest_prompts
from msgrpo_hub.training import TrainConfig, memory, train
from msgrpo_hub.training.memory import check_memory, memory_needed
from msgrpo_hub.training.trainer import Trainer
from tests.tiny import save_model
from tests.training.trainers import trainer_of

REPLY = 8


@pytest.fixture(params=["qwen2", "gemma3_text"])
def config(request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path) -> TrainConfig:
    """Of a model whose layers keep more than its logits, as in real models."""
    size = {"hidden_size": 256, "intermediate_size": 768, "num_key_value_heads": 1, "head_dim": 64}
    model = save_model(tmp_path / "model", AutoTokenizer.from_pretrained(tiny_model), request.param, seed=0, **size)
    groups = {"groups": 4, "group_size": 8, "selected_per_group": 8, "eval_episodes": 4, "test_episodes": 4}
    return TrainConfig(model=str(model), max_new_tokens=REPLY, token_budget=1024, **groups)


def parts(trainer: Trainer, **changes: Any) -> dict[str, float]:
    """What a changed configuration needs."""
    [game] = trainer.starts.games.values()
    prompts = trainer.agent.encode(longest_prompts([game], format_of(trainer.agent)))
    needed = memory_needed(replace(trainer.config, **changes), trainer.agent, prompts, game.horizon)
    return dict(zip(("program", "weights", "adapter", "sampling", "training"), needed.values(), strict=True))


def kept_bytes(trainer: Trainer) -> int:
    """The most bytes that a forward pass of an update of full replies keeps for its backward pass, beside the parameters."""
    rng = np.random.default_rng(0)

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
        loss = trainer.loss(max(packs, key=lambda packed: len(packed.trees))).loss
    assert loss.isfinite()
    return sum(kept.values())


def test_what_is_told_of_a_batch_is_what_its_backward_pass_keeps(config: TrainConfig) -> None:
    trainer = trainer_of(config)
    kept = kept_bytes(trainer)
    assert kept / 1.25 < parts(trainer)["training"] < kept * 1.25, kept


def test_weights_and_optimiser_are_counted_and_smaller_batches_need_less(config: TrainConfig) -> None:
    trainer = trainer_of(config)
    usual = parts(trainer)
    assert usual["weights"] == sum(p.nbytes for p in trainer.model.parameters() if not p.requires_grad)
    assert usual["adapter"] == 4 * sum(p.nbytes for p in trainer.parameters.values())
    assert parts(trainer, token_budget=512)["training"] < usual["training"]
    assert parts(trainer, gradient_checkpointing=True)["training"] < usual["training"]
    assert parts(trainer, max_rows=4)["sampling"] < usual["sampling"]


def test_the_need_and_what_is_free_are_told_unless_any_machine_has_it(
    config: TrainConfig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(config)
    check_memory(config, trainer.agent, trainer.starts.games.values())
    assert not caplog.text
    monkeypatch.setattr(memory, "TOLD", 0)
    check_memory(config, trainer.agent, trainer.starts.games.values())
    assert re.search(r"training needs about 0\.\d GB of memory \(.*\), and [\d.]+ GB are free", caplog.text)


def test_a_run_that_does_not_fit_is_refused_with_what_fits_and_writes_nothing(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(config)
    half = parts(trainer, token_budget=config.token_budget // 2, max_rows=config.max_rows // 2)
    always = half["program"] + half["weights"] + half["adapter"]

    def refused(free: float) -> str:
        monkeypatch.setattr(memory, "free_memory", lambda _device: free - psutil.Process().memory_info().rss)
        with pytest.raises(UserError) as error:
            train(config, tmp_path / "run", show_progress=False)
        return str(error.value)

    assert "lower --token-budget to 512 and --max-rows to 256" in refused(always + max(half["sampling"], half["training"]) + 1e5)
    assert "expected a smaller model" in refused(always)
    assert not (tmp_path / "run" / "config.toml").exists()
