"""The README's Python example runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def example(path: str) -> str:
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(encoding="utf-8"), re.DOTALL)
    return str(block)


@pytest.mark.slow
def test_the_example_in_the_readme_runs(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", example("README.md")], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rewards = done.stdout.strip().splitlines()[-1]
    assert re.fullmatch(r"\[[01]\.0(, [01]\.0){3}\]", rewards), rewards


def test_the_guide_shows_the_same_example() -> None:
    assert example("docs/guide/train.md") == example("README.md")
