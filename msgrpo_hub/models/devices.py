"""Where a model computes: the CPU and its threads, or the GPU of this machine."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy.typing as npt
import psutil
import torch
from torch import Tensor

from msgrpo_hub.errors import UserError

SMALL_MODEL = 10_000_000
"""Models with fewer parameters use the CPU under `auto`, and one thread there. An estimate: a CPU reads such weights in the time
that a GPU takes to launch the kernels of a decoding step."""

log = logging.getLogger(__name__)


def gpu() -> str:
    """The type of this machine's GPU, such as `cuda`, `mps` or `xpu`; empty if torch finds none."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return found.type if found else ""


def to_device(values: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copies values to a device. CUDA copies from pinned memory, so that the program does not wait for running kernels."""
    tensor = torch.from_numpy(values)
    if device.type == "cuda" and torch.cuda.is_available():
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def autocasts(model: Any) -> bool:
    """Whether a model computes in 16 bits by autocast, because LoRA in float32 is slower and keeps copies of its inputs."""
    here = model.device.type == "cpu" or (model.device.type == "cuda" and torch.cuda.is_available())
    return here and model.dtype in (torch.bfloat16, torch.float16)


def sixteen_bits(model: Any) -> AbstractContextManager[Any]:
    """Autocast, if the model computes by it."""
    return torch.autocast(model.device.type, model.dtype) if autocasts(model) else nullcontext()


def check_device(device: str) -> None:
    """Raises `UserError` if this machine lacks a device."""
    present = ["auto", "cpu", *filter(None, [gpu()])]
    if device.partition(":")[0] not in present:
        expected = " or ".join(present)
        raise UserError(f"device = {device!r}: torch finds no such device on this machine; expected {expected}")


def choose_device(wanted: str, parameters: int) -> str:
    """The device for a model with this many parameters: `cpu`, or a GPU of this machine, as in `cuda:1`.

    Where `auto` has a choice, the log says which it took and why. Raises `UserError` if the machine has no such device.
    """
    check_device(wanted)
    if wanted != "auto" or not (other := gpu()):
        return "cpu" if wanted == "auto" else wanted
    chosen, rest = ("cpu", other) if parameters < SMALL_MODEL else (other, "cpu")
    log.warning("running on %s: a model of %.1f M parameters is faster there than on %s", chosen, parameters / 1e6, rest)
    return chosen


def free_memory(device: str) -> int:
    """Free bytes of the memory that a device computes in; `auto` is the GPU if there is one."""
    kind = gpu() if device == "auto" else device.partition(":")[0]
    return torch.cuda.mem_get_info()[0] if kind == "cuda" else int(psutil.virtual_memory().available)


def return_freed_memory() -> None:
    """Returns freed memory to the system where glibc would keep it, more with every update; takes about 0.1 s for 1 GB."""
    with suppress(AttributeError, TypeError):  # another C library, Windows
        ctypes.CDLL(None).malloc_trim(0)


def free_cores() -> int:
    """The threads of torch, at most as many as the cgroup allows, less the cores that other programs use; at least 1.

    A core counts as used if it is busy for half a second and was during the last minute.
    """
    cores = float(torch.get_num_threads())
    with suppress(OSError, ValueError):  # no such file, or no limit
        quota, period = map(float, Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split())
        cores = min(cores, quota / period)
    busy = min(psutil.getloadavg()[0], sum(psutil.cpu_percent(0.5, percpu=True)) / 100)
    return max(1, int(cores - busy + 0.5))


@contextmanager
def on_threads(count: int | None) -> Iterator[None]:
    """Sets the CPU threads of torch inside the context. None keeps torch's setting. Restores it on exit."""
    before = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
