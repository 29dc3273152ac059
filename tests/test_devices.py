"""Simulated GPUs: every tensor is created on the device of the model, or moved there."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.overrides import TorchFunctionMode

from msgrpo_hub.episode import Completion, Group
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game
from msgrpo_hub.models import sampling
from msgrpo_hub.models.devices import choose_device
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.sampling import Replies, draw_tokens
from msgrpo_hub.models.scoring import ScorePolicy
from msgrpo_hub.msgrpo import LOSS_NORMALISATIONS, SelectedEpisode
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.training.adapter import training_device
from msgrpo_hub.training.batch import pack, to_samples
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.metrics import Metrics
from msgrpo_hub.training.trainer import Trainer
from tests.fake_gpu import CUDA, MPS, OnGpu, OnMps, fake_gpu
from tests.training.runs import learn

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def config(tiny_model: Path) -> TrainConfig:
    small = {"groups": 1, "group_size": 2, "selected_per_group": 2, "max_rows": 2, "max_new_tokens": 4, "lora_rank": 4}
    return TrainConfig(model=str(tiny_model), beta=0.1, token_budget=256, learning_rate=1e-3, **small)  # type: ignore[arg-type]


def test_the_gpu_that_is_not_there_refuses_what_a_gpu_refuses() -> None:
    with fake_gpu():
        layer = torch.nn.Linear(3, 3).to("cuda")
        there, here = torch.ones(2, 3, device="cuda"), torch.ones(2, 3)
        assert layer.weight.device == there.device == CUDA
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


GPUS = pytest.mark.parametrize("gpu", [OnGpu, OnMps])


@pytest.mark.parametrize(
    ("gpu", "changes"),
    [(OnGpu, {}), (OnGpu, {"gradient_checkpointing": True, "dtype": "bfloat16"}), (OnMps, {}), (OnMps, {"engine": "plain"})],
    ids=str,
)
def test_an_update_on_a_gpu_leaves_no_tensor_behind(gpu: type[OnGpu], changes: dict[str, object], config: TrainConfig) -> None:
    config = replace(config, **changes)  # type: ignore[arg-type]
    here = one_update(config, Accelerator(cpu=True))
    with fake_gpu(gpu):
        there = one_update(replace(config, device=gpu.place.type), Accelerator(cpu=True))
    assert there[:2] == here[:2]
    assert all(map(torch.equal, there[2], here[2]))


@GPUS
def test_scores_on_a_gpu_are_those_on_the_cpu(gpu: type[OnGpu], config: TrainConfig) -> None:
    def play(device: str) -> list[Completion]:
        policy = ScorePolicy(LanguageModel.from_pretrained(config.model, device=device))
        [group] = play_groups(make_game(config.game), policy, [3], 1)
        return [step.completion for step in group.episodes[0].steps]

    here = play("cpu")
    with fake_gpu(gpu):
        assert play(gpu.place.type) == here


def test_a_step_brings_one_tensor_from_the_gpu_and_asks_it_for_no_value() -> None:
    logits, rows, live = torch.randn(3, 50), torch.tensor([0, 1, 1, 2]), np.arange(4)

    def replies() -> Replies:
        return Replies([(1,)] * 4, [np.random.default_rng(k) for k in range(4)], 1.0, 8, frozenset())

    here, _ = replies().append_tokens(live, 0, logits, rows)
    with fake_gpu(), Waits() as waits:
        there, _ = replies().append_tokens(live, 0, logits.to("cuda"), rows.to("cuda"))
    assert there.tolist() == here.tolist()
    assert waits.seen == ["cpu"]


class Waits(TorchFunctionMode):
    """Records the calls that wait for the GPU: tensors copied from it, and values read."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__
        if name in ("cpu", "item", "tolist", "nonzero", "bincount", "__bool__", "__int__", "__float__", "__index__"):
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


def test_a_tensor_left_behind_is_seen(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "to_device", lambda values, _device: torch.from_numpy(values))
    with fake_gpu(), pytest.raises(RuntimeError, match="one device"):
        one_update(replace(config, device="cuda"), Accelerator(cpu=True))


# ---- which device


def test_auto_takes_the_cpu_for_a_small_model_and_the_gpu_for_a_large_one(
    config: TrainConfig, caplog: pytest.LogCaptureFixture
) -> None:
    assert choose_device("auto", 10**9) == "cpu"
    with fake_gpu(OnMps):
        trainer = Trainer(replace(config, model="pocket"), SimpleNamespace(device=MPS, num_processes=1))  # type: ignore[arg-type]
    assert trainer.model.device.type == "cpu"
    with fake_gpu():
        assert choose_device("auto", 494_000_000) == "cuda"
    assert caplog.messages == [
        "running on cpu: a model of 0.8 M parameters is faster there than on mps",
        "running on cuda: a model of 494.0 M parameters is faster there than on cpu",
    ]


@pytest.mark.parametrize("device", ["cuda", "mps", "xpu", "cuda:1"])
def test_a_device_that_is_not_there_gets_one_line(device: str) -> None:
    with pytest.raises(UserError, match=f"device = '{device}': .* expected auto or cpu$"):
        LanguageModel.from_pretrained("some/model-that-is-never-asked-for", device=device)


def test_each_of_several_processes_computes_where_accelerate_places_it() -> None:
    def placed(wanted: str) -> str:
        return training_device(wanted, SimpleNamespace(device=torch.device("cuda", 1), num_processes=2))  # type: ignore[arg-type]

    assert placed("auto") == placed("cuda") == "cuda:1"
    with pytest.raises(UserError, match="device = 'cpu', but accelerate places these processes on 'cuda'"):
        placed("cpu")


def test_a_device_without_float64_draws_the_tokens_of_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, rows = 5 * torch.randn(7, 1000, generator=generator), torch.arange(7).repeat(30)
    uniforms = torch.rand(210, generator=generator).tolist()
    here = draw_tokens(logits, rows, uniforms, 0.7)
    with fake_gpu(OnMps):
        there = draw_tokens(logits.to("mps"), rows.to("mps"), uniforms, 0.7)
    assert all(map(torch.equal, there, here))
