"""A stand-in for tomli_w on a machine with only PyTorch, transformers and peft."""

from __future__ import annotations

import sys
from importlib import util
from types import ModuleType


def stand_in() -> None:
    """Installs an empty module if the package is missing; the script writes no TOML."""
    if "tomli_w" not in sys.modules and util.find_spec("tomli_w") is None:
        sys.modules["tomli_w"] = ModuleType("tomli_w")
