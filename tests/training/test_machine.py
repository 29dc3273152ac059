"""The machine of a run: the memory that it needs, and several processes that meet, agree and share a disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest
import torch
from torch import nn
from transformers import AutoTokenizer

from benchmark.throughput.sizes import ROWS, arguments, write_shape
from benchmark.throughput.tables import record
from msgrpo_hub.cli import main
from msgrpo_hub.episode import Step
from msgrpo_hub.errors import UserError
from msgrpo_hub.models import weights
from msgrpo_hub.models.weights import HAS_ONE_DNN
from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.training import TrainConfig, machine, train
from msgrpo_hub.training.dry_run import dry_run, plan_text
from msgrpo_hub.training.machine import memory_needed, token_budget
from tests.real.models import real_model
from tests.tiny import adapted, save_model, tiny_model
from tests.training.conftest import TWO
from tests.training.runs import metrics, summary_of, trainer_of, updates_safe

if TYPE_CHECKING:
    from tests.command import Command

REPLY = 8


@pytest.fixture(params=[("qwen2", 256, 4), ("gemma3_text", 256, 4), ("qwen2", 64, 16)], ids=str)
def large(request: pytest.FixtureRequest, config: TrainConfig, tmp_path: Path) -> TrainConfig:
    """Models whose layers keep more than their logits, as real models do; the last one has small trees."""
    family, width, heads = request.param
    size = {"hidden_size": width, "intermediate_size": 3 * width, "num_attention_heads": heads}
    tokenizer = AutoTokenizer.from_pretrained(config.model)
    model = save_model(tmp_path / "model", tokenizer, family, seed=0, **size, num_key_value_heads=1, head_dim=64)
    groups = {"groups": 4, "group_size": 8, "selected_per_group": 8, "eval_episodes": 4, "test_episodes": 4}
    return TrainConfig(model=str(model), max_new_tokens=REPLY, token_budget=1024, **groups)


def test_the_estimate_is_close_to_the_bytes_that_a_backward_pass_keeps(large: TrainConfig) -> None:
    trainer, rng = trainer_of(large), np.random.default_rng(0)

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
        trainer.engine.log_probs(max(packs, key=lambda packed: len(packed.trees) * max(map(len, packed.trees))), 1.0).sum()
    needed = memory_needed(replace(trainer.agent, max_rows=1), trainer.starts.games.values(), large)
    assert [*needed][-1].startswith("training on")
    assert sum(kept.values()) < 1.1 * [*needed.values()][-1] / machine.GAPS < 1.6 * sum(kept.values())
    assert needed["weights"] == sum(p.nbytes for p in trainer.model.parameters() if not p.requires_grad)


def test_the_tokens_of_a_pack_follow_from_the_layers_unless_the_run_gives_them(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, free = adapted(tiny_model()), replace(config, token_budget=0)
    layers = [m for name, m in model.named_modules() if isinstance(m, nn.Linear) and name.endswith("base_layer")]
    for tokens, expected in ((300, 300), (10, 256), (10**6, 2048)):
        monkeypatch.setattr(machine, "ROOM", tokens * 4 * sum(m.in_features + m.out_features for m in layers))
        assert token_budget(free, model) == expected
    assert token_budget(replace(config, token_budget=7), model) == 7
    assert token_budget(free, adapted(tiny_model("gpt2"))) == 2048  # its layers are convolutions


def test_sampling_includes_the_copies_of_one_dnn(large: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, many = trainer_of(large), replace(large, test_episodes=10**4, token_budget=1)

    def sampling() -> float:
        return memory_needed(trainer.agent, trainer.starts.games.values(), many)["sampling 512 replies"]

    full = sampling()
    monkeypatch.setattr(weights, "LARGE", 1)
    linear = [layer for layer in trainer.model.modules() if type(layer) is nn.Linear]
    copies = HAS_ONE_DNN * sum(layer.weight.nbytes for layer in linear)
    assert sampling() == full + copies


def test_a_run_that_does_not_fit_is_refused_and_writes_nothing(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "free_memory", lambda _device: -psutil.Process().memory_info().rss)
    with pytest.raises(UserError, match=r"training needs about .* GB are free: lower --token-budget and --max-rows"):
        train(config, tmp_path / "run", show_progress=False)
    assert not (tmp_path / "run" / "config.toml").exists()


def test_a_dry_run_says_the_memory_of_the_run_without_its_weights(large: TrainConfig, tmp_path: Path) -> None:
    trainer, weights = trainer_of(large), Path(large.model) / "model.safetensors"
    with weights.open("r+b") as file:
        file.truncate(0)  # no content, and the same size
        file.truncate(size := sum(p.nbytes for p in trainer.model.parameters()))
    plan = dry_run(large, tmp_path / "run")
    assert plan["memory"] == memory_needed(trainer.agent, trainer.starts.games.values(), large)
    assert plan["parameters"] + plan["trained_parameters"] == sum(p.numel() for p in trainer.model.parameters())
    assert (plan["weights_bytes"], (tmp_path / "run").exists()) == (size, False)
    assert "it fits" in plan_text(plan | {"runs": 1})


def test_a_dry_run_plans_for_4_bits_and_shards(config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, url = trainer_of(config).model, "vllm:http://localhost:1"
    served = replace(config, dtype="bfloat16", eval_every=0, test_episodes=0)
    linear = sum(layer.weight.numel() for layer in machine.body_layers(model))
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    plan = dry_run(replace(served, device="cuda", load_in_4bit=True), tmp_path / "run", url)
    assert plan["memory"]["weights"] == 2 * (frozen - linear) + linear * 4.5 / 8
    assert (plan["memory"]["program"], plan["memory_free"], "sampling" in str(plan["memory"])) == (0, None, False)
    launched_by_fsdp(monkeypatch, 8)
    sharded = dry_run(served, tmp_path / "run", url)["memory"]["weights"]
    assert sharded == 2 * frozen * (1 / 8 + 2 / model.config.num_hidden_layers)


def launched_by_fsdp(monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    for name, value in {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "WORLD_SIZE": str(processes)}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(ROWS)))
def test_each_command_of_the_table_of_sizes_is_accepted_and_needs_its_memory(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (size, flags, processes), row = ROWS[number], record("sizes")["rows"][number]
    write_shape(size, folder := tmp_path / size, real_model("smollm2-135m"))
    if processes:
        launched_by_fsdp(monkeypatch, processes)
    main(arguments(flags, folder))
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert sum(memory.values()) == pytest.approx(sum(row["memory"].values()), rel=0.05)  # the prompts have other tokens
    assert (size, flags, processes) == (row["base"], row["flags"], row["processes"])


ALONE = TWO.replace("os.fork()", "int(sys.argv.pop())").replace(
    "main(sys", "from msgrpo_hub.training import machine\nmachine.TO_MEET = machine.timedelta(seconds=3)\nmain(sys"
)
"""One of two processes. The other never appears, and this one waits for three seconds."""


@pytest.mark.slow
def test_a_process_whose_peer_never_appears_ends_with_one_line(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    for rank in (0, 1):
        ended = msgrpo("train", *flags, "--output-dir", tmp_path / "run", rank, program=ALONE)
        assert ended.code == 2, ended.err
        assert "error: the 2 processes did not meet within 3 s" in ended.err.splitlines()[-1]
        assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_another_number_of_processes_resumes_once_it_is_accepted_and_is_recorded(
    msgrpo: Command, run: Path, flags: list[str]
) -> None:
    before = updates_safe(run)
    refused = msgrpo("train", *flags, "--resume", "--output-dir", run, program=TWO)
    assert (refused.code, "Traceback" in refused.err, updates_safe(run)) == (2, False, before)
    [error] = [line for line in refused.said if line.startswith("error: ")]  # only the first process prints it
    assert "the run started with processes = 1 and would continue with 2" in error
    accepted = msgrpo("train", *flags, "--resume", "--accept-rounding", "--output-dir", run, program=TWO)
    assert accepted.code == 0, accepted.err
    assert summary_of(run)["resumed_otherwise"][0]["processes"] == [1, 2]
    assert summary_of(run)["processes"] == 2
    assert [line["update"] for line in metrics(run)] == [1, 2, 3, 4, 5, 6]
