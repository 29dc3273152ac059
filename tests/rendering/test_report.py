"""The report: one file, with the figures of the summary, and hostile text that stays text."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from msgrpo_hub.cli import main
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.comparison import compare
from msgrpo_hub.evaluation.results import Result, player_names
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.tables import hypotheses, titles
from msgrpo_hub.players.identity import identify
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rendering.report import report_page, write_report
from msgrpo_hub.rendering.report_episodes import MOST
from msgrpo_hub.rendering.report_plots import endings
from tests.rendering.pages import of
from tests.rendering.reported import ADAPTER, BASE, HOSTILE, LAKE, failed_run, model


class Page(HTMLParser):
    """What a test wants to know of a page: its tables as text, its references, its data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.references: list[str] = []
        self.tags: Counter[str] = Counter()
        self.scripts: list[str] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.references += [value or "" for name, value in attrs if name in ("href", "src", "action", "data", "xlink:href")]
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th", "script"):
            self.inside = tag
            (self.scripts if tag == "script" else self.rows[-1]).append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = "" if tag == self.inside else self.inside

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside:
            self.rows[-1][-1] = " ".join(f"{self.rows[-1][-1]} {data}".split())


@pytest.fixture(scope="module")
def text(report_results: list[Result]) -> str:
    return report_page(report_results)


# ---- the page


def test_the_baseline_comes_first_whatever_it_scored_and_may_be_chosen(report_results: list[Result]) -> None:
    def players(baseline: str) -> list[str]:
        table = report_page(report_results, baseline).partition(f'aria-label="Scores on {LAKE}"')[2].partition("</table>")[0]
        return [row[0].strip() for row in Page(table).rows[1:]]

    assert players("")[0] == f"{BASE} baseline"
    chosen = players("random")
    assert chosen[0] == "random baseline"
    assert [name for name in chosen if "baseline" in name] == chosen[:1]
    assert sorted(name.removesuffix(" baseline") for name in players("")) == sorted(
        name.removesuffix(" baseline") for name in chosen
    )
    assert "Against random, on the same seeds." in report_page(report_results, "random")
    with pytest.raises(UserError, match="no player 'nobody' in these results: expected one of "):
        report_page(report_results, "nobody")


def test_the_page_is_one_file_that_refers_to_nothing_outside_and_tells_no_local_path(text: str, report_folder: Path) -> None:
    page = Page(text)
    assert page.references
    assert all(reference.startswith("#") for reference in page.references)
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org/)", text)
    assert str(report_folder) not in text
    assert str(Path.home()) not in text
    assert len(text.encode()) < 3_000_000


def test_equal_results_give_equal_bytes_and_copies_count_once(text: str, report_results: list[Result]) -> None:
    assert report_page([*report_results, *report_results]) == text


def test_the_table_shows_the_figures_of_the_summary(text: str, report_results: list[Result]) -> None:
    def shown(figure: dict[str, float]) -> str:
        return "{mean:.3f} [{low:.3f}, {high:.3f}]".format(**figure).replace("-", "−")

    for result in report_results:
        summary = result.summary
        rows = [
            row
            for row in Page(text).rows
            if row[0].removesuffix(" baseline") == result.player and shown(summary["reward"]) in row
        ]
        assert any(shown(summary["success"]) in row and f"{100 * summary['illegal_rate']:.1f} %" in row for row in rows)


def test_hostile_text_stays_text(text: str) -> None:
    page = Page(text)
    assert page.tags["img"] == 0
    assert page.tags["script"] == 2
    data = json.loads(page.scripts[0])
    episodes = [e for task in data["tasks"] for seed in task["seeds"] for e in seed["episodes"].values()]
    assert HOSTILE in {step["reply"] for episode in episodes for step in episode["steps"]}


def test_provenance_names_commits_and_hashes(text: str, report_results: list[Result]) -> None:
    for result in report_results:
        assert result.folder.name in text
        assert result.config["task_hash"] in text
    assert "a" * 40 in text
    assert "b" * 40 in text


