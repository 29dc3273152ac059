"""A run says how much memory it needs, and does not begin where that is not free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from msgrpo_hub.agent.policy import format_of
from msgrpo_hub.errors import UserError
from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.players.sample_play import longest_prompts
from msgrpo_hub.training import TrainConfig, memory, train
from msgrpo_hub.training.memory import check_memory, memory_needed
from msgrpo_hub.training.trainer import Trainer
from tests.training.trainers import trainer_of

GB = 10**9


@pytest.fixture
def config(tiny_model: Path) -> TrainConfig:
    return TrainConfig(
        model=str(tiny_model), groups=2, group_size=8, selected_per_group=8, max_new_tokens=8, eval_episodes=4, test_episodes=4
    )


def kept_bytes(trainer: Trainer) -> int:
    """The largest number of bytes that a backward pass of an update keeps beside the parameters."""
    selected = [
        SelectedEpisode(episode, tuple((-1.0) ** episode.member for _ in episode.steps))
        for group in trainer.act(trainer.starts.of_update(1))
        for episode in group.episodes
    ]
    parameters = {p.untyped_storage().data_ptr() for p in trainer.model.parameters()}
    most = 0
    for packed in trainer.packed(selected):
        kept: dict[int, int] = {}

        def keep(tensor: torch.Tensor, kept: dict[int, int] = kept) -> torch.Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with trainer.engine.learning(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = trainer.loss(packed).loss
        most = max(most, sum(size for place, size in kept.items() if place not in parameters))
        del loss
    return most


def test_what_is_told_of_a_batch_is_what_its_backward_pass_keeps(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, token_budget=512))
    game = next(iter(trainer.starts.games.values()))
    prompts = trainer.agent.encode(longest_prompts([game], format_of(trainer.agent)))
    *_, told = memory_needed(trainer.config, trainer.agent, prompts, game.horizon).values()
    kept = kept_bytes(trainer)
    assert kept / 1.25 < told < kept * 1.4, (kept, told)


def test_more_tokens_or_rows_need_more_and_checkpointing_less(config: TrainConfig) -> None:
    trainer = trainer_of(config)

    def needed(**changes: object) -> dict[str, float]:
        games = trainer.starts.games.values()
        prompts = trainer.agent.encode(longest_prompts(games, format_of(trainer.agent)))
        parts = memory_needed(replace(config, **changes), trainer.agent, prompts, 8)  # type: ignore[arg-type]
        return dict(zip(("program", "weights", "adapter", "sampling", "training"), parts.values(), strict=True))

    usual = needed()
    weights = sum(p.nbytes for p in trainer.model.parameters() if not p.requires_grad)
    assert usual["weights"] == weights
    assert usual["adapter"] == 4 * sum(p.nbytes for p in trainer.parameters.values())
    assert needed(token_budget=512)["training"] < usual["training"]
    assert needed(gradient_checkpointing=True)["training"] < usual["training"]
    assert needed(max_rows=4)["sampling"] < usual["sampling"]


def test_the_need_and_what_is_free_are_told(config: TrainConfig, caplog: pytest.LogCaptureFixture) -> None:
    trainer = trainer_of(config)
    check_memory(config, trainer.agent, trainer.starts.games.values())
    assert "training needs about 0." in caplog.text
    assert "GB are free" in caplog.text


@pytest.mark.parametrize(("free", "remedy"), [(-1.0, "a smaller model"), (0.05, "lower --token-budget to")])
def test_a_run_that_does_not_fit_is_refused_before_its_folder_is_written(
    free: float, remedy: str, config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(config)
    held = memory.psutil.Process().memory_info().rss
    weights = 0.45e9 + sum(p.nbytes for p in trainer.model.parameters())
    monkeypatch.setattr(memory, "free_memory", lambda _device: weights + free * GB - held)
    with pytest.raises(UserError, match=remedy):
        train(config, tmp_path / "run", show_progress=False)
    assert not (tmp_path / "run" / "config.toml").exists()
