"""What stands in for tomli_w on a machine that has PyTorch, transformers and peft only."""

from __future__ import annotations

import sys
from importlib import util
from types import ModuleType


def stand_in() -> None:
    """Puts an empty module where the package is missing: nothing is written as TOML there."""
    if util.find_spec("tomli_w") is None:
        sys.modules["tomli_w"] = ModuleType("tomli_w")
