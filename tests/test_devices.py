"""A simulated GPU: every tensor is created on the device of the model, or moved there."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator

from msgrpo_hub.episode import Completion, Group
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game
from msgrpo_hub.models import sampling
from msgrpo_hub.models.devices import choose_device
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.scoring import ScorePolicy
from msgrpo_hub.msgrpo import LOSS_NORMALISATIONS, SelectedEpisode
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.training.adapter import training_device
from msgrpo_hub.training.batch import pack, to_samples
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.summary import Metrics
from msgrpo_hub.training.trainer import Trainer
from tests.fake_gpu import CUDA, OnGpu, fake_gpu
from tests.training.runs import learn

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def config(tiny_model: Path) -> TrainConfig:
    small = {"groups": 1, "group_size": 2, "selected_per_group": 2, "max_rows": 2, "max_new_tokens": 4, "lora_rank": 4}
    return TrainConfig(model=str(tiny_model), beta=0.1, token_budget=64, learning_rate=1e-3, **small)  # type: ignore[arg-type]


def one_update(config: TrainConfig, accelerator: Accelerator) -> tuple[Group, Metrics, list[torch.Tensor]]:
    """A played group, the metrics of an optimiser step on it (with advantages of ±1), and the adapter afterwards."""
    trainer = Trainer(config, accelerator)
    [group] = trainer.act([(config.game, 7)])
    selected = [
        SelectedEpisode(episode, (advantage,) * len(episode.steps))
        for episode, advantage in zip(group.episodes, cycle([1.0, -1.0]), strict=False)
    ]
    assert len(pack(to_samples(selected, LOSS_NORMALISATIONS["token-mean"]), config.token_budget)) > 1
    metrics = learn(trainer, selected, 1)
    return group, metrics, [parameter.detach().cpu() for parameter in trainer.parameters.values()]


@pytest.mark.parametrize(
    "changes",
    [
        *({}, {"gradient_checkpointing": True, "dtype": "bfloat16"}, {"engine": "plain"}),
        *({"device": "mps"}, {"device": "mps", "engine": "plain"}),
    ],
    ids=str,
)
def test_an_update_on_a_gpu_leaves_no_tensor_behind(changes: dict[str, Any], config: TrainConfig) -> None:
    config = replace(config, **({"device": "cuda"} | changes))
    here = one_update(replace(config, device="cpu"), Accelerator(cpu=True))
    with fake_gpu(config.device):
        there = one_update(config, Accelerator(cpu=True))
    assert there[:2] == here[:2]
    assert all(map(torch.equal, there[2], here[2]))


@pytest.mark.parametrize("gpu", ["cuda", "mps"])
def test_scores_on_a_gpu_are_those_on_the_cpu(gpu: str, config: TrainConfig) -> None:
    def play(device: str) -> list[Completion]:
        policy = ScorePolicy(LanguageModel.from_pretrained(config.model, device=device))
        [group] = play_groups(make_game(config.game), policy, [3], 1)
        return [step.completion for step in group.episodes[0].steps]

    here = play("cpu")
    with fake_gpu(gpu):
        assert play(gpu) == here


def test_a_tensor_left_behind_is_seen(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "to_device", lambda values, _device: torch.from_numpy(values))
    with fake_gpu(), pytest.raises(RuntimeError, match="one device"):
        one_update(replace(config, device="cuda"), Accelerator(cpu=True))


def test_auto_takes_the_cpu_for_a_small_model_and_the_gpu_for_a_large_one(
    config: TrainConfig, caplog: pytest.LogCaptureFixture
) -> None:
    assert choose_device("auto", 10**9) == "cpu"
    with fake_gpu():
        trainer = Trainer(replace(config, model="pocket"), SimpleNamespace(device=CUDA, num_processes=1))  # type: ignore[arg-type]
        assert choose_device("auto", 494_000_000) == "cuda"
    assert trainer.model.device.type == "cpu"
    assert caplog.messages == [
        "running on cpu: a model of 0.8 M parameters is faster there than on cuda",
        "running on cuda: a model of 494.0 M parameters is faster there than on cpu",
    ]


@pytest.mark.parametrize("device", ["cuda", "mps", "cuda:1"])
def test_a_device_that_is_not_there_gets_one_line(device: str) -> None:
    with pytest.raises(UserError, match=f"device = '{device}': .* expected auto or cpu$"):
        LanguageModel.from_pretrained("some/model-that-is-never-asked-for", device=device)


def test_each_of_several_processes_computes_where_accelerate_places_it() -> None:
    def placed(wanted: str) -> str:
        return training_device(wanted, SimpleNamespace(device=torch.device("cuda", 1), num_processes=2))  # type: ignore[arg-type]

    assert placed("auto") == placed("cuda") == "cuda:1"
    with pytest.raises(UserError, match="device = 'cpu', but accelerate places these processes on 'cuda'"):
        placed("cpu")


def test_a_device_that_may_lack_float64_leaves_the_draws_to_the_cpu() -> None:
    logits, rows, uniforms = torch.randn(7, 1000), torch.arange(7).repeat(30), torch.rand(210).tolist()
    here = sampling.draw_tokens(logits, rows, uniforms, 0.7)
    with fake_gpu("mps"):
        there = sampling.draw_tokens(logits.as_subclass(OnGpu), rows.as_subclass(OnGpu), uniforms, 0.7)
    assert {type(part) for part in there} == {torch.Tensor}
    assert all(map(torch.equal, there, here))
