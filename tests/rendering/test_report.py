"""The report: one file with the figures of the summaries. Hostile text stays text."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.comparison import compare
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.tables import hypotheses
from msgrpo_hub.players.registry import identify
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rendering.report import collect_replays, report_page, telling_seeds, worst_episodes, write_report
from tests.rendering.reported import ADAPTER, BASE, HOSTILE, LAKE, MIRRORED, failed_run, of


class Page(HTMLParser):
    """A page's tables as text, its references and its scripts."""

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


def test_the_baseline_comes_first_whatever_it_scored_and_may_be_chosen(text: str, report_results: list[Result]) -> None:
    chosen = report_page(report_results, "random")
    for page, first in ((text, BASE), (chosen, "random")):
        table = page.partition(f'aria-label="Scores on {LAKE}"')[2].partition("</table>")[0]
        players = [row[0].strip() for row in Page(table).rows[1:]]
        assert [name for name in players if name.endswith(" baseline")] == players[:1] == [f"{first} baseline"]
        assert len(players) == 4
    assert "Against random, on the same seeds." in chosen
    with pytest.raises(UserError, match="no player 'nobody' in these results: expected one of "):
        report_page(report_results, "nobody")


def test_the_page_is_one_file_that_refers_to_nothing_outside_and_tells_no_local_path(text: str, report_folder: Path) -> None:
    page = Page(text)
    assert page.references
    assert all(reference.startswith(("#", "data:image/svg+xml;base64,")) for reference in page.references)
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org/)", text)
    assert str(report_folder) not in text
    assert str(Path.home()) not in text
    assert len(text.encode()) < 3_000_000


def test_equal_results_give_equal_bytes_and_copies_count_once(text: str, report_results: list[Result]) -> None:
    assert report_page([*report_results, *report_results]) == text


def test_the_table_shows_the_figures_of_the_summary(text: str, report_results: list[Result]) -> None:
    def shown(figure: dict[str, float]) -> str:
        return "{mean:.3f} [{low:.3f}, {high:.3f}]".format(**figure).replace("-", "−")

    rows = [[row[0].removesuffix(" baseline"), *row[1:]] for row in Page(text).rows]
    for result in report_results:
        summary = result.summary
        figures = {result.player, shown(summary["reward"]), shown(summary["success"]), f"{100 * summary['illegal_rate']:.1f} %"}
        assert any(figures <= set(row) for row in rows), result.player


def test_hostile_text_stays_text(text: str) -> None:
    page = Page(text)
    assert page.tags["img"] == len(set(re.findall(r'id="task-\d+"', text)))  # charts only
    assert page.tags["script"] == 2
    data = json.loads(page.scripts[0])
    episodes = [e for task in data["tasks"] for seed in task["seeds"] for e in seed["episodes"].values()]
    assert HOSTILE in {step["reply"] for episode in episodes for step in episode["steps"]}


def test_a_folder_without_runs_and_a_tampered_run_are_refused(tmp_path: Path, report_results: list[Result]) -> None:
    with pytest.raises(UserError, match="no runs under"):
        write_report(tmp_path, tmp_path / "page.html")
    result = of(report_results, BASE)
    tampered = [replace(episode, success=not episode.success) for episode in result.episodes]
    with pytest.raises(UserError, match="msgrpo verify"):
        report_page([replace(result, episodes=tampered)])


def test_comparisons_are_those_of_the_paired_tests_on_the_same_seeds(report_results: list[Result]) -> None:
    """One task with two players has the same hypotheses as `msgrpo compare`."""
    base, adapter = of(report_results, BASE), of(report_results, ADAPTER)
    (expected,) = compare([base], [adapter])
    rows = [row for row in Page(report_page([base, adapter])).rows if row[-1] in ("better", "worse", "inconclusive")]
    for row, comparison in zip(rows, hypotheses(expected).values(), strict=True):
        shown = f"{comparison.difference:+.3f}" if comparison.difference else "0.000"
        assert row[-6].startswith(f"{shown} [".replace("-", "−"))
        assert row[-1] == comparison.verdict
        assert row[-5] in ("< 0.0001", f"{comparison.p_adjusted:.4f}")
        assert row[-3] == ("none" if comparison.detectable is None else f"{abs(comparison.detectable):.3f}")


def test_the_base_is_the_model_without_an_adapter_whoever_is_listed_first(text: str) -> None:
    assert text.count(f"Against {BASE}, on the same seeds") == 3
    assert "Holm's method for the 9 tests" in text  # on the lakes a reward is a success: 2 + 2, on Snake 2 scores × 3 players


def test_one_task_of_two_suites_is_one_task_whose_tables_and_replays_name_their_episodes(tmp_path: Path) -> None:
    player = identify("random", PlayerSettings())
    results = [run_task(player, Suite(name=f"{n}", tasks=(LAKE,), episodes=n), LAKE, tmp_path) for n in (30, 40)]
    text = report_page(results)
    assert "1 player on 1 task:" in text
    page, both = Page(text), [f"{LAKE}, {n} test episodes" for n in (30, 40)]
    assert [row[0] for row in page.rows[1:3]] == both
    data = next(json.loads(script) for script in page.scripts if script.startswith('{"players"'))
    assert [task["title"] for task in data["tasks"]] == both


@pytest.mark.parametrize("every", [1, 2])
def test_a_player_alone_or_beside_a_run_that_is_not_complete_is_not_compared(
    every: int, report_results: list[Result], tmp_path: Path
) -> None:
    base, broken = of(report_results, BASE), failed_run(tmp_path, every)
    page = report_page([base, broken])
    assert f"{30 // every} of 30 episodes are missing" in " ".join(page.split())
    assert not [text for text in (page, report_page([base])) if "Against" in text]
    if every == 1:
        assert {("down", *"––––––––"), ("down", "no episode")} <= {*map(tuple, Page(page).rows)}
        assert "none yet" in report_page([broken])


def test_worst_episodes_are_those_of_largest_regret_or_of_lowest_reward(report_results: list[Result]) -> None:
    base, snake = of(report_results, BASE), of(report_results, BASE, MIRRORED)
    regrets = [score.regret or 0 for score in base.scores]
    assert [regrets[position] for position in worst_episodes(base)] == sorted(regrets, reverse=True)[:3]
    rewards = [score.reward for score in snake.scores]
    assert [rewards[position] for position in worst_episodes(snake)] == sorted(rewards)[:3]
    assert worst_episodes(of(report_results, "optimal")) == []


def test_the_first_seed_is_one_on_which_players_differ_most(report_results: list[Result]) -> None:
    players = [of(report_results, name, MIRRORED) for name in (BASE, ADAPTER, "random")]
    spread = {
        episode.seed: np.ptp([player.scores[position].reward for player in players])
        for position, episode in enumerate(players[0].episodes)
    }
    seeds = telling_seeds(players)
    assert spread[seeds[0]] == max(spread.values())
    assert len(seeds) == len(set(seeds)) == 20
    assert players[0].episodes[worst_episodes(players[0])[0]].seed in seeds


def test_replays_keep_to_their_budget_in_turn(report_results: list[Result]) -> None:
    tasks = [[r for r in report_results if r.task == task] for task in (LAKE, MIRRORED)]
    budget = 150_000
    some = collect_replays(tasks, [task[0] for task in tasks], lambda result: result.player, budget=budget)
    size = sum(len(json.dumps(seed, ensure_ascii=False).encode()) for task in some["tasks"] for seed in task["seeds"])
    assert budget / 2 < size <= budget
    lake, snake = (len(task["seeds"]) for task in some["tasks"])
    assert 0 <= lake - snake <= 1
