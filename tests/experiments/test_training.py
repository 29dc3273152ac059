"""Training as a unit of an experiment."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from benchmark.experiments.arms import unit_name
from benchmark.experiments.experiment import load
from benchmark.experiments.main_result.runs import trained
from benchmark.experiments.training import configured

QUICKSTART = (
    {"model": "pocket", "game": "FrozenLake-NotSlippery-v1", "prompt_format": "think-action", "updates": 100, "keep": "last"}
    | {"max_new_tokens": 32, "groups": 8, "group_size": 32, "selected_per_group": 8, "sampler": "absolute-advantage"}
    | {"credit": "whole-episode", "advantage_scale": "std", "loss_normalisation": "token-mean", "minibatches": 1, "warmup": 5}
    | {"format_penalty": 1.0, "beta": 0.04, "learning_rate": 0.003, "learning_rate_end": 0.1, "gradient_clip": 1.0}
    | {"temperature": 1.0, "lora_targets": "all-linear", "lora_rank": 16, "lora_alpha": 32, "lora_dropout": 0.0, "rslora": False}
)
SNAKE = {"game": "Snake-Solo-v1", "group_size": 16, "selected_per_group": 4, "sampler": "max-variance"}
SLIPPERY = (
    {"game": "FrozenLake-Slippery-v1", "teacher": "optimal", "taught": 300, "updates": 360, "credit": "anchor-state"}
    | {"groups": 16, "group_size": 512, "selected_per_group": 512}
    | {"beta": 0.0, "learning_rate": 0.0015, "learning_rate_end": 0.3, "temperature": 1.25}
)
SMALL = {"groups": 2, "group_size": 4, "selected_per_group": 4, "eval_episodes": 2}


@pytest.mark.parametrize(
    ("name", "values"),
    [("quickstart", QUICKSTART), ("quickstart-snake", QUICKSTART | SNAKE), ("quickstart-slippery", QUICKSTART | SLIPPERY)],
)
def test_presets_have_the_values_with_which_the_stored_rows_ran(name: str, values: dict[str, object]) -> None:
    """If you change a preset, put its former values into the config.toml and the rows of each experiment that ran with it."""
    config = asdict(configured({"preset": name}))
    assert {field: config[field] for field in values} == values


@pytest.mark.slow
def test_a_run_after_teaching_starts_from_the_taught_adapter(tmp_path: Path) -> None:
    teaching, run = load("main_result").units["slippery-after-teaching-seed0"]["stages"]
    small = {"groups": 1, "group_size": 2, "selected_per_group": 2, "updates": 1, "learning_rate": 1e-12}
    adapter = trained([{**teaching, "updates": 1}, {**run, **small}], 0, tmp_path)
    [first] = tmp_path.glob("taught-FrozenLake-Slippery-v1-1-seed0")
    before, after = (load_file(folder / "adapter_model.safetensors") for folder in (first, adapter))
    assert any(weights.any() for weights in before.values())
    assert all(torch.allclose(weights, before[name], atol=1e-6) for name, weights in after.items())


@pytest.mark.slow
def test_a_run_has_its_metrics_and_the_games_that_it_plays_after_training(tiny_model: Path) -> None:
    transfer = load("transfer")
    settings = {**SMALL, "model": str(tiny_model), "test_episodes": 2}
    unit = {**transfer.units[unit_name("quickstart", "trained on the lake", 0)], "also": ["Snake-Solo-v1"]}
    base, trained = (transfer.run({**unit, "settings": {**settings, "updates": updates}}) for updates in (0, 2))
    assert [len(base["curve"]), len(trained["curve"])] == [1, 3]
    assert [len(base["metrics"]["entropy"]), len(trained["metrics"]["entropy"])] == [0, 2]
    assert len(base["also"]["Snake-Solo-v1"]) == len(trained["also"]["Snake-Solo-v1"]) == 2


@pytest.mark.slow
def test_bases_of_all_sizes_have_equal_data_and_train(tmp_path: Path) -> None:
    size = load("size")
    assert len({tuple(unit["settings"]["build"].items()) for unit in size.units.values()}) == 1
    unit, size.scratch = size.units[unit_name("quickstart", "0.3 M", 0)], tmp_path
    build = {**unit["settings"]["build"], "steps": 2, "trees": 1, "states": 1}
    settings = {**unit["settings"], **SMALL, "test_episodes": 4, "build": build}
    first, second = (size.run({**unit, "updates": 2, "evaluations": 2, "settings": settings}) for _ in range(2))
    assert [update for update, _ in first["curve"]] == [0, 1, 2]
    assert first["seconds"] > 0
    assert len(first["test_rewards"]) == 4
    assert first["curve"] == second["curve"], "the second run finds the base"
    [base] = tmp_path.glob("width-80-*/model.safetensors")
    assert sum(tensor.numel() for tensor in load_file(base).values()) < 300_000
