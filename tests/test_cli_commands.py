"""Every command: its help, `--json`, the nearest name for a misspelt one, and the next command after a success."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from msgrpo_hub.cli import COMMANDS, main, parse
from msgrpo_hub.errors import UserError
from tests.cli.suites import write_suite
from tests.evaluation.test_comparison import seeds
from tests.training.seed_runs import write_set

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"


PRINTED = {
    "games": "horizon",
    f"games {LAKE} {SNAKE}": "task_hash",
    f"play {LAKE} --player random": "steps",
    "curves @/seeds": "variants",
    "eval random silent --suite @/both.toml --output-dir @/runs": "reward",
    "eval random --suite @/both.toml --output-dir @/runs --estimate --price-in 1": "player",
    "compare @/runs/random @/runs/greedy": "rewards",
    "compare @/a @/b --methods": "verdict",
    "verify @/runs": "problems",
    "report @/runs": "report",
    "leaderboard @/runs": "results",
    "push rollouts @/runs ada/board --dry-run NEW/staged": "folder",
}
"""Command → a field of its JSON records."""


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        parse([*command.split(), "--help"])
    assert end.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of scripted players, of several checkpoints and of several training seeds."""
    folder = tmp_path_factory.mktemp("results")
    write_suite(folder / "both.toml", 4, LAKE, SNAKE)
    main(["eval", "random", "greedy", "--suite", str(folder / "both.toml"), "--output-dir", str(folder / "runs")])
    write_set(folder / "seeds", 3)
    for name, player in (("a", "random"), ("b", "pocket")):
        seeds(folder / name, player, 3)
    return folder


def test_the_help_names_every_command_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("", capsys)
    for command, (_, summary) in COMMANDS.items():
        assert f"{command} {summary}" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_a_help_that_says_what_it_does_and_a_nearest_name(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(command, capsys)
    sentence = text.partition(" positional arguments:")[0].partition(" options:")[0].rpartition("] ")[2]
    assert sentence.rstrip().endswith("."), text
    with pytest.raises(UserError, match=f"^unknown command '{command}x': did you mean '{command}'\\?$"):
        parse([f"{command}x"])


@pytest.mark.parametrize("json_flag", [[], ["--json"]], ids=["text", "JSON"])
@pytest.mark.parametrize("command", PRINTED)
def test_a_command_prints_its_records_and_on_standard_error_the_next_command(
    command: str, json_flag: list[str], results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    main([*command.replace("@", str(results)).replace("NEW", str(tmp_path)).split(), *json_flag])
    out, err = capsys.readouterr()
    assert ("\nNext: " in err) == ("--methods" not in command)
    assert "Next: " not in out
    if json_flag:
        printed = json.loads(out)
        assert PRINTED[command] in (printed[0] if isinstance(printed, list) else printed)
    else:
        assert out.strip()
