"""Atomic file writes: after a kill, the file is either the old one or the new one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a temporary file beside `path`, then moves it into place."""
    beside = path.with_name(f".{path.name}.new")
    try:
        write(beside)
        with beside.open("r+b") as file:
            os.fsync(file.fileno())  # Windows wants a file open for writing
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Writes JSON atomically, with sorted keys, so that equal content gives equal bytes."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    write_atomically(path, lambda beside: beside.write_text(text, encoding="utf-8", newline="\n"))
