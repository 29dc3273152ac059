"""The leaderboard: bundled rows without a network, published runs played again, and names that cannot become markup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import leaderboard
import players
import present
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
    """Called on the owner's machine."""
    return leaderboard.leaderboard("", source)


def test_bundled_rows_are_those_of_the_benchmark_with_ranks_and_settings() -> None:
    rows = leaderboard.leaderboard(LAKE)
    by_player = {row["player"]: row for row in rows}
    optimal, model = by_player["optimal"], by_player["lake"]
    assert (optimal["episodes"], optimal["reward"]["mean"], optimal["rank"], optimal["link"]) == (200, 1.0, [1, 4], "")
    assert (model["temperature"], model["token limit"], model["prompt format"]) == ("1", "32", "think-action")
    assert len(leaderboard.leaderboard()) > len(rows) > 3


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


def test_what_is_no_dataset_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    for source in ("..", "a/b/c", "x" * 201, "http://x/y", "benchmark/results"):
        with pytest.raises(UserError, match="is not a dataset"):
            leaderboard.leaderboard("", source)


def test_a_player_that_does_not_play_is_marked_and_listed_last() -> None:
    """On poisoned apples no reward is better than its own."""
    rows = leaderboard.leaderboard("Snake-PoisonApple-v1")
    assert [row["player"] for row in rows if not row["plays"]] == ["silent"] == [rows[-1]["player"]]
    assert rows[-1]["reward"]["mean"] == 0 == max(row["reward"]["mean"] for row in rows)
    *others, last = leaderboard.table(rows).split("<tr>")[2:]
    assert ["does not play" in row for row in [*others, last]] == [False] * len(others) + [True]


def test_every_player_that_can_be_watched_has_a_replay() -> None:
    for row in leaderboard.leaderboard():
        player = leaderboard.watched(row)
        assert bool(player) == (row["player"] not in ("silent", "DQN"))
        if player in players.SCRIPTED:
            assert replay.watch(row["task"], 0, player)["players"]
        elif player:
            assert players.check_player(player, make_game(row["task"]))


def test_names_are_escaped_and_models_of_the_hub_are_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    name = '<img src="http://198.51.100.1/x"><b>'
    told = {"task": "<b>", "episodes": 30, "reward": SCORE, "success": None, "normalised": None, "rank": [1, 4], "silent": 0.0}
    told |= {"plays": True, **dict.fromkeys(HEADS, "<i>")}
    named = [name, "org/model@v1", "org/base+me/adapter", "pocket"]
    monkeypatch.setattr(players, "bundled", lambda _: [{**told, "player": player} for player in named])
    page = leaderboard.leaderboard_page(leaderboard.leaderboard())
    assert page.count('<a href="https://huggingface.co/org/model">org/model@v1</a>') == 2
    assert page.count('<a href="https://huggingface.co/me/adapter">org/base+me/adapter</a>') == 2
    assert page.count('<a href="https:') == 4
    figures = {"player": name, "reward": SCORE, "success": SCORE}
    difference = SCORE | {"p": 0.5, "verdict": "inconclusive", "detectable": 0.1}
    scores = present.comparison({"a": figures, "b": figures, "difference": difference, "episodes": 30, "wanted": 30})
    assert "Reward = success" in scores
    assert scores.count('class="whisker"') == 2  # one axis a player
    for html in (page, scores.replace('<p class="verdict"><b>', "")):
        assert "&lt;img" in html
        assert not any(tag in html for tag in ("<img", "<b>", "<i>"))
