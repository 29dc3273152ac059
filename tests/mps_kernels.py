"""The operations that PyTorch has for a GPU of Apple (MPS), from the list that comes with the installed torch."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import torchgen
from torch.utils._python_dispatch import TorchDispatchMode

_LIST = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
_ONLY_ON_CPU = {"_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward"}
"""What the CPU runs where MPS runs a kernel of its own for the same operation."""


@cache
def _kernels() -> dict[str, tuple[frozenset[str], str]]:
    """Operation → the backends that have a kernel for it, and the operation that it is delegated to."""
    found = {}
    for entry in _LIST.read_text(encoding="utf-8").split("\n- func: ")[1:]:
        table = re.search(r"^  dispatch:\n((?:    .*\n?)+)", entry, re.MULTILINE)
        rows = [row.partition(":")[0] for row in table[1].splitlines() if not row.lstrip().startswith("#")] if table else []
        delegate = re.search(r"^  structured_delegate: (\S+)", entry, re.MULTILINE)
        backends = frozenset(name.strip() for row in rows for name in row.split(","))
        found[entry.partition("(")[0]] = backends, delegate[1] if delegate else ""
    return found


@cache
def runs_on_mps(operation: str) -> bool:
    """Whether MPS has a kernel, or the operation is made of others.

    >>> runs_on_mps("searchsorted.Tensor"), runs_on_mps("_linalg_eigh")
    (True, False)
    """
    backends, delegate = _kernels().get(operation, (frozenset(), ""))
    if delegate:
        return runs_on_mps(delegate)
    return not backends or any(name == "MPS" or name.startswith("Composite") for name in backends)


class OnlyMpsKernels(TorchDispatchMode):
    """Refuses the operations that have no kernel on MPS, also in a backward pass."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::")
        if name not in _ONLY_ON_CPU and not runs_on_mps(name):
            raise NotImplementedError(f"The operator 'aten::{name}' is not currently implemented for the MPS device.")
        return func(*args, **(kwargs or {}))
