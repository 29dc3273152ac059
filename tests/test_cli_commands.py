"""Every command: its help, `--json`, the nearest name after a typing error, and the next command after a success."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from msgrpo_hub.cli import COMMANDS, main, parse
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.suites import hash_of
from tests.training.seed_runs import write_set

LAKE = "FrozenLake-NotSlippery-v1"


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        parse([*command.split(), "--help"])
    assert end.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of two scripted players on one task, and a set of training seeds."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "lake.toml").write_text(f'episodes = 4\n[tasks]\n"{LAKE}" = "{hash_of(LAKE)}"\n')
    main(["eval", "random", "greedy", "--suite", str(folder / "lake.toml"), "--output-dir", str(folder / "runs")])
    write_set(folder / "seeds", 3)
    return folder


def test_the_help_names_every_command_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("", capsys)
    for command, (_, summary) in COMMANDS.items():
        assert f"{command} {summary}" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_says_what_it_does_in_a_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(command, capsys)
    sentence = text.partition(" positional arguments:")[0].partition(" options:")[0].rpartition("] ")[2]
    assert sentence.rstrip().endswith("."), text


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "space"])
def test_every_command_that_prints_data_prints_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--json" in help_of(command, capsys)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_with_a_letter_too_many_gets_its_name(command: str) -> None:
    with pytest.raises(UserError, match=f"^unknown command '{command}x': did you mean '{command}'\\?$"):
        parse([f"{command}x"])


@pytest.mark.parametrize("json_flag", [[], ["--json"]], ids=["text", "JSON"])
@pytest.mark.parametrize(
    "command",
    [
        "games",
        f"play {LAKE}",
        "eval random --suite @/lake.toml --output-dir @/runs",
        "compare @/runs/random @/runs/greedy",
        "verify @/runs",
        "report @/runs",
        "leaderboard @/runs",
        "curves @/seeds",
    ],
)
def test_a_success_ends_with_the_next_command_on_standard_error(
    command: str, json_flag: list[str], results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*command.replace("@", str(results)).split(), *json_flag])
    out, err = capsys.readouterr()
    assert "\nNext: " in err
    assert "Next: " not in out
    if json_flag:
        assert json.loads(out)
