"""Every example and the notebook run unchanged from an empty folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.command import Command

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"

SHOWS = {
    "train.py": r"adapter: mean reward -?\d\.\d\d in 5 test episodes\n(.*→.*\n)+$",
    "own_game.py": r"right: reached the door in (\d\d) of 20 episodes\nrandom: reached the door in \d+ of 20 episodes\n",
    "own_player.py": r"right: success on \d\d of 50 boards\nchoose_at_random: success on \d of 50 boards\n",
    "own_prompt_format.py": r"^(Answer: \d  →  \w+, reward \d\n){6}$",
    "trl_rollout.py": r"before: success on \d+ of 50 test boards\n(.*\n)*after \d+ updates: success on \d+ of 50 test boards\n",
    "evaluate_and_push.py": r"greedy − random = -?\d\.\d\d, 95 % interval \[.*\d+  README.md\n",
}
"""Script → a pattern of its output."""


def output(msgrpo: Command, program: str, folder: Path) -> str:
    done = msgrpo(program=program, folder=folder)
    assert done.code == 0, done.err
    return done.out


@pytest.mark.parametrize("name", SHOWS)
def test_a_script_runs_and_shows_its_results(msgrpo: Command, name: str, tmp_path: Path) -> None:
    assert re.search(SHOWS[name], output(msgrpo, (EXAMPLES / name).read_text(encoding="utf-8"), tmp_path), re.DOTALL)


def test_the_notebook_runs_from_top_to_bottom(msgrpo: Command, tmp_path: Path) -> None:
    cells = json.loads((EXAMPLES / "quickstart.ipynb").read_text(encoding="utf-8"))["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    returns = re.findall(r"returns of the group: \[(.*)\]", output(msgrpo, program, tmp_path))
    assert [len(line.split(",")) for line in returns] == [8, 8]
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", json.dumps(cells)):
        assert (tmp_path / picture).exists()


def test_the_notebook_is_committed_without_output() -> None:
    cells = json.loads((EXAMPLES / "quickstart.ipynb").read_text(encoding="utf-8"))["cells"]
    assert not [cell for cell in cells if cell["cell_type"] == "code" and (cell["outputs"] or cell["execution_count"])]


def test_every_example_is_listed_and_run() -> None:
    listed = set(re.findall(r"^\| \[(.*?)\]", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name in listed if Path(name).stem not in tests] == []
