"""What every command prints with `--json` fits its JSON Schema: no field is missing there, and none is too many."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from msgrpo_hub.cli import COMMANDS, main
from msgrpo_hub.cli.schemas import all_outputs, fields_of, schema, schema_of
from msgrpo_hub.cli.schemas import main as print_schemas
from msgrpo_hub.evaluation.suites import hash_of
from tests.command import Command
from tests.evaluation.test_methods import seeds
from tests.training.seed_runs import write_set

ROOT = Path(__file__).parents[2]
LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"

PRINTED = [
    ("games", "games"),
    ("games", f"games {LAKE} {SNAKE}"),
    ("play", f"play {LAKE} --player random"),
    ("play", f"play {SNAKE} --player silent"),
    ("curves", "curves @/seeds"),
    ("eval", "eval random silent --suite @/both.toml --output-dir @/runs"),
    ("eval", "eval random --suite @/both.toml --output-dir @/repeated --repeats 2"),
    ("eval-estimate", "eval random --suite @/both.toml --output-dir @/runs --estimate --price-in 1"),
    ("compare", "compare @/runs/random @/runs/greedy"),
    ("compare-methods", "compare @/a @/b --methods"),
    ("verify", "verify @/runs"),
    ("report", "report @/runs"),
    ("leaderboard", "leaderboard @/runs"),
    ("push-dry-run", "push rollouts @/runs ada/board --dry-run @/staged --traces 2"),
]
"""Output → a command that prints it here."""

ELSEWHERE = {"train": "tests/cli/test_commands.py", "train-seeds": __file__, "push": "tests/hub/test_rollouts_pushed.py"}
ELSEWHERE |= {"export": "tests/hub/test_exports.py", "jobs": "tests/hub/test_jobs.py"}
"""Output → the test that compares it, if that needs a model or the Hub."""


def check(name: str, printed: str) -> Any:
    data = json.loads(printed)
    Draft202012Validator(schema(name)).validate(data)
    return data


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


@pytest.mark.parametrize(("name", "command"), PRINTED, ids=[command for _, command in PRINTED])
def test_what_a_command_prints_fits_its_schema(name: str, command: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*command.replace("@", str(place)).split(), "--json"])
    assert check(name, capsys.readouterr().out)


@pytest.mark.slow
def test_the_summary_of_several_seeds_and_of_several_games_fits_its_schema(
    msgrpo: Command, flags: list[str], tmp_path: Path
) -> None:
    done = msgrpo("train", *flags, "--seeds", "0-1", "--output-dir", tmp_path / "set", "--json")
    assert len(check("train-seeds", done.out)["runs"]) == 2
    games = msgrpo("train", *flags, "--game", f"{LAKE},{SNAKE}", "--output-dir", tmp_path / "games", "--json")
    assert [table["game"] for table in check("train", games.out)["other_games"]] == [SNAKE]
    without = msgrpo("train", *flags, "--test-episodes", "0", "--output-dir", tmp_path / "untested", "--json")
    assert "players" not in check("train", without.out)


def test_every_command_with_json_has_a_schema_that_a_test_compares() -> None:
    named = {output.command.split()[0] for output in all_outputs().values()}
    assert named == set(COMMANDS) - {"space"}, "add what it prints to msgrpo_hub/cli/schemas.py"
    assert {name for name, _ in PRINTED} | {*ELSEWHERE} == set(all_outputs())
    assert all("schema(" in (ROOT / path).read_text(encoding="utf-8") for path in ELSEWHERE.values())


@pytest.mark.parametrize(("name", "field"), [("games", "horizon"), ("play", "seed"), ("compare", "task"), ("verify", "problems")])
def test_a_schema_refuses_an_output_with_a_field_more_less_or_of_another_type(
    name: str, field: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = next(command for output, command in PRINTED if output == name)
    main([*command.replace("@", str(place)).split(), "--json"])
    data = check(name, capsys.readouterr().out)
    damages: list[Callable[[dict[str, Any]], Any]] = [
        lambda row: row.update(more=1),
        lambda row: row.pop(field),
        lambda row: row.update({field: {}}),
    ]
    for damage in damages:
        damaged = copy.deepcopy(data)
        damage(damaged[0] if isinstance(damaged, list) else damaged)
        with pytest.raises(ValidationError):
            Draft202012Validator(schema(name)).validate(damaged)


@pytest.mark.parametrize("name", all_outputs())
def test_every_schema_is_one_of_its_dialect_and_describes_its_types(name: str) -> None:
    found = schema(name)
    Draft202012Validator.check_schema(found)
    assert all(kind["description"] for kind in found["$defs"].values())


def test_types_become_schemas() -> None:
    assert schema_of(tuple[float, str], {})["prefixItems"] == [{"type": "number"}, {"type": "string"}]
    assert schema_of(tuple[float, ...], {}) == {"type": "array", "items": {"type": "number"}}
    assert schema_of(dict[str, bool], {}) == {"type": "object", "additionalProperties": {"type": "boolean"}}


def test_a_property_that_is_printed_has_the_type_that_it_returns() -> None:
    comparison = all_outputs()["compare-methods"].kind.__args__[0]
    assert fields_of(comparison)["difference"] is float


def test_the_schemas_are_printed_by_name_and_an_unknown_name_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    print_schemas([])
    assert capsys.readouterr().out.split() == [*all_outputs()]
    print_schemas(["verify"])
    assert json.loads(capsys.readouterr().out) == schema("verify")
    with pytest.raises(SystemExit) as end:
        print_schemas(["verfy"])
    assert (end.value.code, capsys.readouterr().err) == (2, "error: unknown output 'verfy': did you mean 'verify'?\n")
