"""Trainers of the built-in base that act on real servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch
from accelerate import Accelerator

from msgrpo_hub.models.vllm_pool import VllmPool
from msgrpo_hub.models.vllm_server import VllmServer
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.acting import VllmActor
from msgrpo_hub.training.trainer import Trainer

CONFIG = TrainConfig(groups=2, group_size=4, selected_per_group=4, learning_rate=1e-3, max_new_tokens=32, temperature=1.25)


@contextmanager
def acting_on(folder: Path, *servers: VllmServer, config: TrainConfig = CONFIG) -> Iterator[Trainer]:
    """A trainer whose episodes these servers play; versions of its adapter are in the folder."""
    trainer = Trainer.from_config(config, Accelerator(cpu=True), lambda agent: VllmActor(agent, servers, folder))
    try:
        yield trainer
    finally:
        trainer.actor.close()


def publish_and_move(trainer: Trainer) -> None:
    """Gives the servers the present weights as a version; then moves them, as learning does where returns differ."""
    actor = cast(VllmActor, trainer.actor)
    actor._publish(trainer.starts.games)
    generator = torch.Generator().manual_seed(actor._versions)
    with torch.no_grad():
        for name, parameter in trainer.parameters.items():
            if "lora_B" in name:
                parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))


def version_name(trainer: Trainer) -> str:
    """What the servers call the present version."""
    version = _pool(trainer)._version
    assert version is not None
    return version.name


def wait_for_all(trainer: Trainer) -> None:
    """Prepares every server: a first one is enough for a pool."""
    pool, deadline = _pool(trainer), time.monotonic() + 300
    while not all(member.ready for member in pool._members.values()):
        assert time.monotonic() < deadline
        pool._release(pool._take()[0])


def _pool(trainer: Trainer) -> VllmPool:
    actor = cast(VllmActor, trainer.actor)
    assert actor._pool is not None
    return actor._pool
