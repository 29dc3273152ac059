"""Real servers that are killed, hang, lose or swap the adapter while they play: noticed, repeated, nothing stale learned from."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from msgrpo_hub.models.vllm_server import VllmServer
from msgrpo_hub.training.trainer import Trainer
from tests.training.test_vllm import assert_all_of_this_version
from tests.vllm.real import CONFIG, Fault, RealServer, Watched, acting_on, publish_and_move, version_name

Record = Callable[[str, object], None]


def learned_with_a_fault(trainer: Trainer, fault: Fault) -> float:
    """Plays an update with the fault, checks every reply, and learns. Returns the seconds of playing."""
    fault.arm()
    started = time.monotonic()
    groups = trainer.act(trainer.starts.of_update(1))
    seconds = time.monotonic() - started
    assert fault.happened
    assert sum(len(group.episodes) for group in groups) == trainer.starts.groups * trainer.config.group_size
    assert not [episode.error for group in groups for episode in group.episodes if episode.error]
    assert_all_of_this_version(trainer, groups)
    metrics = trainer.sampler_distance([trainer.packed(trainer.select(groups, 1).selected)], 1)
    assert abs(metrics["sampler_k3"]) < 1e-6
    return seconds


def test_a_server_that_is_killed_and_started_anew_gets_the_adapter_anew(
    server: RealServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, record_property: Record
) -> None:
    def restart() -> None:
        server.stop()
        server.start()

    fault = Fault(restart)
    with acting_on(tmp_path, Watched(url=server.url, before=fault.before)) as trainer:
        publish_and_move(trainer)
        record_property("seconds_with_restart", round(learned_with_a_fault(trainer, fault), 1))
        assert f"{server.url} does not respond (no response" in caplog.text
        assert server.adapters() == [version_name(trainer)]


def test_a_server_that_hangs_is_noticed_and_its_turns_are_repeated(
    server: RealServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, record_property: Record
) -> None:
    def hang() -> None:
        server.freeze()
        time.sleep(40)
        server.thaw()

    fault = Fault(hang)
    with acting_on(tmp_path, Watched(url=server.url, timeout=30.0, before=fault.before)) as trainer:
        publish_and_move(trainer)
        record_property("seconds_with_40_s_of_silence", round(learned_with_a_fault(trainer, fault), 1))
        assert "does not respond (no response (ReadTimeout))" in caplog.text


def test_an_adapter_that_is_swapped_in_silence_is_noticed_and_its_episodes_are_played_again(
    server: RealServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Under the name of this version, the server computes the version before; no request fails."""
    versions, old = tmp_path / "versions", tmp_path / "old"

    def swap() -> None:
        body = {"lora_name": version_name(trainer), "lora_path": str(old), "load_inplace": True}
        VllmServer(url=server.url)._ask("POST", "/v1/load_lora_adapter", body)

    fault = Fault(swap)
    with acting_on(versions, Watched(url=server.url, before=fault.before)) as trainer:
        publish_and_move(trainer)  # the base's probabilities
        publish_and_move(trainer)
        shutil.copytree(versions / "v2", old)
        learned_with_a_fault(trainer, fault)
        assert "answers with the version before, not with the version" in caplog.text
        assert "episodes are played again, because" in caplog.text


def test_two_servers_share_the_load_and_one_that_is_killed_leaves_it_to_the_other(
    server: RealServer, second: RealServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, record_property: Record
) -> None:
    fault = Fault(second.stop)
    servers = (VllmServer(url=server.url), Watched(url=second.url, before=fault.before))
    with acting_on(tmp_path, *servers, config=replace(CONFIG, groups=6)) as trainer:
        publish_and_move(trainer)
        before = [one.finished() for one in (server, second)]
        trainer.update(1)
        shares = [one.finished() - count for one, count in zip((server, second), before, strict=True)]
        record_property("requests", shares)
        record_property("seconds_with_one_killed", round(learned_with_a_fault(trainer, fault), 1))
        assert f"{second.url} does not respond" in caplog.text
    assert min(shares) > 20  # checking a version takes fewer
    assert server.adapters() == []
