"""The README's Python example runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.mark.slow
def test_the_example_in_the_readme_runs(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rewards = done.stdout.strip().splitlines()[-1]
    assert re.fullmatch(r"\[[01]\.0(, [01]\.0){3}\]", rewards), rewards


def test_every_file_the_readme_shows_exists() -> None:
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (Path(__file__).parent.parent / path).exists(), path
