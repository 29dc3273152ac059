"""`python -m benchmark.families` measures every family and writes `families.json` and its page; with names, their rows.

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
from benchmark.families.page import page
from benchmark.families.tiny import families

RESULTS = Path(__file__).with_name("families.json")
PAGE = Path(__file__).with_name("README.md")
SECONDS = 40
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
    """Measures the families of these names, or all, and writes their rows; other rows of the same transformers stay."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if names and RESULTS.exists() else {}
    rows = stored["families"] if stored.get("transformers") == transformers.__version__ else {}
    for family in names or families():
        rows[family] = measured(family)
        print(family, json.dumps(rows[family]), flush=True)
    content = {"transformers": transformers.__version__, "families": {name: rows[name] for name in families() if name in rows}}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    write_page()


def write_page() -> None:
    """Writes the page from what is stored."""
    PAGE.write_text(page(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
