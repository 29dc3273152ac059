"""Everything that reads runs reads those with repeats: verification, comparison, tables, the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import compare, evaluate
from msgrpo_hub.evaluation.results import Result, find_results, load_result
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.tables import repeat_figures, repeat_table, results_table
from msgrpo_hub.evaluation.untrusted import checked_run
from msgrpo_hub.rendering.report import report_page
from tests.evaluation.tampering import copied, found, rewrite, rewrite_json

LAKE = "FrozenLake-Slippery-v1"
SUITE = Suite(name="mine", tasks=(LAKE,), episodes=30)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repeated")
    evaluate(["random", "optimal"], SUITE, folder, repeats=3)
    return folder


@pytest.fixture
def run(place: Path, tmp_path: Path) -> Result:
    return copied(place / "random", tmp_path, LAKE)


def test_a_run_with_repeats_verifies_also_as_a_stranger_s(run: Result) -> None:
    assert found(run) == ""
    assert checked_run(run.folder) == run
    assert len(run.episodes) == 90


def swapped(rows: list[dict[str, Any]]) -> Any:
    return [rows[1], rows[0], *rows[2:]]


@pytest.mark.parametrize(
    "change", [swapped, lambda rows: rows[:-1], lambda rows: [*rows, rows[-1]]], ids=["swap", "drop", "twice"]
)
def test_plays_that_are_swapped_dropped_or_counted_twice_do_not_verify(run: Result, change: Callable[..., Any]) -> None:
    """Whoever drops the worst play of each board has chosen its best."""
    rewrite(run, "episodes", change)
    with pytest.raises(UserError):
        checked_run(run.folder)


@pytest.mark.parametrize("repeats", [1, 0, -3, "3", True, 3.0, 10**9])
def test_a_stranger_s_number_of_repeats_is_checked_before_anything_is_computed_from_it(run: Result, repeats: Any) -> None:
    rewrite_json(run, "config.lock.json", lambda config: config.update(repeats=repeats))
    with pytest.raises(UserError, match="its number of repeats is not between 2 and 333"):
        checked_run(run.folder)


def test_another_member_under_the_number_of_a_play_does_not_verify(run: Result) -> None:
    for name in ("episodes", "steps"):
        rewrite(run, name, lambda rows: [row | {"member": row["member"] + 1} for row in rows])
    assert "not those of the suite" in found(load_result(run.folder))


def test_a_comparison_has_one_pair_per_board_also_with_a_run_of_fewer_plays(place: Path, tmp_path: Path) -> None:
    [row] = compare(place / "random", place / "optimal")
    first, second = (find_results(place / name)[0] for name in ("random", "optimal"))
    differences = [b.reward - a.reward for a, b in zip(first.scores, second.scores, strict=True)]
    assert row.success.n == 30
    assert row.rewards.difference == pytest.approx(np.mean(differences))
    once = evaluate("random", SUITE, tmp_path)
    [row] = compare(once, place / "optimal")
    of_first_plays = [b.reward - a.reward for a, b in zip(once[0].scores, second.scores[::3], strict=True)]
    assert (row.success.n, row.rewards.difference) == (30, pytest.approx(np.mean(of_first_plays)))


def test_the_tables_say_how_often_each_board_was_played(place: Path) -> None:
    results = find_results(place)
    assert "30 test episodes, each 3 times, on " in results_table(results)
    title, head, _, *rows = repeat_table(results).splitlines()
    assert title.startswith(LAKE)
    assert head.split() == ["player", "run", "to", "run", *(f"pass@{k}" for k in (1, 2, 3))]
    assert [row.split()[0] for row in rows[:2]] == ["optimal", "random"]
    assert repeat_table([]) == ""


def test_a_report_shows_one_play_of_each_board(place: Path) -> None:
    results = find_results(place)
    page = report_page(results)
    assert "30 test episodes, each 3 times, on " in page
    for text in ('<th scope="col">pass@3</th>', repeat_figures(results[0])["run to run"]):
        assert text in page
