"""The leaderboard: bundled rows without a network, published runs played again, and names that cannot become markup."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import leaderboard
import names
import players
import pytest
import replay

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.tables import HEADS
from msgrpo_hub.games import make_game
from tests.hub_server.client import put
from tests.hub_server.lanes import Loopback, loopback, loopback_server
from tests.stored import stored_runs

__all__ = ["loopback", "loopback_server"]

LAKE = "FrozenLake-NotSlippery-v1"
SCORE = {"mean": 0.5, "low": 0.25, "high": 0.75}


def shown(source: str) -> list[dict[str, Any]]:
    """Over there."""
    return leaderboard.leaderboard("", source)


def test_bundled_rows_are_those_of_the_benchmark() -> None:
    [row] = [row for row in leaderboard.leaderboard(LAKE) if row["player"] == "optimal"]
    assert (row["episodes"], row["reward"]["mean"], row["link"]) == (200, 1.0, "")
    assert len(leaderboard.leaderboard()) > len(leaderboard.leaderboard(LAKE)) > 3


def test_the_table_has_ranks_and_how_models_acted() -> None:
    rows = leaderboard.leaderboard(LAKE)
    table = leaderboard.table(rows)
    for head in ("Rank", "Temperature", "Token limit", "Prompt format", "Engine"):
        assert f">{head}</button>" in table
    assert '<td data-value="1">1–3</td>' in table  # greedy, optimal and `lake`, as far as the intervals tell
    [model] = [row for row in rows if row["player"] == "lake"]
    assert (model["temperature"], model["token limit"]) == ("1", "32")
    for cell in ("1", "32", "think-action", "fast"):
        assert f'<td class="word" data-value="{cell}">{cell}</td>' in table


def test_published_runs_are_listed_and_a_spoilt_one_is_not(loopback: Loopback) -> None:
    files = {
        f"results/{player}/{path.relative_to(stored_runs(player))}": path.read_bytes()
        for player in ("optimal", "random")
        for path in stored_runs(player).rglob(f"{LAKE}/*/*")
    }
    [spoilt] = [name for name in files if "/random/" in name and name.endswith("episodes.parquet")]
    repo = loopback.repository("dataset")
    loopback.owner.call(put, repo, files | {spoilt: b"not this"}, "dataset")
    rows = loopback.owner.call(shown, repo)
    assert [(row["player"], row["task"], row["reward"]["mean"]) for row in rows] == [("optimal", LAKE, 1.0)]


@pytest.mark.parametrize("source", ["/etc", "..", "a/b/c", "x" * 201, "http://x/y", "benchmark/results"])
def test_what_is_no_dataset_is_refused(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    with pytest.raises(UserError, match="is not a dataset"):
        leaderboard.leaderboard("", source)


def test_a_player_that_does_not_play_is_marked_and_listed_last() -> None:
    """On poisoned apples no reward is better than its own."""
    rows = leaderboard.leaderboard("Snake-PoisonApple-v1")
    assert [row["player"] for row in rows if not row["plays"]] == ["silent"] == [rows[-1]["player"]]
    assert rows[-1]["reward"]["mean"] == 0 == max(row["reward"]["mean"] for row in rows)
    assert {row["silent"] for row in rows} == {0}
    *others, last = leaderboard.table(rows).split("<tr>")[2:]
    assert ["does not play" in row for row in [*others, last]] == [False] * len(others) + [True]
    assert '<td data-value="">0.000' in last  # sorts last in every column


def test_every_game_has_a_block_whose_bars_end_where_the_figures_are() -> None:
    rows = leaderboard.leaderboard()
    page = leaderboard.leaderboard_page(rows)
    titles = re.findall(r"<h2>(.*?) <small>(.*?)</small>", page)
    assert [task for _, task in titles] == sorted({row["task"] for row in rows}, key=list(names.GAMES).index)
    assert titles[0] == ("Frozen Lake", LAKE)
    block = page.split("<section>")[1]
    ends = [float(left) + float(width) for left, width in re.findall(r'<rect x="([\d.]+)%" width="([\d.]+)%"', block)]
    shown = [row for row in rows if row["task"] == LAKE]
    assert ends == pytest.approx([100 * row["reward"]["mean"] for row in shown], abs=0.02)  # the scale is 0 to 1 there


def test_an_unknown_game_is_answered_with_what_to_do() -> None:
    assert "No results for this game" in leaderboard.leaderboard_page(leaderboard.leaderboard("Snake-Nowhere-v1"))


def test_the_base_has_the_name_in_its_block_that_it_has_elsewhere() -> None:
    page = leaderboard.leaderboard_page(leaderboard.leaderboard(LAKE))
    blocks, figures = page.split("<details")
    assert names.player("pocket") in blocks
    assert "pocket, " in figures
    assert "pocket, " not in blocks.replace("replay of pocket, ", "")


def test_what_was_trained_here_is_marked_under_the_name_that_visitors_know() -> None:
    rows = leaderboard.leaderboard()
    page = leaderboard.leaderboard_page(rows)
    marked = re.findall(r'<tr class="trained">.*?<th scope="row">(.*?) <span class="badge">trained here</span></th>', page)
    shown = {row["player"] for row in rows} & {*players.ADAPTERS}
    assert shown >= {"lake", "snake", "snake-standard"}
    assert Counter(marked) == {names.player(name): len({row["task"] for row in rows}) for name in shown}
    assert page.count("trained here") == len(marked)


def test_every_player_that_can_be_watched_has_a_replay() -> None:
    for row in leaderboard.leaderboard():
        player = leaderboard.watched(row)
        assert bool(player) == (row["player"] != "silent")
        if player in players.SCRIPTED:
            assert replay.watch(row["task"], 0, player)["players"]
        elif player:
            assert players.check_player(player, make_game(row["task"]))
    of_hub = {**row, "player": "org/base+me/adapter", "link": "x"}
    assert leaderboard.watched(of_hub) == "org/base+me/adapter"
    assert leaderboard.watched({**of_hub, "player": "pocket+me/adapter"}) == ""  # no player of the Watch tab


def test_names_are_escaped_and_models_of_the_hub_are_linked() -> None:
    def row(player: str) -> dict[str, Any]:
        told = {"task": "<b>", "player": player, "episodes": 30, "reward": SCORE, "success": None, "normalised": None}
        told |= {"rank": [1, 4], "silent": 0.0, "plays": True, **dict.fromkeys(HEADS, "<i>")}
        return told | {"link": leaderboard._link(player)}

    table = leaderboard.table([row("<script>"), row("org/model@v1"), row("org/base+me/adapter"), row("pocket")])
    assert "<script>" not in table
    assert "<b>" not in table
    assert "<i>" not in table
    assert '<a href="https://huggingface.co/org/model">org/model@v1</a>' in table
    assert '<a href="https://huggingface.co/me/adapter">org/base+me/adapter</a>' in table
    assert table.count("<a ") == 2
