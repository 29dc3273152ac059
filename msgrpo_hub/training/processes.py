"""The processes of a run: they find each other within a minute, and see the same folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from accelerate.utils import InitProcessGroupKwargs, gather_object, get_int_from_env
from torch.distributed.distributed_c10d import _set_pg_timeout

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.devices import check_device, gpu
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.run_folder import RunFolder

TO_MEET = timedelta(minutes=1)
"""How long a process waits for the others at the start. One that died before that is missed, not waited for."""

TO_WAIT = timedelta(days=1)
"""How long a process waits for the others later: the first one evaluates and downloads alone, and asks vLLM for all episodes. A
death is noticed at once."""

COMMAND = "torchrun --nproc-per-node 2 -m msgrpo_hub train …"


def make_accelerator(config: TrainConfig, folder: RunFolder) -> Accelerator:
    """Joins the processes that a launcher has started, if there are several.

    Raises:
        UserError: the device or the tracker cannot be used, a launcher that was to start several processes has started one, or
            the others do not appear within `TO_MEET`.
    """
    check_device(config.device)
    if config.report_to not in ("none", "all", *(tracker.value for tracker in get_available_trackers())):
        raise UserError(f"report_to = {config.report_to!r} cannot be used, it is not installed: install it or take 'none'")
    trackers = None if config.report_to == "none" else config.report_to
    check_launch()
    try:
        accelerator = Accelerator(
            cpu=processes() > 1 and _compute_on_cpu(config.device),
            log_with=trackers,
            project_dir=str(folder.path),
            kwargs_handlers=[InitProcessGroupKwargs(timeout=TO_MEET)],
        )
        if accelerator.num_processes > 1:
            accelerator.wait_for_everyone()  # some backends connect at their first operation
            _set_pg_timeout(TO_WAIT)
    except RuntimeError as error:  # of torch.distributed, which has its own below this one
        if processes() == 1:
            raise
        raise UserError(
            f"process {os.environ.get('RANK', '?')} did not meet the others of {processes()} within {TO_MEET.seconds} s "
            f"({str(error).splitlines()[0][:200]}): start all of them again, with one {COMMAND} on each node"
        ) from error
    return accelerator


def processes() -> int:
    """How many processes a launcher says it has started."""
    return int(get_int_from_env(["WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"], 1))


def check_launch() -> None:
    """Refuses `accelerate launch --cpu --num_processes 2`, which starts one process without a word.

    That launcher names an address where several processes are to meet, but not how many they are.
    """
    if {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR"} <= os.environ.keys() and processes() == 1 and "RANK" not in os.environ:
        raise UserError(f"accelerate was to launch several processes and has started one: expected {COMMAND}")


def _compute_on_cpu(device: str) -> bool:
    """Whether several processes compute on the CPU; accelerate needs to be told."""
    return device == "cpu" or (device == "auto" and gpu() in ("", "mps"))


@contextmanager
def agreed(accelerator: Accelerator) -> Iterator[None]:
    """Ends all processes if one of them refuses to go on, that is, raises a `UserError` inside.

    Raises:
        UserError: in the first process that refuses.
        SystemExit: in all others, which leave the words to that one.
    """
    own = None
    try:
        yield
    except UserError as error:
        own = error
    refused = [own is not None]
    if accelerator.num_processes > 1:
        refused = gather_object(refused)
    if own and refused.index(True) == accelerator.process_index:
        raise own
    if any(refused):
        raise SystemExit(2)


def check_shared(folder: RunFolder, accelerator: Accelerator) -> None:
    """Raises `UserError` in every process if not all of them see the same run in the folder: nodes must share its disk."""
    if accelerator.num_processes == 1:
        return
    seen = gather_object([(folder.path.is_dir(), folder.summary.exists(), folder.updates())])
    if len({*seen}) > 1:
        raise UserError(f"the processes do not see the same files in {str(folder.path)!r}: expected a disk that all nodes share")
