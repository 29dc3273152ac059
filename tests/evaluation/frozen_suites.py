"""The hashes of the frozen tasks, written down a second time."""

from __future__ import annotations

import tomllib
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmark" / "suites"
LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Standard-v1"


# ---- the frozen suites

GOLDEN = {
    "Snake-Standard-v1": "1ad5e81ba0635f64",
    "Snake-PoisonApple-v1": "7ed20df7d7e09bcf",
    "FrozenLake-NotSlippery-v1": "3b5043755892e859",
    "FrozenLake-Slippery-v1": "f2de1b9e87da519c",
}
"""The tasks of the paper, once more: a hash that changes in code and TOML alike must be changed here by hand as well."""


def frozen() -> dict[str, str]:
    """Task → hash, over all suites; one task has one hash."""
    tasks: dict[str, str] = {}
    for path in FOLDER.glob("*.toml"):
        for task, hash in tomllib.loads(path.read_text())["tasks"].items():
            assert tasks.setdefault(task, hash) == hash, (path, task)
    return tasks
