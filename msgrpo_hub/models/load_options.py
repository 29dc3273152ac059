"""The options for loading a model, which every command offers. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgrpo_hub.fields import Range, check_fields

Device = Literal["auto", "cpu", "cuda", "mps", "xpu"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
EngineName = Literal["auto", "fast", "plain"]

Temperature = Annotated[float, Range(0, 1000)]
ReplyLength = Annotated[int, Range(1, 1_000_000)]
TopK = Annotated[int, Range(0, 10_000_000)]
TopP = Annotated[float, Range(0, 1, open=True)]


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How a model is loaded and computed."""

    device: Device = "auto"
    """Where a model computes; `auto` is the GPU, or the CPU without one and for small models."""
    engine: EngineName = "auto"
    """How a model computes: `fast` shares prefixes, `plain` uses the model's own forward; `auto` is fast where that is exact."""
    dtype: Dtype = "auto"
    """Type of the weights; `auto` is the type that they are stored in."""
    load_in_4bit: bool = False
    """Quantise the linear layers to 4 bits (NF4) with bitsandbytes: a quarter of the memory of 16 bits."""

    def __post_init__(self) -> None:
        check_fields(self)
