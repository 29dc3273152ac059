"""Trainers of a tiny model that act on loopback servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from accelerate import Accelerator

from msgrpo_hub.episode import Completion, Group
from msgrpo_hub.models.vllm_server import VllmServer
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.acting import VllmActor
from msgrpo_hub.training.trainer import Trainer
from tests.models.vllm_loopback import VllmLoopback


@contextmanager
def acting_on(servers: Sequence[VllmLoopback], config: TrainConfig, folder: Path, timeout: float = 20.0) -> Iterator[Trainer]:
    """A trainer whose episodes these servers play; a lost server is tried again after milliseconds."""
    given = [VllmServer(url=server.url, timeout=timeout) for server in servers]
    trainer = Trainer.from_config(config, Accelerator(cpu=True), lambda agent: VllmActor(agent, given, folder, pause=0.01))
    try:
        yield trainer
    finally:
        trainer.actor.close()


def actor_of(trainer: Trainer) -> VllmActor:
    return cast(VllmActor, trainer.actor)


def impatient(trainer: Trainer, patience: float) -> None:
    """Waits only so many seconds for a server from now on."""
    pool = actor_of(trainer)._pool
    assert pool is not None
    pool.patience = patience


def replies_of(groups: Sequence[Group]) -> list[Completion]:
    return [step.completion for group in groups for episode in group.episodes for step in episode.steps]