def test_the_command_writes_the_page_and_says_where(
    report_folder: Path, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "new" / "page.html"
    main(["report", str(report_folder), "--output", str(output), "--json"])
    assert json.loads(capsys.readouterr().out) == {"report": str(output)}
    assert output.read_text(encoding="utf-8") == text


def test_a_folder_without_runs_and_a_tampered_run_are_told_in_one_line(tmp_path: Path, report_results: list[Result]) -> None:
    with pytest.raises(UserError, match="no runs under"):
        write_report(tmp_path, tmp_path / "page.html")
    result = of(report_results, BASE)
    tampered = [replace(episode, success=not episode.success) for episode in result.episodes]
    with pytest.raises(UserError, match="msgrpo verify"):
        report_page([replace(result, episodes=tampered)])


# ---- who is compared with whom


def test_comparisons_are_those_of_the_paired_tests_on_the_same_seeds(report_results: list[Result]) -> None:
    """On one task with two players the family is the same as that of `msgrpo compare`, and so is every figure."""
    base, adapter = of(report_results, BASE), of(report_results, ADAPTER)
    (expected,) = compare([base], [adapter])
    rows = [row for row in Page(report_page([base, adapter])).rows if row[-1] in ("better", "worse", "inconclusive")]
    for row, comparison in zip(rows, hypotheses(expected).values(), strict=True):
        shown = f"{comparison.difference:+.3f}" if comparison.difference else "0.000"
        assert row[-6].startswith(f"{shown} [".replace("-", "−"))
        assert row[-1] == comparison.verdict
        assert row[-5] in ("< 0.0001", f"{comparison.p_adjusted:.4f}")
        assert row[-3] == ("none" if comparison.detectable is None else f"{abs(comparison.detectable):.3f}")  # whatever its sign


def test_the_base_is_the_model_without_an_adapter_whoever_is_listed_first(text: str) -> None:
    assert text.count(f"Against {BASE}, on the same seeds") == 3
    assert "Holm's method for the 9 tests" in text  # on the lakes a reward is a success: 2 + 2, on Snake 2 scores × 3 players


def test_the_page_says_what_it_adjusts_what_success_is_and_which_episodes_it_replays(
    text: str, report_results: list[Result]
) -> None:
    assert "the verdict follows it; the intervals are not adjusted" in text
    assert f"Up to {MOST} episodes of each task are here" in text
    said = "The table's success counts both"
    survivors = [any(segment.kind == "survived" for segment in endings(result)) for result in report_results]
    assert 0 < text.count(said) <= sum(survivors)
    assert said not in report_page([of(report_results, "optimal")])


def test_one_task_of_two_suites_is_one_task_whose_tables_and_replays_name_their_episodes(tmp_path: Path) -> None:
    player = identify("random", PlayerSettings())
    results = [run_task(player, Suite(name=f"{n}", tasks=(LAKE,), episodes=n), LAKE, tmp_path) for n in (30, 40)]
    text = report_page(results)
    assert "1 player on 1 task:" in text
    page, both = Page(text), [f"{LAKE}, {n} test episodes" for n in (30, 40)]
    assert [row[0] for row in page.rows[1:3]] == both
    data = next(json.loads(script) for script in page.scripts if script.startswith('{"players"'))
    assert [task["title"] for task in data["tasks"]] == both


def test_one_task_by_two_rules_has_two_titles(report_results: list[Result]) -> None:
    old = of(report_results, "random")
    new = replace(old, config=old.config | {"task_hash": "0" * 16})
    told = titles([[old], [new]])
    assert len({*told}) == 2
    assert all(LAKE in title and "rules " in title for title in told)


def test_one_player_is_compared_with_nobody(report_results: list[Result]) -> None:
    page = report_page([of(report_results, BASE)])
    assert "Against" not in page
    assert "inconclusive" not in "".join(map(str, Page(page).rows))


def test_a_run_that_is_not_complete_is_marked_and_not_compared(report_results: list[Result], tmp_path: Path) -> None:
    broken = failed_run(tmp_path, every=2)
    assert broken.summary["failed"] == 15
    page = report_page([of(report_results, BASE), broken])
    assert "15 of 30 episodes are missing" in " ".join(page.split())
    assert "Against" not in page
    assert [segment.count for segment in endings(broken) if segment.kind == "not played"] == [15]


def test_a_run_without_any_episode_has_no_figures_and_breaks_nothing(report_results: list[Result], tmp_path: Path) -> None:
    silent = failed_run(tmp_path, every=1)
    page = report_page([of(report_results, BASE), silent])
    assert "30 of 30 episodes are missing" in " ".join(page.split())
    assert ["down", *"––––––––"] in Page(page).rows
    assert ["down", "no episode"] in Page(page).rows
    assert "none yet" in report_page([silent])


def test_players_of_one_name_are_told_apart_by_what_differs(report_results: list[Result], tmp_path: Path) -> None:
    hot = model(BASE, 0.1, temperature=1.5)
    other = run_task(hot, Suite(name="mine", tasks=(LAKE,), episodes=30), LAKE, tmp_path)
    names = player_names([of(report_results, BASE), other, of(report_results, "random")])
    assert list(names.values()) == [f"{BASE} (temperature 0.5)", f"{BASE} (temperature 1.5)", "random"]
