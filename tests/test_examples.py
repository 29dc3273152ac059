"""Every example runs unchanged from an empty folder; the notebook for a GPU runs with a tiny model."""

from __future__ import annotations

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


def run_notebook(name: str, folder: Path, **changes: str) -> tuple[str, set[str]]:
    """The printed text of a notebook and the types of what it shows, after changes of its source."""
    nbclient = pytest.importorskip("nbclient", reason="the extra dev is not installed")
    notebook = pytest.importorskip("nbformat").read(EXAMPLES / name, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if "install" not in cell.metadata.get("tags", [])]
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        assert (cell.outputs, cell.execution_count) == ([], None), "commit it without output"
        for old, new in changes.items():
            cell.source = re.sub(f"^{old} = .*", f"{old} = {new}", cell.source, flags=re.MULTILINE)
    nbclient.NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(folder)}}).execute()
    shown = [shown for cell in notebook.cells if cell.cell_type == "code" for shown in cell.outputs]
    return "".join(one.get("text", "") for one in shown), {kind for one in shown for kind in one.get("data", {})}


def test_the_notebook_learns_and_shows_a_replay(tmp_path: Path) -> None:
    text, shown = run_notebook("quickstart.ipynb", tmp_path)
    [(_, base), (adapter, _)] = re.findall(r"^(?:base|adapter) .*\[(.*), (.*)\]", text, re.MULTILINE)
    assert float(base) < float(adapter)
    assert {"image/svg+xml", "image/png"} <= shown


def run_gpu_notebook(model: Path, folder: Path) -> None:
    small = {"taught": 1, "updates": 2, "groups": 1, "group_size": 4, "selected_per_group": 2, "max_new_tokens": 32}
    small |= {"eval_every": 0, "test_episodes": 2}
    text, shown = run_notebook("gpu.ipynb", folder, MODEL=repr(str(model)), CHANGES=repr(small))
    assert re.search(r"^adapter +\d", text, re.MULTILINE)
    assert {"image/svg+xml", "image/png"} <= shown


def test_the_notebook_for_a_gpu_runs_in_miniature(tmp_path: Path, tiny_model: Path) -> None:
    run_gpu_notebook(tiny_model, tmp_path)


def test_every_example_is_listed_and_run() -> None:
    listed = set(re.findall(r"^\| \[(.*?)\]", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name in listed if Path(name).stem not in tests] == []
