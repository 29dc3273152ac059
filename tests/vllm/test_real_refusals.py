"""Real servers that compute something else, or have other flags than the guide's, are refused before an update."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.vllm_server import VllmServer
from tests.vllm.real import CONFIG, GUIDE, UPDATING, RealServer, Watched, acting_on, publish_and_move


def test_a_server_of_another_base_is_refused(server: RealServer, tmp_path: Path) -> None:
    """The run's base has the tokenizer of the server's, and other weights."""
    model: Any = AutoModelForCausalLM.from_pretrained(pocket_path())
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(1.5)
    model.save_pretrained(tmp_path / "base")
    AutoTokenizer.from_pretrained(pocket_path()).save_pretrained(tmp_path / "base")
    config = replace(CONFIG, model=str(tmp_path / "base"))
    refused = pytest.raises(UserError, match=r"computes other log-probabilities than the base with the adapter: .* nats apart")
    with acting_on(tmp_path / "versions", VllmServer(url=server.url), config=config) as trainer, refused:
        trainer.update(1)
    assert server.adapters() == []


def test_an_adapter_that_is_not_of_this_version_is_noticed(server: RealServer, tmp_path: Path) -> None:
    """As version 3, the server loads the files of version 2."""
    versions, kept = tmp_path / "versions", tmp_path / "kept"
    watched = Watched(url=server.url, path_of=lambda path: str(kept) if path.endswith("v3") else path)
    with acting_on(versions, watched) as trainer:
        for _ in range(2):
            publish_and_move(trainer)
        shutil.copytree(versions / "v2", kept)
        asked = server.finished()
        with pytest.raises(UserError, match=r"answers with the version before, not with the version 'msgrpo-.*-v3'"):
            trainer.update(1)
        assert server.finished() - asked < 10  # the probes, and no reply
    assert server.adapters() == []


def test_an_adapter_of_a_larger_rank_than_the_server_takes_is_refused(server: RealServer, tmp_path: Path) -> None:
    config = replace(CONFIG, lora_rank=32)
    refused = pytest.raises(UserError, match=r"LoRA rank 32 is greater than max_lora_rank .*: expected one started with `VLLM_")
    with acting_on(tmp_path / "versions", VllmServer(url=server.url), config=config) as trainer, refused:
        trainer.update(1)
    assert server.adapters() == []


WRONG: dict[str, tuple[Mapping[str, str], Mapping[str, str], str]] = {
    "log-probabilities": (
        {flag: value for flag, value in GUIDE.items() if flag != "--logprobs-mode"},
        UPDATING,
        "reports log-probabilities without the temperature",
    ),
    "no-updating": (GUIDE, {}, "cannot load the adapter .*Not Found.*: expected one started with `VLLM_ALLOW"),
    "no-lora": (
        {flag: value for flag, value in GUIDE.items() if "lora" not in flag},
        UPDATING,
        "cannot load the adapter .*LoRA is not enabled.*: expected one started with",
    ),
    "short": (GUIDE | {"--max-model-len": "128"}, UPDATING, r"takes 128 tokens .*: start it with --max-model-len \d\d\d or more"),
}
"""Fault → flags, environment, and the message of the run."""


@pytest.mark.parametrize("wrong", WRONG)
def test_a_server_that_is_started_otherwise_is_refused_with_what_to_do(wrong: str, tmp_path: Path) -> None:
    flags, updating, message = WRONG[wrong]
    with (
        RealServer(tmp_path / "log", flags=flags, updating=updating) as other,
        acting_on(tmp_path / "versions", VllmServer(url=other.url)) as trainer,
        pytest.raises(UserError, match=message),
    ):
        trainer.update(1)
