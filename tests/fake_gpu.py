"""A simulated GPU: tensors that report it as their device, compute on the CPU and raise its errors.

Most failures of untested code on a GPU are tensors left on the CPU, which this detects without a GPU. A GPU of
Apple (`mps`) refuses float64 too.
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

CUDA = torch.device("cuda", 0)
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
        if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return cls.place == CUDA
        if func is torch._has_compatible_shallow_copy_type:
            return False
        if func in (torch.Tensor.numpy, torch.Tensor.__array__):
            raise TypeError(f"can't convert {cls.place} device type tensor to numpy")
        elsewhere = any(not isinstance(value, OnGpu) and value.dim() for value in _tensors((*args, *kwargs.values())))
        if elsewhere and not (func in _MAY_MIX and isinstance(args[0], OnGpu)):
            raise RuntimeError(f"{func.__name__}: expected all tensors on one device, found {cls.place} and cpu")
        made = super().__torch_function__(func, types, args, kwargs)
        if cls.place.type == "mps" and any(isinstance(of, OnGpu) and of.dtype == torch.float64 for of in tree_leaves(made)):
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.")
        if func == torch.Tensor.grad.__get__ and made is not None:  # type: ignore[attr-defined]
            return made.as_subclass(cls)
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

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        wanted = next((device for value in (*args, *kwargs.values()) if (device := _device(value))), None)
        if func is torch.Tensor.cpu:
            wanted = torch.device("cpu")
        if wanted is None or func in (torch.device, torch._C._nn._parse_to):
            return func(*args, **kwargs)
        args, kwargs = tree_map(_on_cpu, (args, kwargs))
        made = func(*args, **kwargs)
        return made.as_subclass(OnGpu) if wanted.type != "cpu" and isinstance(made, torch.Tensor) else made


def _device(value: Any) -> torch.device | None:
    """The device that a value names, if it is the CPU or this GPU."""
    named = str(value).split(":")[0] if isinstance(value, str | torch.device) else ""
    return torch.device(named) if named in ("cpu", OnGpu.place.type) else None


def _on_cpu(value: Any) -> Any:
    if isinstance(value, OnGpu):
        return value.as_subclass(torch.Tensor)
    return torch.device("cpu") if _device(value) else value


@contextmanager
def fake_gpu(place: str = "cuda") -> Iterator[None]:
    """Inside the context, this machine has a simulated GPU. CUDA's autocast is the CPU's."""
    autocast = torch.autocast
    with (
        _Machine(),
        patch.object(devices, "gpu", lambda: place),
        patch.object(OnGpu, "place", torch.device(place, 0)),
        patch.object(devices, "autocasts", lambda model: place == "cuda" and model.dtype == torch.bfloat16),
        patch.object(torch, "autocast", lambda _kind, dtype: autocast("cpu", dtype)),
    ):
        yield
