"""The number of examples of a property: few in the fast tests, many in `make test-long`."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

TIMES = int(os.environ.get("MSGRPO_EXAMPLES", "1"))
"""Factor on the number of examples; `make test-long` sets it to 20."""


def examples(count: int, **options: Any) -> settings:
    return settings(max_examples=count * TIMES, **options)
