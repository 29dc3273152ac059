"""`python -m benchmark.families` measures every family and writes `families.json`; with names, it prints theirs.

A family that crashes or does not end is one row of the table, not the end of the command: each has a process of its own.
"""

from __future__ import annotations

import json
import multiprocessing
import queue
import sys
from pathlib import Path
from typing import Any

import transformers

from benchmark.families.measure import measure
from benchmark.families.tiny import families

RESULTS = Path(__file__).with_name("families.json")
SECONDS = 120
"""Most time for one family."""


def measured(family: str) -> dict[str, Any]:
    """The row of a family, from a process of its own."""
    context = multiprocessing.get_context("fork")
    rows: multiprocessing.Queue[dict[str, Any]] = context.Queue()
    process = context.Process(target=lambda: rows.put(measure(family)))
    process.start()
    try:
        return rows.get(timeout=SECONDS)
    except queue.Empty:
        process.kill()
        return {"refused": f"its tiny model does not end within {SECONDS} s"}
    finally:
        process.join()


def main(names: list[str]) -> None:
    """Measures the families of these names, or all."""
    rows = {}
    for family in names or families():
        rows[family] = measured(family)
        print(family, json.dumps(rows[family]), flush=True)
    if not names:
        content = {"transformers": transformers.__version__, "families": rows}
        RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
