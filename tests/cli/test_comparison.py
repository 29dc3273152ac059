"""`msgrpo verify` and `msgrpo compare`: as a table, as JSON, and in the exit status."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from msgrpo_hub.cli import main
from tests.cli.suites import FIRM, SNAKE, Run, write_suite

# ---- verify and compare


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("played")
    suite = write_suite(folder / "suite.toml", 30, FIRM, SNAKE)
    for player in ("random", "greedy"):
        main(["eval", player, "--suite", str(suite), "--output-dir", str(folder / "runs")])
    return folder / "runs"


def tampered(played: Path, to: Path) -> Path:
    """One of the four runs says that it is better than it is."""
    shutil.copytree(played, to)
    file = next(path for path in sorted(to.rglob("results.json")) if FIRM in path.parts and "random" in path.parts)
    values = json.loads(file.read_text())
    values["success"]["mean"] = 1.0
    file.write_text(json.dumps(values))
    return to


def test_verify_passes_what_was_played_and_names_what_was_changed(run: Run, played: Path, tmp_path: Path) -> None:
    fine = run("verify", played)
    assert fine.code == 0
    assert [line.split()[:3] for line in fine.out.splitlines()[::2]] == [["ok", "30", "episodes"]] * 4
    left_open = {line.strip() for line in fine.out.splitlines()[1::2]}
    assert [line.startswith("number of episodes not checked: ") for line in left_open] == [True]
    assert fine.said == ["not checked: who gave the replies", f"Next: msgrpo report {played}"]
    wrong = run("verify", tampered(played, tmp_path / "tampered"))
    assert wrong.code == 2
    assert wrong.said == ["error: 1 of 4 runs do not agree with the rules: do not trust these results"]
    assert f"WRONG     30 episodes  random · {FIRM}\n      the summary does not follow from the episodes\n" in wrong.out
    assert wrong.out.count("ok ") == 3


def test_verify_as_json_is_json_whether_it_passes_or_not(run: Run, played: Path, tmp_path: Path) -> None:
    for folder, code in ((played, 0), (tampered(played, tmp_path / "tampered"), 2)):
        ended = run("verify", folder, "--json")
        assert ended.code == code
        rows = json.loads(ended.out)
        assert sum(bool(row["problems"]) for row in rows) == code / 2
        assert {row["player"] for row in rows} == {"random", "greedy"}


def test_compare_shows_a_verdict_in_words_and_in_json(run: Run, played: Path) -> None:
    text = run("compare", played / "random", played / "greedy")
    assert text.code == 0
    assert "second minus first" in text.out
    assert text.said == [f"Next: msgrpo report {played}"]
    rows = json.loads(run("compare", played / "random", played / "greedy", "--json").out)
    assert [row["task"] for row in rows] == [FIRM, SNAKE]
    for row in rows:
        for score in ("rewards", "success"):
            figures = row[score]
            assert figures["verdict"] in ("better", "worse", "inconclusive")
            assert figures["n"] == 30
            assert figures["interval"]["low"] <= figures["difference"] <= figures["interval"]["high"]
    assert rows[0]["rewards"]["verdict"] == "better"


def test_comparing_a_folder_of_two_players_says_what_to_do(run: Run, played: Path) -> None:
    ended = run("compare", played, played / "greedy", "--json")
    assert (ended.code, ended.out) == (2, "")
    [line] = ended.said
    words = f"two runs of {FIRM}: .*greedy.* and .*random.*; expected one; give the folder of one player or one run"
    assert re.search(words, line)
