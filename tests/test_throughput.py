"""The benchmark of updates: all sides do the same work, and measurements are complete."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from benchmark.throughput import gpu
from benchmark.throughput.cases import Case, MeasuredTrainer, make_trainer
from benchmark.throughput.limit import contexts, learnt, needed
from benchmark.throughput.naive import NaiveTrainer, log_prob_difference, loss_and_gradient_difference
from benchmark.throughput.rows import ResultFile, clock
from benchmark.throughput.stages import OTHER, Stages

pytestmark = pytest.mark.long

WITHOUT = """
import importlib.util, sys
real, hidden = importlib.util.find_spec, ("gymnasium", "tomli_w")
importlib.util.find_spec = lambda name, *rest: None if name in hidden else real(name, *rest)
class Refused:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in hidden:
            raise ImportError(name)
sys.meta_path.insert(0, Refused())
"""
ROOT = Path(__file__).parents[1]
LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
CASES = [
    Case(game=LAKE, groups=4, group_size=12, drawn=4),
    Case(game=SNAKE, groups=1, group_size=6, drawn=3, horizon=5),
    Case(game=LAKE, model="tiny", reply=8, groups=1, group_size=8, drawn=4, horizon=3),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_padded_batch_has_the_loss_and_the_gradient_of_ours(case: Case, models: Path) -> None:
    difference = loss_and_gradient_difference(case, models, seed=1)
    assert difference["largest_gradient"] > 1e-4
    assert difference["kl"] > 1e-4
    assert difference["loss"] < 1e-5
    assert difference["gradient"] < 1e-5


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_generate_samples_from_the_distribution_of_the_engine(case: Case, models: Path) -> None:
    assert log_prob_difference(case, models) < 1e-4


def test_trl_learns_from_one_row_per_episode_with_the_tokens_of_the_environment_masked_out(models: Path) -> None:
    pytest.importorskip("trl", reason="a peer, installed for the benchmark alone")
    from benchmark.throughput.with_trl import TrlRun

    case = Case(game=SNAKE, groups=2, group_size=4, drawn=4, horizon=3)
    run = TrlRun(case, models, 1)
    metrics, (groups,) = run.updates()
    assert len(metrics) == 1
    assert [len(group.episodes) for group in groups] == [4, 4]
    for group in groups:
        assert len({episode.steps[0].observation for episode in group.episodes}) == 1
        for episode in group.episodes:
            row = run.row(episode)
            mine = [token for token, own in zip(row["completion_ids"], row["env_mask"], strict=True) if own]
            assert mine == [token for step in episode.steps for token in step.completion.token_ids]
            text = run.ours.agent.tokenizer.decode(row["prompt_ids"] + row["completion_ids"])
            assert text.count("[Rules]") == 1
            assert all(step.observation in text for step in episode.steps)


@pytest.mark.parametrize("side", [MeasuredTrainer, NaiveTrainer])
def test_forced_replies_have_exactly_the_length_and_spread_the_play(side: type[MeasuredTrainer], models: Path) -> None:
    trainer = make_trainer(CASES[2], models, side)
    torch.manual_seed(0)
    (group,) = trainer.act(trainer.starts.of_update(1))
    steps = [step for episode in group.episodes for step in episode.steps]
    assert {len(step.completion.token_ids) for step in steps} == {8}
    assert {step.action for step in steps} == {*trainer.game.actions, None}
    assert len({step.observation for step in steps}) > 2
    assert max(len(episode.steps) for episode in group.episodes) == 3


def test_the_counted_contexts_are_the_distinct_ones() -> None:
    rows = [((1, 2), (3, 4)), ((1, 2), (3, 5)), ((1, 2), (3, 4)), ((1,), (7,))]
    # distinct contexts: 1 · 12 · 123, of lengths 1, 2, 3; tokens are predicted after 12 and 123, and after 1
    assert contexts(rows) == (3, 6.0, 3)


def test_the_needed_work_of_training_is_that_of_the_drawn_rows(models: Path) -> None:
    trainer = make_trainer(CASES[1], models)
    index = next(index for index in range(1, 10) if trainer.update(index).metrics["gradient_norm"] > 0)
    selected = trainer.select(trainer.played, index).selected
    rows = [(step.completion.prompt_ids, step.completion.token_ids) for item in selected for step in item.episode.steps]
    assert contexts(learnt(trainer)) == contexts(rows)
    work = needed(trainer)
    assert work["operations_acting"] > work["operations_training"] / 3 > 0


def test_stage_times_are_exclusive_and_add_up_to_the_update(models: Path) -> None:
    trainer = make_trainer(CASES[1], models)
    trainer.update(1)
    game = type(next(iter(trainer.starts.games.values())))
    stages, before = Stages(), dict(vars(game))
    began = clock()
    with stages.watching(trainer):
        trainer.update(2)
    total = clock() - began
    assert sum(stages.seconds.values()) == pytest.approx(total, rel=0.02)
    assert {"environment", "prompts", "tokenisation", "prefill", "decoding", "training backward", OTHER} <= stages.seconds.keys()
    assert stages.seconds[OTHER] < 0.3 * total
    assert before == dict(vars(game))


def test_a_second_run_measures_only_what_is_missing(tmp_path: Path) -> None:
    measured: list[Any] = []

    def measure(key: Any) -> dict[str, Any]:
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(key)
        return {"seconds": float(len(measured))}

    keys = [("case", side, turn) for turn in range(2) for side in ("ours", "naive")]
    with pytest.raises(KeyboardInterrupt):
        ResultFile(tmp_path / "rows.json").measure(keys, measure)
    assert [tuple(row["key"]) for row in json.loads((tmp_path / "rows.json").read_text())["rows"]] == keys[:2]
    measured.clear()
    file = ResultFile(tmp_path / "rows.json")
    file.measure(keys, measure)
    assert measured == keys[2:]
    assert {"machine", "versions", "command"} <= file.record.keys()


def test_the_gpu_script_runs_to_its_end_on_a_cpu_without_gymnasium_and_tomli_w(tmp_path: Path) -> None:
    script, out = ROOT / "benchmark" / "throughput" / "gpu.sh", tmp_path / "out"
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    environment = os.environ | {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path)}
    program = ["bash", str(script), str(out), "--device", "cpu", "--tiny"]
    done = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads((out / "gpu.json").read_text())
    assert record["agreement"]["agrees"]
    assert [row["key"][1] for row in record["rows"]] == ["ours", "naive", "ours"], "and an update of `paper-snake`"
    assert all(row["tokens"] == 8 * row["steps"] > 0 and row["seconds_training"] > 0 for row in record["rows"])
    assert record["left_out"] == record["failed"] == []
    assert all(row["operations_share_training"] > 0 for row in record["rows"])


def test_a_row_that_fails_on_a_gpu_leaves_the_others_to_be_measured(tmp_path: Path) -> None:
    def measure(_settings: object, _case: Case, side: str, _rates: object) -> dict[str, Any]:
        if side == "ours":
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB")
        return {"seconds": 1.0}

    file = ResultFile(tmp_path / "gpu.json")
    file.record["ceilings"] = {}
    with patch.object(gpu, "measure_on", measure):
        gpu.measure_all(gpu.Settings("cpu", True, 60.0, tmp_path), file, 0.0)
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert [row["key"][1] for row in record["rows"]] == ["naive"]
    assert [failed[1:] for failed in record["failed"]] == 2 * [["ours", "OutOfMemoryError: CUDA out of memory."]]
