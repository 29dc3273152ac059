"""Simulated GPUs: tensors that report a GPU as their device, compute on the CPU and raise the errors of that GPU.

Most failures of untested code on a GPU are tensors left on the CPU, which this detects without a GPU.
A GPU of Apple (MPS) also lacks float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from msgrpo_hub.models import devices

CUDA, MPS = torch.device("cuda", 0), torch.device("mps", 0)
_MAY_MIX = {torch.Tensor.__getitem__, torch.Tensor.__setitem__, torch.Tensor.copy_}
"""PyTorch takes indices from the CPU for a tensor on a GPU, and copies between the two."""


class OnGpu(torch.Tensor):
    """A tensor that reports a GPU as its device."""

    place = CUDA

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == torch.Tensor.device.__get__:  # type: ignore[attr-defined]
            return cls.place
        if func in (torch.Tensor.is_cuda.__get__, torch.Tensor.is_mps.__get__):  # type: ignore[attr-defined]
            return func == getattr(torch.Tensor, f"is_{cls.place.type}").__get__
        if func is torch._has_compatible_shallow_copy_type:
            return False
        if func in (torch.Tensor.numpy, torch.Tensor.__array__):
            raise TypeError(f"can't convert {cls.place} device type tensor to numpy")
        elsewhere = any(not isinstance(value, OnGpu) and value.dim() for value in _tensors((*args, *kwargs.values())))
        if elsewhere and not (func in _MAY_MIX and isinstance(args[0], OnGpu)):
            raise RuntimeError(f"{func.__name__}: expected all tensors on one device, found {cls.place} and cpu")
        made = cls.compute(func, types, args, kwargs)
        if func == torch.Tensor.grad.__get__ and made is not None:  # type: ignore[attr-defined]
            return made.as_subclass(cls)
        return made

    @classmethod
    def compute(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return super().__torch_function__(func, types, args, kwargs)


class OnMps(OnGpu):
    """A tensor that reports a GPU of Apple, without float64."""

    place = MPS

    @classmethod
    def compute(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return refuse_float64(super().compute(func, types, args, kwargs))


def refuse_float64(made: Any) -> Any:
    """Raises the error of MPS if a result has float64."""
    kinds = {value.dtype for value in tree_leaves(made) if isinstance(value, OnMps)}
    if kinds & {torch.float64, torch.complex128}:
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.")
    return made


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among some arguments, and in their lists."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


class _Machine(TorchFunctionMode):
    """Carries out requests for the GPU on the CPU and marks the tensors; `cpu` unmarks them."""

    def __init__(self, kind: type[OnGpu]) -> None:
        super().__init__()
        self.kind = kind

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        wanted = next((device for value in (*args, *kwargs.values()) if (device := self.device(value))), None)
        if func is torch.Tensor.cpu:
            wanted = torch.device("cpu")
        if wanted is None or func in (torch.device, torch._C._nn._parse_to):
            return func(*args, **kwargs)
        args, kwargs = tree_map(lambda value: torch.device("cpu") if self.device(value) else _plain(value), (args, kwargs))
        made = func(*args, **kwargs)
        there = wanted.type != "cpu" and isinstance(made, torch.Tensor)
        return refuse_float64(made.as_subclass(self.kind)) if there else made

    def device(self, value: Any) -> torch.device | None:
        """The device that a value names, if it is the CPU or this GPU."""
        named = str(value).split(":")[0] if isinstance(value, str | torch.device) else ""
        return torch.device(named) if named in ("cpu", self.kind.place.type) else None


def _plain(value: Any) -> Any:
    return value.as_subclass(torch.Tensor) if isinstance(value, OnGpu) else value


@contextmanager
def fake_gpu(kind: type[OnGpu] = OnGpu) -> Iterator[None]:
    """Inside the context, this machine has a simulated GPU."""
    with _Machine(kind), patch.object(devices, "gpu", lambda: kind.place.type):
        yield
