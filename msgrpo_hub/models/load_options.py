"""How the weights of a model are loaded: the choices that every command offers. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgrpo_hub.choices import check_literals

Device = Literal["auto", "cpu", "cuda", "mps", "xpu"]


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How the weights of a model are loaded."""

    device: Device = "auto"
    """Where a model computes; `auto` is the GPU, or the CPU without one and for models too small to gain from one."""

    def __post_init__(self) -> None:
        check_literals(self)
