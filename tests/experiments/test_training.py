"""Training as a unit of an experiment."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from benchmark.experiments.arms import unit_name, unlike_preset
from benchmark.experiments.curves import curve_table
from benchmark.experiments.experiment import Values, configuration, load
from benchmark.experiments.main_result.runs import trained
from benchmark.experiments.training import configured, learning_curve

SELECTION = load("selection")

QUICKSTART = (
    {"model": "pocket", "game": "FrozenLake-NotSlippery-v1", "prompt_format": "think-action", "updates": 100}
    | {
        "max_new_tokens": 32,
        "groups": 8,
        "group_size": 32,
        "selected_per_group": 8,
        "sampler": "absolute-advantage",
        "credit": "whole-episode",
    }
    | {"advantage_scale": "std", "loss_normalisation": "token-mean", "minibatches": 1, "format_penalty": 1.0, "beta": 0.04}
    | {"learning_rate": 0.003, "learning_rate_end": 0.1, "warmup": 5, "gradient_clip": 1.0, "temperature": 1.0, "keep": "last"}
    | {"lora_targets": "all-linear", "lora_rank": 16, "lora_alpha": 32, "lora_dropout": 0.0, "rslora": False}
)
SNAKE = {"game": "Snake-Solo-v1", "group_size": 16, "selected_per_group": 4, "sampler": "max-variance"}
SLIPPERY = (
    {"game": "FrozenLake-Slippery-v1", "teacher": "optimal", "taught": 300, "updates": 360, "credit": "anchor-state"}
    | {"groups": 16, "group_size": 512, "selected_per_group": 512}
    | {"beta": 0.0, "learning_rate": 0.0015, "learning_rate_end": 0.3, "temperature": 1.25}
)


@pytest.mark.parametrize(
    ("name", "values"),
    [("quickstart", QUICKSTART), ("quickstart-snake", QUICKSTART | SNAKE), ("quickstart-slippery", QUICKSTART | SLIPPERY)],
)
def test_rows_name_presets_which_are_what_they_were_when_the_rows_ran(name: str, values: dict[str, object]) -> None:
    """Who changes a preset has to name its former values in config.toml and the rows of each experiment that ran with it."""
    config = asdict(configured({"preset": name}))
    assert {field: config[field] for field in values} == values


def test_a_page_says_what_all_arms_have_in_place_of_their_preset_s_values() -> None:
    config = {
        "updates": {"quickstart": 60},
        "settings": {"learning_rate": 0.001, "test_episodes": 5, "groups": 8},
        "arm": {"one": {"beta": 0.5, "sampler": "top"}, "two": {"beta": 0.5, "learning_rate": 0.002}},
    }
    assert unlike_preset(config, "quickstart") == {
        "beta": (0.5, 0.04),
        "learning_rate": (0.001, 0.003),
        "test_episodes": (5, 200),
    }
    assert unlike_preset(config, "FrozenLake-NotSlippery-v1") == {}


def values(reward: float) -> dict[str, object]:
    return {"curve": [[0, 0.0], [10, reward]], "seconds": 5.0, "test_rewards": [reward, reward]}


@pytest.mark.parametrize(("name", "seeds"), [("selection", 5), ("exploration", 5), ("collapse", 5)])
def test_every_arm_runs_with_every_seed_for_as_many_updates(name: str, seeds: int) -> None:
    units, config = list(load(name).units.values()), configuration(name)
    assert {unit["seed"] for unit in units} == set(range(seeds))
    assert len(units) == len(config["arm"]) * seeds * len(config["updates"])
    assert {(unit["case"], unit["updates"]) for unit in units} == set(config["updates"].items())


def test_the_table_has_the_interval_over_seeds_and_the_answer_each_difference_seed_by_seed() -> None:
    found = {"all": (0.4, 0.5, 0.6), "AAW, a quarter": (0.5, 0.7, 0.9), "top, a quarter": (0.4, 0.5)}
    rows = {
        unit_name("quickstart", arm, seed): values(reward)
        for arm, rewards in found.items()
        for seed, reward in enumerate(rewards)
    }
    line = "| all | 3 | 0.500 | 0.500 [0.252, 0.748] | 0.100 | 0.400 |"  # ± 4.303 · 0.1 / √3
    assert line in SELECTION.tables(rows)
    answer = SELECTION.answer(rows)
    assert "8 of 50 runs" in answer
    told = "all: 0.500. Against it: AAW, a quarter +0.200 [-0.048, 0.448]; top, a quarter +0.000 (no interval)."
    assert told in answer  # the differences are 0.1, 0.2, 0.3
    (axes,) = SELECTION.figure(rows).axes
    means = [list(line.get_ydata()) for line in axes.lines if line.get_linewidth() == 2]
    assert means == [[0.0, pytest.approx(0.5)], [0.0, pytest.approx(0.7)], [0.0, pytest.approx(0.45)]]


@pytest.mark.slow
def test_a_run_after_teaching_begins_with_the_taught_adapter(tmp_path: Path) -> None:
    teaching, run = load("main_result").units["slippery-after-teaching-seed0"]["stages"]
    small = {"groups": 1, "group_size": 2, "selected_per_group": 2, "updates": 1, "learning_rate": 1e-12}
    adapter = trained([{**teaching, "updates": 1}, {**run, **small}], 0, tmp_path)
    [first] = tmp_path.glob("taught-FrozenLake-Slippery-v1-1-seed0")
    before, after = (load_file(folder / "adapter_model.safetensors") for folder in (first, adapter))
    assert any(weights.any() for weights in before.values())
    assert all(torch.allclose(weights, before[name], atol=1e-6) for name, weights in after.items())


@pytest.mark.slow
def test_a_run_tells_its_metrics_and_the_games_that_it_plays_in_the_end(tiny_model: Path, tmp_path: Path) -> None:
    units = load("transfer").units
    small = {"model": str(tiny_model), "groups": 2, "group_size": 4, "selected_per_group": 4, "eval_episodes": 2}
    found = {}
    for arm, updates in (("the base", 0), ("trained on the lake", 2)):
        unit = units[unit_name("quickstart", arm, 0)]
        settings = {**small, "test_episodes": 2, "updates": updates}
        found[arm] = learning_curve({**unit, "also": ["Snake-Solo-v1"], "settings": settings}, tmp_path)
    assert [len(values["curve"]) for values in found.values()] == [1, 3]
    assert [len(values["metrics"]["entropy"]) for values in found.values()] == [0, 2]
    assert all(len(values["also"]["Snake-Solo-v1"]) == 2 for values in found.values())
    table = curve_table({arm: {0: values} for arm, values in found.items()}, "FrozenLake-NotSlippery-v1")
    assert "| the base | – |" in table


@pytest.mark.slow
def test_bases_of_all_sizes_have_equal_data_and_train(tmp_path: Path) -> None:
    size = load("size")
    assert len({json.dumps(unit["settings"]["build"]) for unit in size.units.values()}) == 1
    unit = size.units[unit_name("quickstart", "0.3 M", 0)]
    small = {"groups": 2, "group_size": 4, "selected_per_group": 4, "eval_episodes": 2, "test_episodes": 4}
    build = {**unit["settings"]["build"], "steps": 2, "trees": 1, "states": 1}
    settings = {**unit["settings"], **small, "build": build}
    found = [size.run({**unit, "updates": 2, "evaluations": 2, "settings": settings}, tmp_path) for _ in range(2)]
    assert_is_curve(found[0])
    assert found[0]["curve"] == found[1]["curve"]  # the second run finds the base
    [base] = tmp_path.glob("width-80-*/model.safetensors")
    assert sum(tensor.numel() for tensor in load_file(base).values()) < 300_000


def assert_is_curve(found: Values) -> None:
    """Whether a curve has its 3 points and 4 test rewards."""
    assert [update for update, _ in found["curve"]] == [0, 1, 2]
    assert found["seconds"] > 0
    assert len(found["test_rewards"]) == 4
