"""A GPU that is not there: tensors that lie about their device, compute on the CPU and refuse company from elsewhere.

Code that runs on a GPU fails there mostly for one reason: a tensor was left behind on the CPU. That needs no GPU to be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

GPU = torch.device("cuda", 0)
_MAY_MIX = {torch.Tensor.__getitem__, torch.Tensor.__setitem__, torch.Tensor.copy_}
"""PyTorch takes indices from the CPU for a tensor on a GPU, and copies between the two."""


class OnGpu(torch.Tensor):
    """A tensor that says it is on the GPU."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == torch.Tensor.device.__get__:  # type: ignore[attr-defined]
            return GPU
        if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return True
        if func is torch._has_compatible_shallow_copy_type:
            return False
        if func in (torch.Tensor.numpy, torch.Tensor.__array__):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        elsewhere = any(type(value) is not OnGpu and value.dim() for value in _tensors((*args, *kwargs.values())))
        if elsewhere and not (func in _MAY_MIX and isinstance(args[0], OnGpu)):
            raise RuntimeError(f"{func.__name__}: expected all tensors on one device, found {GPU} and cpu")
        made = super().__torch_function__(func, types, args, kwargs)
        if func == torch.Tensor.grad.__get__ and made is not None:  # type: ignore[attr-defined]
            return made.as_subclass(OnGpu)
        return made


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among some arguments, and in their lists."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


class _Machine(TorchFunctionMode):
    """Requests for `cuda` are carried out on the CPU, and the tensors lie from then on; those for `cpu` take them back."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        wanted = next((device for value in (*args, *kwargs.values()) if (device := _device(value))), None)
        if func is torch.Tensor.cpu:
            wanted = torch.device("cpu")
        if wanted is None or func in (torch.device, torch._C._nn._parse_to):
            return func(*args, **kwargs)
        args, kwargs = tree_map(lambda value: torch.device("cpu") if _device(value) else _plain(value), (args, kwargs))
        made = func(*args, **kwargs)
        return made.as_subclass(OnGpu) if wanted.type == "cuda" and isinstance(made, torch.Tensor) else made


def _device(value: Any) -> torch.device | None:
    """The device that a value names, where it is one of these two."""
    named = str(value).split(":")[0] if isinstance(value, str | torch.device) else ""
    return torch.device(value) if named in ("cpu", "cuda") else None


def _plain(value: Any) -> Any:
    return value.as_subclass(torch.Tensor) if isinstance(value, OnGpu) else value


@contextmanager
def fake_gpu() -> Iterator[None]:
    """While it lasts, `cuda` is a device like any other."""
    with _Machine():
        yield
