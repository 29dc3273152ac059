"""Two updates of training, and every use of the adapter afterwards."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoTokenizer

from msgrpo_hub.storage.shards import read_table
from tests.cli.suites import write_suite
from tests.command import Command
from tests.files import sha256
from tests.hub_server.lanes import Loopback
from tests.hub_server.store import Blob, Repository
from tests.real.cases import NEW_TOKENS, Case, Record, check_close, chosen, greedy, next_log_probs, plain_model
from tests.real.models import SOURCES
from tests.real.short import LAKE, msgrpo
from tests.training.runs import metrics, updates_safe

WEIGHTS = Path("adapter", "adapter_model.safetensors")


def test_two_updates_move_the_adapter_by_finite_gradients(
    case: Case, command: Command, run: Path, record_property: Record
) -> None:
    lines = metrics(run)
    assert [line["update"] for line in lines] == [1, 2]
    assert all(math.isfinite(line["loss"]) and 0 < line["gradient_norm"] < math.inf for line in lines)
    assert any(bool(weight.any()) for name, weight in load_file(run / WEIGHTS).items() if "lora_B" in name)
    record_property("deviation", lines[0]["kl"])
    assert lines[0]["kl"] < 1e-4  # nothing has moved yet
    if case.dtype == "float16":
        record_property("note", "float16 refused, trained in bfloat16")
        refused = command("train", "--model", case.folder, "--dtype", "float16", "--output-dir", run.parent / "refused")
        assert (refused.code, len(refused.said)) == (2, 1), refused.err


def test_a_run_killed_in_its_second_update_goes_on_bit_for_bit(command: Command, training: list[object], run: Path) -> None:
    killed = run.parent / "killed"
    flags = [*training, "--resume", "--output-dir", killed]
    assert command(*flags, die_at=("Trainer.gradient", "call", 2)).code == -signal.SIGKILL
    assert updates_safe(killed) == 1
    done = command(*flags)
    assert done.code == 0, done.err
    assert sha256(killed / WEIGHTS) == sha256(run / WEIGHTS)
    assert metrics(killed) == metrics(run)


def log_probs(model: Any, case: Case) -> list[torch.Tensor]:
    """Log-probabilities of the base's greedy replies and the ends of their prompts, by forward passes of a model."""
    pairs = [reply.scored for reply in greedy(case.model, case.dtype)]
    return [chosen(next_log_probs(model, prompt, end), end) for prompt, end in pairs]


Merged = tuple[Path, list[torch.Tensor], torch.Tensor]
"""A folder, log-probabilities by PEFT, and their differences from float32."""


@pytest.fixture(scope="module")
def merged(usable: Case, run: Path) -> Merged:
    """The folder of the merged model, made as in the guide, and the log-probabilities of plain PEFT with the adapter."""
    folder = run.parent / "merged"
    by_peft = log_probs(PeftModel.from_pretrained(plain_model(usable.folder, usable.dtype), run / "adapter").eval(), usable)
    adapted = PeftModel.from_pretrained(plain_model(usable.folder, "float32"), run / "adapter").eval()
    rounding = torch.cat(by_peft) - torch.cat(log_probs(adapted, usable))
    adapted.merge_and_unload().to(getattr(torch, usable.dtype)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(usable.folder).save_pretrained(folder)
    return folder, by_peft, rounding


def test_an_adapter_computes_here_what_it_computes_in_peft(
    usable: Case, run: Path, merged: Merged, record_property: Record
) -> None:
    policy = usable.policy(run / "adapter")
    replies = greedy(usable.model, usable.dtype)
    pairs = [reply.scored for reply in replies]
    scores = policy.engine.score([prompt for prompt, _ in pairs], [[end] for _, end in pairs])
    _, by_peft, rounding = merged
    check_close(usable, [torch.tensor(of_prompt) for [of_prompt] in scores], by_peft, rounding, record_property)
    base = torch.cat([chosen(reply.own, reply.scored[1]) for reply in replies])
    assert (torch.cat(by_peft) - base).abs().max() > 0.05  # the adapter matters


def test_a_merged_model_computes_what_its_adapter_computes(usable: Case, merged: Merged, record_property: Record) -> None:
    folder, by_peft, rounding = merged
    check_close(usable, log_probs(plain_model(folder, usable.dtype), usable), by_peft, rounding, record_property)


def test_base_adapter_and_merged_model_are_evaluated_compared_and_verified(
    usable: Case, command: Command, run: Path, merged: Merged, tmp_path: Path
) -> None:
    flags = ["--dtype", usable.dtype, "--engine", usable.engine, "--max-new-tokens", NEW_TOKENS, "--temperature", 0]
    suite = write_suite(tmp_path / "suite.toml", 2, LAKE.id)
    for name, player in (("base", usable.folder), ("adapter", run / "adapter"), ("merged", merged[0])):
        done = command("eval", player, "--suite", suite, *flags, *usable.template, "--output-dir", tmp_path / name)
        assert done.code == 0, done.err
    steps = {path.relative_to(tmp_path).parts[0]: read_table(path, "steps") for path in tmp_path.rglob("steps.parquet")}
    replies = {name: table["reply"].to_pylist() for name, table in steps.items()}
    assert usable.dtype != "float32" or replies["merged"] == replies["adapter"]
    for folder in (tmp_path / "base", tmp_path / "adapter", tmp_path / "merged", run):
        assert command("verify", folder).code == 0, folder
    compared = command("compare", tmp_path / "base", tmp_path / "adapter", "--json")
    assert compared.code == 0, compared.err
    json.loads(compared.out)


def test_an_adapter_is_pushed_with_the_base_on_the_hub_that_has_equal_files(
    usable: Case, run: Path, loopback: Loopback, tmp_path: Path
) -> None:
    base = Repository(kind="model", id=SOURCES[usable.model].original)
    files = {path.name: Blob(content=path.read_bytes(), lfs=path.suffix == ".safetensors") for path in usable.folder.iterdir()}
    base.put("refs/heads/main", files, "the base", base.owner)
    loopback.hub.repositories[base.kind, base.id] = base
    folder = tmp_path / "pushed"
    done = loopback.owner.attempt(msgrpo, "push", "adapter", run, loopback.repository(), "--base", base.id, "--dry-run", folder)
    assert done.code == 0, done.err
    assert sha256(folder / WEIGHTS.name) == sha256(run / WEIGHTS)
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == base.id
