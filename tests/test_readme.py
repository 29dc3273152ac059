"""The README's Python example runs as it stands."""

import re
from pathlib import Path

import pytest

from tests.command import Command

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


def example(path: str) -> str:
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(encoding="utf-8"), re.DOTALL)
    return str(block)


def test_the_example_in_the_readme_runs(msgrpo: Command, tmp_path: Path) -> None:
    done = msgrpo(program=example("README.md"), folder=tmp_path)
    assert done.code == 0, done.err
    rewards = done.out.strip().splitlines()[-1]
    assert re.fullmatch(r"\[[01]\.0(, [01]\.0){3}\]", rewards), rewards


def test_the_loop_over_a_gymnasium_environment_in_the_guide_runs(msgrpo: Command, tmp_path: Path) -> None:
    done = msgrpo(program=example("docs/guide/games.md"), folder=tmp_path)
    assert done.code == 0, done.err
    assert re.match(r"┌─+┐\n(│ .* │\n){6}└─+┘ -?\d+\.0\n$", done.out), done.out
