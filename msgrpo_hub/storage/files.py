"""Files written whole or not at all: after a kill, a reader finds the old file or the new one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a file beside `path`, then puts it in place: the old file or the new one, never a part."""
    beside = path.with_name(f".{path.name}.new")
    try:
        write(beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Writes JSON at once, with sorted keys, so that equal content is equal bytes."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    write_atomically(path, lambda beside: beside.write_text(text, encoding="utf-8"))
