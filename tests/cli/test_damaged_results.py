"""Damaged results of an evaluation are one line and exit status 2 in `compare`, `report` and `verify`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.cli import main
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import find_results
from msgrpo_hub.evaluation.verify import verify
from tests.cli.suites import FIRM, Run, write_suite
from tests.files import once

FILES = ("config.lock.json", "results.json", "episodes.parquet", "steps.parquet")
COMMANDS = {
    "compare": ["compare", "@/random", "@/greedy"],
    "report": ["report", "@"],
    "verify": ["verify", "@"],
}
"""Commands that read the damaged run of `random` and the sound run of `greedy`."""

Damage = Callable[[Path], object]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def put(content: bytes) -> Damage:
    return lambda path: path.write_bytes(content)


def column(change: Callable[[pa.Table], pa.Table]) -> Damage:
    return lambda path: pq.write_table(change(pq.read_table(path)), path)


def rewards(table: pa.Table, values: object) -> pa.Table:
    return table.set_column(table.column_names.index("reward"), "reward", pa.array(values))


ANY: dict[str, Damage] = {"missing": Path.unlink, "cut": cut, "empty": put(b""), "bytes": put(b"\xff\xfe\0\1" * 9)}
OF_JSON: dict[str, Damage] = {
    "a list": put(b"[]"),
    "null": put(b"null"),
    "an empty object": put(b"{}"),
    "brackets": put(b"[" * 99_999),
    "a number of 5,000 digits": put(b'{"episodes": ' + b"9" * 5_000 + b"}"),
}
OF_PARQUET: dict[str, Damage] = {
    "no rows": column(lambda table: table.slice(0, 0)),
    "half the rows": column(lambda table: table.slice(0, len(table) // 2)),
    "a column less": column(lambda table: table.drop_columns([table.column_names[-1]])),
    "rewards of text": column(lambda table: rewards(table, ["x"] * len(table))),
    "no rewards": column(lambda table: rewards(table, pa.nulls(len(table), pa.float64()))),
}
DAMAGE = {
    f"{name}: {what}": (name, damage)
    for name in FILES
    for what, damage in (ANY | (OF_JSON if name.endswith(".json") else OF_PARQUET)).items()
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two players with one run each. Copy it before changing it."""

    def play(folder: Path) -> None:
        folder.mkdir()
        suite = write_suite(folder / "suite.toml", 4, FIRM)
        main(["eval", "random", "greedy", "--suite", str(suite), "--output-dir", str(folder / "runs")])

    return once(tmp_path_factory, "played-to-damage", play) / "runs"


def damaged(played: Path, to: Path, name: str, damage: Damage) -> Path:
    shutil.copytree(played, to)
    [file] = (to / "random").rglob(name)
    damage(file)
    return to


def assert_refused(run: Run, folder: Path, what: str) -> None:
    for command, arguments in COMMANDS.items():
        ended = run(*(argument.replace("@", str(folder)) for argument in arguments))
        assert (ended.code, len(ended.said)) == (2, 1), (what, command, ended.out, ended.err)
        assert ended.said[0].startswith("error: "), (what, command)
        assert command == "verify" or ended.out == "", (what, command)
    assert not (folder / "report.html").exists(), what


def test_the_commands_read_what_is_not_damaged(run: Run, played: Path, tmp_path: Path) -> None:
    shutil.copytree(played, tmp_path / "runs")
    for arguments in COMMANDS.values():
        assert run(*(argument.replace("@", str(tmp_path / "runs")) for argument in arguments)).code == 0


@pytest.mark.parametrize(("name", "damage"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_one_line(run: Run, played: Path, tmp_path: Path, name: str, damage: Damage) -> None:
    assert_refused(run, damaged(played, tmp_path / "runs", name, damage), name)


@pytest.mark.parametrize("name", FILES[:2])
def test_a_value_that_is_missing_or_of_another_type_is_one_line(played: Path, tmp_path: Path, name: str) -> None:
    """What `compare` and `report` read, and what `verify` says."""
    shutil.copytree(played / "random", tmp_path / "run")
    [file] = (tmp_path / "run").rglob(name)
    values = json.loads(file.read_text())
    for key in values.keys() - {"prompt_format", "prompt_format_hash", "run"}:  # which not every version has, or nobody reads
        others = {k: v for k, v in values.items() if k != key}
        for changed in ({**others, key: [1]}, *([others] if key != "decisions" else [])):  # which is then counted
            file.write_text(json.dumps(changed))
            with pytest.raises(UserError, match=r"^no readable run in .*expected the files that `msgrpo eval` writes$"):
                find_results(tmp_path)
            [row] = verify(tmp_path)
            assert row["problems"], (key, changed)


@pytest.mark.parametrize(
    ("name", "key", "value"), [(FILES[0], "episodes", 0), (FILES[0], "episodes", 10**7), (FILES[1], "steps", True)]
)
def test_a_number_that_no_run_has_is_one_line(name: str, key: str, value: object, played: Path, tmp_path: Path) -> None:
    shutil.copytree(played / "random", tmp_path / "run")
    [file] = (tmp_path / "run").rglob(name)
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(UserError, match=f"{key} is {value}, expected "):
        find_results(tmp_path)
