"""A report says what the results say, compares what may be compared, draws what was shown, and holds nothing foreign."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.cli import main
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.comparison import compare
from msgrpo_hub.evaluation.results import Result, player_names
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.games import GAMES, VARIANTS, Game, make_game
from msgrpo_hub.games.variants import Variant
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rendering.board_svg import moves
from msgrpo_hub.rendering.replay_data import _kept, state_data
from msgrpo_hub.rendering.report import report_page, write_report
from msgrpo_hub.rendering.report_episodes import collect_replays, telling_seeds, worst_episodes
from msgrpo_hub.rendering.report_plots import _scale, endings, first_mistakes, forest, number, replies
from msgrpo_hub.rollout import play_episodes, replayed_states
from tests.rendering.reported import ADAPTER, BASE, HOSTILE, LAKE, MIRRORED, failed_run, model


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


def of(results: list[Result], player: str, task: str = LAKE) -> Result:
    return next(result for result in results if result.player == player and result.task == task)


# ---- the page


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
        rows = [row for row in Page(text).rows if row[0] == result.player and shown(summary["reward"]) in row]
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
    for row, comparison in zip(rows, (expected.rewards, expected.success), strict=True):
        assert row[-6].startswith(f"{comparison.difference:+.3f} [".replace("-", "−"))
        assert row[-1] == comparison.verdict
        assert row[-5] in ("< 0.0001", f"{comparison.p_adjusted:.4f}")


def test_the_base_is_the_model_without_an_adapter_whoever_is_listed_first(text: str) -> None:
    assert text.count(f"Against {BASE}, on the same seeds") == 3
    assert "Holm's method for the 14 tests" in text  # 2 scores × (3 + 2 + 2) players


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


# ---- plots


def test_marks_lie_where_their_figures_are(report_results: list[Result]) -> None:
    plot = forest([of(report_results, BASE), of(report_results, "optimal")], ["base", "optimal"])
    low, high = (float(plot.ticks[end][1].replace("−", "-")) for end in (0, -1))
    reward = of(report_results, BASE).summary["reward"]
    (_, mark, _), _ = plot.rows
    assert mark
    for at, key in ((mark.low, "low"), (mark.at, "mean"), (mark.high, "high")):
        assert at == pytest.approx(100 * (reward[key] - low) / (high - low), abs=0.01)
    assert [place for place, _ in plot.ticks][:: len(plot.ticks) - 1] == [0, 100]


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=9))
def test_an_axis_holds_all_values_between_a_few_ticks(values: list[float]) -> None:
    low, high, step = _scale(values)
    margin = 1e-6 * max(1.0, high - low)
    assert low - margin <= min(values)
    assert max(values) <= high + margin
    assert 2 <= round((high - low) / step) <= 12


@given(st.floats(-1e6, 1e6), st.integers(0, 6))
def test_numbers_have_true_minus_signs_and_no_negative_zero(value: float, decimals: int) -> None:
    text = number(value, decimals)
    assert float(text.replace("−", "-")) == pytest.approx(value, abs=10.0**-decimals)
    assert "-" not in text
    assert not text.startswith("−") or float(text[1:]) > 0


def test_stacked_bars_are_full_and_count_every_episode_and_every_reply(report_results: list[Result]) -> None:
    for result in report_results:
        for segments, total in ((endings(result), 30), (replies(result), result.summary["steps"])):
            assert sum(segment.count for segment in segments) == total
            assert sum(segment.width for segment in segments) == pytest.approx(100, abs=0.1)
            ends = [segment.start + segment.width for segment in segments]
            assert [segment.start for segment in segments[1:]] == pytest.approx(ends[:-1], abs=0.02)
    kinds = {segment.kind: segment.count for segment in replies(of(report_results, BASE))}
    steps = [step for episode in of(report_results, BASE).episodes for step in episode.steps]
    assert kinds["unparsed"] == sum(step.completion.text == HOSTILE for step in steps) > 0
    assert kinds["truncated"] == sum(step.completion.finish == "length" for step in steps) > 0
    assert kinds["illegal"] == sum(step.action is not None and not step.legal for step in steps) > 0


def test_first_mistakes_and_their_absence_are_all_episodes(report_results: list[Result]) -> None:
    base, optimal = first_mistakes([of(report_results, BASE), of(report_results, "optimal")], 15)
    assert base
    assert optimal
    assert optimal.without == "100 %"
    shares = [int(words.split(": ")[1].rstrip(" %")) for _, _, words in base.columns]
    assert sum(shares) + int(base.without.rstrip(" %")) == pytest.approx(100, abs=8)  # 16 rounded shares
    assert max(height for _, height, _ in base.columns) == 100
    assert first_mistakes([of(report_results, BASE, MIRRORED)], 20) == [None]


# ---- replays


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


def test_a_long_reply_keeps_its_beginning_and_its_end() -> None:
    kept = _kept("a" + "x" * 10_000 + "z")
    assert kept.startswith("ax")
    assert kept.endswith("xz")
    assert "[… 7002 characters left out …]" in kept
    assert _kept("x" * 3_000) == "x" * 3_000


def variants_of(game_id: str) -> list[str]:
    names = [game_id]
    for variant in VARIANTS:
        try:
            names.append(make_game(f"{game_id}:{variant}").id)
        except UserError:
            continue  # a variant that this game does not have
    return names


def drawn(game: Game, shown: dict[str, Any]) -> list[str]:
    """The grid that a drawing shows: pieces on empty ground, then those who move over it."""

    def glyph(symbol: str) -> str:
        return game.glyphs.get(symbol, symbol) if isinstance(game, Variant) else symbol

    cells = [glyph(".")] * game.rows * game.columns
    for symbol, places in shown["pieces"].items():
        for place in places:
            cells[place] = symbol
    for body, (head, rest) in reversed(list(zip(shown.get("bodies", []), ("@#", "Xx"), strict=False))):
        for place in body[1:]:
            cells[place] = glyph(rest)
        cells[body[0]] = glyph(head)
    if "walker" in shown:
        cells[shown["walker"]] = glyph("@")
    return ["".join(cells[row * game.columns : (row + 1) * game.columns]) for row in range(game.rows)]


@pytest.mark.parametrize("game_id", [variant for game_id in GAMES for variant in variants_of(game_id)])
def test_every_game_and_variant_is_drawn_as_it_was_shown_and_moves_go_where_they_point(game_id: str) -> None:
    game = make_game(game_id)
    (episode,) = play_episodes(game, ScriptedPolicy(choose_random), [(7, 0)])
    states = replayed_states(game, episode)
    shown = [state_data(game, state) for state in states]
    assert [drawn(game, state) for state in shown] == [game.grid(state) for state in states]
    for before, after, step in zip(shown, shown[1:], episode.steps, strict=False):
        if step.legal and "Slippery-v1" not in game_id.replace("NotSlippery", "") and after.get("alive", [True])[0]:
            here, there = (state["walker"] if "walker" in state else state["bodies"][0][0] for state in (before, after))
            rows, columns = moves(game)[step.action or ""]
            assert there - here == rows * game.columns + columns


def test_a_game_of_another_package_is_drawn_from_its_grid_alone(corridor: str, report_results: list[Result]) -> None:
    game = make_game(corridor)
    assert state_data(game, 1) == {"pieces": {"w": [0, 1, 2, 6, 8], "<": [4], "?": [7]}}
    assert moves(game) == {}
    assert of(report_results, BASE, corridor).summary["luck_adjusted"] is None
