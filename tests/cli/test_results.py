"""`verify`, `compare` and `report` on stored results: sound, tampered with, and damaged."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.cli import main
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import find_results, load_result
from msgrpo_hub.evaluation.verify import NOT_CHECKED, verify
from tests.cli.suites import FIRM, SNAKE, Run, write_suite
from tests.files import once


def evaluated(factory: pytest.TempPathFactory, name: str, episodes: int, *tasks: str) -> Path:
    """Runs of the players `random` and `greedy`. Copy them before a change."""

    def play(folder: Path) -> None:
        folder.mkdir()
        suite = write_suite(folder / "suite.toml", episodes, *tasks)
        main(["eval", "random", "greedy", "--suite", str(suite), "--output-dir", str(folder / "runs")])

    return once(factory, name, play) / "runs"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evaluated(tmp_path_factory, "played-to-read", 30, FIRM, SNAKE)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evaluated(tmp_path_factory, "played-to-damage", 4, FIRM)


@pytest.mark.parametrize("read", [verify, find_results])
def test_runs_that_vanish_during_a_scan_are_left_out(read: Any, played: Path, tmp_path: Path) -> None:
    def vanishes(call: Callable[[Path], Any]) -> Callable[[Path], Any]:
        return lambda path: ("random" in Path(path).parts and Path(path).rename(mkdtemp(dir=tmp_path)), call(path))[1]

    for name, call in (("os.scandir", os.scandir), (f"{read.__module__}.load_result", load_result)):
        runs = Path(shutil.copytree(played, tmp_path / name))
        with patch(name, vanishes(call)):
            assert {getattr(row, "player", "") or row["player"] for row in read(runs)} == {"greedy"}


def test_verify_passes_sound_results_and_names_changed_ones(run: Run, played: Path, tmp_path: Path) -> None:
    fine = run("verify", played)
    assert fine.code == 0
    assert [line.split()[:3] for line in fine.out.splitlines()[::2]] == [["ok", "30", "episodes"]] * 4
    left_open = {line.strip() for line in fine.out.splitlines()[1::2]}
    assert [line.startswith("number of episodes not checked: ") for line in left_open] == [True]
    assert fine.said == [f"not checked: {NOT_CHECKED}", f"Next: msgrpo report {played}"]
    tampered = shutil.copytree(played, tmp_path / "tampered")
    file = next(path for path in sorted(tampered.rglob("results.json")) if FIRM in path.parts and "random" in path.parts)
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | {"success": values["success"] | {"mean": 1.0}}))
    wrong = run("verify", tampered)
    assert wrong.code == 2
    assert wrong.said == ["error: 1 of 4 runs do not agree with the rules: do not trust these results"]
    assert f"WRONG     30 episodes  random · {FIRM}\n      the summary does not follow from the episodes\n" in wrong.out
    assert wrong.out.count("ok ") == 3
    as_json = run("verify", tampered, "--json")
    assert (as_json.code, [bool(row["problems"]) for row in json.loads(as_json.out)].count(True)) == (2, 1)


def test_compare_shows_a_verdict_in_words_and_in_json(run: Run, played: Path) -> None:
    text = run("compare", played / "random", played / "greedy")
    assert text.code == 0
    assert "second minus first" in text.out
    assert text.said == [f"Next: msgrpo report {played}"]
    rows = json.loads(run("compare", played / "random", played / "greedy", "--json").out)
    assert [row["task"] for row in rows] == [FIRM, SNAKE]
    for figures in (row[score] for row in rows for score in ("rewards", "success")):
        assert figures["verdict"] in ("better", "worse", "inconclusive")
        assert figures["n"] == 30
        assert figures["interval"]["low"] <= figures["difference"] <= figures["interval"]["high"]
    assert rows[0]["rewards"]["verdict"] == "better"


FILES = ("config.lock.json", "results.json", "episodes.parquet", "steps.parquet")
COMMANDS = ("compare @/random @/greedy", "report @", "verify @")
"""Commands that read the damaged run of `random` and the sound run of `greedy`."""

CONTENT = {
    "empty": b"",
    "bytes": b"\xff\xfe\0\1" * 9,
    "a list": b"[]",
    "brackets": b"[" * 99_999,
}
TABLE: dict[str, Callable[[pa.Table], pa.Table]] = {
    "no rows": lambda table: table.slice(0, 0),
    "a column less": lambda table: table.drop_columns([table.column_names[-1]]),
    "rewards of text": lambda table: rewards(table, ["x"] * len(table)),
}
DAMAGE = [(name, damage) for name in FILES for damage in ("missing", "truncated", *CONTENT)]
DAMAGE += [(name, damage) for name in FILES[2:] for damage in TABLE]


def rewards(table: pa.Table, values: object) -> pa.Table:
    return table.set_column(table.column_names.index("reward"), "reward", pa.array(values))


@pytest.mark.parametrize(("name", "damage"), DAMAGE)
def test_a_damaged_file_is_one_line(run: Run, short: Path, tmp_path: Path, name: str, damage: str) -> None:
    shutil.copytree(short, tmp_path / "runs")
    [file] = (tmp_path / "runs" / "random").rglob(name)
    if damage in TABLE:
        pq.write_table(TABLE[damage](pq.read_table(file)), file)
    elif damage == "missing":
        file.unlink()
    else:
        file.write_bytes(CONTENT.get(damage, file.read_bytes()[:-20]))
    for command in COMMANDS:
        ended = run(*command.replace("@", str(tmp_path / "runs")).split())
        assert (ended.code, len(ended.said)) == (2, 1), (command, ended.out, ended.err)
        assert ended.said[0].startswith("error: "), command
        if command != "verify @":
            assert ended.out == "", command
        elif damage not in TABLE:
            assert re.search(r"\n      no readable run in .*: expected the files that `msgrpo eval` writes\n", ended.out)
    assert not (tmp_path / "runs" / "report.html").exists()


@pytest.mark.parametrize("name", FILES[:2])
def test_a_value_that_is_missing_or_of_another_type_is_one_line(short: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(short / "random", tmp_path / "run")
    [file] = (tmp_path / "run").rglob(name)
    values = json.loads(file.read_text())
    for key in values.keys() - {"prompt_format", "prompt_format_hash", "run"}:  # optional, or not read
        others = {k: v for k, v in values.items() if k != key}
        for changed in ({**others, key: [1]}, *([others] if key != "decisions" else [])):  # missing decisions are counted
            file.write_text(json.dumps(changed))
            told = rf"\({key} is \[1\], expected .*\)" if key in changed else rf"\(no {key}\)"
            with pytest.raises(UserError, match=rf"^no readable run in .* {told}: expected the files that `msgrpo eval` writes$"):
                find_results(tmp_path)
            [row] = verify(tmp_path)
            assert re.search(told, row["problems"][0]), (key, changed)
