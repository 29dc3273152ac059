"""With `--json` a command prints its records as one JSON document, and nothing else, on standard output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from msgrpo_hub.cli import main
from msgrpo_hub.evaluation.suites import hash_of
from tests.evaluation.test_methods import seeds
from tests.training.seed_runs import write_set

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"

PRINTED = {
    f"games {LAKE} {SNAKE}": "id",
    f"play {LAKE} --player random": "steps",
    "curves @/seeds": "variants",
    "eval random silent --suite @/both.toml --output-dir @/runs": "reward",
    "eval random --suite @/both.toml --output-dir @/runs --estimate --price-in 1": "player",
    "compare @/runs/random @/runs/greedy": "rewards",
    "compare @/a @/b --methods": "verdict",
    "verify @/runs": "problems",
    "report @/runs": "report",
    "leaderboard @/runs": "results",
    "push rollouts @/runs ada/board --dry-run @/staged": "folder",
}
"""Command → a field of what it prints."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of scripted players, of several checkpoints and of several training seeds."""
    folder = tmp_path_factory.mktemp("place")
    tasks = "".join(f'"{game}" = "{hash_of(game)}"\n' for game in (LAKE, SNAKE))
    (folder / "both.toml").write_text(f"episodes = 4\n[tasks]\n{tasks}")
    main(["eval", "random", "greedy", "--suite", str(folder / "both.toml"), "--output-dir", str(folder / "runs")])
    write_set(folder / "seeds", 3)
    for name, player in (("a", "random"), ("b", "pocket")):
        seeds(folder / name, player, 3)
    return folder


@pytest.mark.parametrize("command", PRINTED)
def test_a_command_prints_its_records_as_json(command: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    main([*command.replace("@", str(place)).split(), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert PRINTED[command] in (printed[0] if isinstance(printed, list) else printed)
