"""How many examples a property is tried on: a few with the other tests, many when tests run for a long time."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

TIMES = int(os.environ.get("MSGRPO_EXAMPLES", "1"))
"""Factor on the number of examples; `make test-long` sets it to 20."""


def examples(count: int, **options: Any) -> settings:
    """Settings of a property that is tried on this many examples."""
    return settings(max_examples=count * TIMES, **options)
