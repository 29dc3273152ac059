"""Where a model computes: the CPU, or the GPU of this machine."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy.typing as npt
import psutil
import torch
from torch import Tensor

from msgrpo_hub.errors import UserError

SMALL_MODEL = 10_000_000
"""Models with fewer parameters run on the CPU under `auto`. An estimate, not measured on a GPU.

A decoding step costs a GPU the same whatever the size: some hundred kernel launches and a few waits for the sampled tokens,
together some milliseconds. A CPU reads 10 million float32 weights in about as much time. No known model is near the limit:
the built-in base has 0.8 million parameters, the smallest chat models of the Hub more than 100 million.
"""

_FLOAT64 = ("cpu", "cuda")
"""Kinds of devices that certainly have float64. MPS has none, and some Intel GPUs have none."""

log = logging.getLogger(__name__)


def gpu() -> str:
    """The kind of this machine's GPU, such as `cuda`, `mps` or `xpu`; empty if torch finds none."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return found.type if found else ""


def there(values: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Values on a device. A GPU takes them from pinned memory, so that the program does not wait for what it still computes."""
    tensor = torch.from_numpy(values)
    if device.type == "cuda" and torch.cuda.is_available():
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def check_device(device: str) -> None:
    """Refuses a device that this machine lacks.

    >>> check_device("auto")
    >>> check_device("cpu")
    """
    kind = device.partition(":")[0]
    if kind not in ("auto", "cpu", gpu()):
        present = " or ".join(["auto", "cpu", *filter(None, [gpu()])])
        raise UserError(f"device = {device!r}: torch finds no such device on this machine; expected {present}")


def choose_device(wanted: str, parameters: int) -> str:
    """The device that a model runs on. Where `auto` has a choice, the log says what it chose and why.

    Args:
        wanted: `auto`, `cpu`, or the kind of this machine's GPU, also with an index, as in `cuda:1`.
        parameters: number of parameters of the model.

    Raises:
        UserError: the machine has no such device.
    """
    check_device(wanted)
    if wanted != "auto":
        return wanted
    other = gpu()
    if not other:
        return "cpu"
    chosen, rest = ("cpu", other) if parameters < SMALL_MODEL else (other, "cpu")
    log.warning("running on %s: a model of %.1f M parameters is faster there than on %s", chosen, parameters / 1e6, rest)
    return chosen


def free_memory(device: str) -> int:
    """Free bytes of the memory that a device computes in; `auto` is the GPU if there is one."""
    kind = gpu() if device == "auto" else device.partition(":")[0]
    return torch.cuda.mem_get_info()[0] if kind == "cuda" else int(psutil.virtual_memory().available)


def current(device: torch.device) -> AbstractContextManager[None]:
    """Makes one of several GPUs the one that kernels and graphs run on, which is not that of their tensors by itself."""
    return torch.cuda.device(device) if device.type == "cuda" and torch.cuda.is_available() else nullcontext()


def all_memory(device: torch.device) -> int:
    """Bytes of the memory that a device computes in."""
    is_cuda = device.type == "cuda" and torch.cuda.is_available()
    return torch.cuda.mem_get_info(device)[1] if is_cuda else int(psutil.virtual_memory().total)


def has_float64(device: torch.device) -> bool:
    """Whether a device certainly computes in float64."""
    return device.type in _FLOAT64
