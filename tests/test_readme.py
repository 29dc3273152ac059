"""The Python examples of the README and the guide run unchanged."""

import re
from pathlib import Path

import pytest

from tests.command import Command
from tests.test_examples import output

pytestmark = pytest.mark.slow


def example(path: str) -> str:
    page = Path(__file__).parents[1] / path
    [block] = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return str(block)


def test_the_example_in_the_readme_runs(msgrpo: Command, tmp_path: Path) -> None:
    rewards = output(msgrpo, example("README.md"), tmp_path).strip().splitlines()[-1]
    assert re.fullmatch(r"\[[01]\.0(, [01]\.0){3}\]", rewards), rewards


def test_the_loop_over_a_gymnasium_environment_in_the_guide_runs(msgrpo: Command, tmp_path: Path) -> None:
    out = output(msgrpo, example("docs/guide/games.md"), tmp_path)
    assert re.match(r"┌─+┐\n(│ .* │\n){6}└─+┘ -?\d+\.0\n$", out), out
