"""What a GPU needs of the code, without a GPU: every tensor is made or moved where the model is."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import pytest
import torch
from accelerate import Accelerator

from msgrpo_hub.episode import Completion, Group
from msgrpo_hub.games import make_game
from msgrpo_hub.models import engine
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.scoring import ScorePolicy
from msgrpo_hub.msgrpo import SelectedEpisode, token_mean
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.training.batch import pack, to_samples
from msgrpo_hub.training.config import TrainConfig, preset
from msgrpo_hub.training.metrics import Metrics
from msgrpo_hub.training.trainer import Trainer
from tests.fake_gpu import GPU, OnGpu, fake_gpu

CONFIG = replace(
    preset("quickstart"),
    **{"groups": 1, "group_size": 2, "selected_per_group": 2, "max_rows": 2},
    **{"beta": 0.1, "max_new_tokens": 16, "token_budget": 256, "warmup": 0},
)


def test_the_gpu_that_is_not_there_refuses_what_a_gpu_refuses() -> None:
    with fake_gpu():
        layer = torch.nn.Linear(3, 3).to("cuda")
        there, here = torch.ones(2, 3, device="cuda"), torch.ones(2, 3)
        assert layer.weight.device == there.device == GPU
        assert isinstance(layer(there), OnGpu)
        assert type(there.cpu()) is type(there.to("cpu")) is torch.Tensor
        assert torch.equal(there[torch.tensor([1, 0])], there)  # indices may come from the CPU
        assert torch.equal(there + torch.tensor(1.0), 2 * there)  # and single numbers
        for mixed in (lambda: layer(here), lambda: there + here, lambda: torch.cat([here, there]), lambda: here[there.long()]):
            with pytest.raises(RuntimeError, match="one device"):
                mixed()
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()


def one_update(config: TrainConfig, accelerator: Accelerator) -> tuple[Group, Metrics, list[torch.Tensor]]:
    """What was played, the metrics of an optimiser step on it (with advantages of ±1), and the adapter after it."""
    trainer = Trainer(config, accelerator)
    [group] = trainer.act([(config.game, 7)])
    selected = [
        SelectedEpisode(episode, (advantage,) * len(episode.steps))
        for episode, advantage in zip(group.episodes, cycle([1.0, -1.0]), strict=False)
    ]
    assert len(pack(to_samples(selected, token_mean), config.token_budget)) > 1
    metrics = trainer.learn(selected, 1)
    return group, metrics, [parameter.detach().cpu() for parameter in trainer.parameters.values()]


@pytest.mark.parametrize("changes", [{}, {"gradient_checkpointing": True}, {"dtype": "bfloat16"}], ids=str)
def test_an_update_on_a_gpu_leaves_no_tensor_behind(changes: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(CONFIG, **changes)  # type: ignore[arg-type]
    here = one_update(config, Accelerator(cpu=True))
    monkeypatch.setattr(Accelerator, "device", GPU)
    with fake_gpu():
        there = one_update(config, Accelerator(cpu=True))
    assert there[:2] == here[:2]
    assert all(map(torch.equal, there[2], here[2]))


def test_scores_on_a_gpu_are_those_on_the_cpu() -> None:
    def play(device: str) -> list[Completion]:
        policy = ScorePolicy(LanguageModel.from_pretrained("pocket", device=device))
        [group] = play_groups(make_game(CONFIG.game), policy, [3], 1)
        return [step.completion for step in group.episodes[0].steps]

    here = play("cpu")
    with fake_gpu():
        assert play("cuda") == here


def test_a_tensor_left_behind_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Accelerator, "device", GPU)
    fork = engine.fork
    monkeypatch.setattr(engine, "fork", lambda rows, tokens: tuple(part.cpu() for part in fork(rows, tokens)))
    with fake_gpu(), pytest.raises(RuntimeError, match="one device"):
        one_update(CONFIG, Accelerator(cpu=True))
