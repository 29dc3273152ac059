"""The Leaderboard tab: results of a dataset on the Hub, or those that come with the Space."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import lines
import players

from msgrpo_hub.errors import UserError
from msgrpo_hub.hub import read_leaderboard
from msgrpo_hub.hub.leaderboard import as_rows

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}(?:@[\w./-]{1,95})?", re.ASCII)


def leaderboard(game: str = "", results: str = "") -> list[dict[str, Any]]:
    """Returns scores with 95 % intervals, best first in each game; players that do not play are last and have no rank.

    Args:
        game: id of a game; empty for all games.
        results: USER/NAME of a dataset with published results; empty for the bundled results.

    Returns:
        Rows with `task`, `player`, `rank` (the best and the worst place that paired tests leave open), `episodes`, `reward` and
        `success` (each `mean`, `low`, `high`), `normalised` (0 is random play, 1 the reference), `silent` (the reward of doing
        nothing), `plays` (whether at least half of the replies were parsed), how the player acted (`temperature`, `token limit`,
        `prompt format`, `engine`) and `link` (empty if the player has no page).
    """
    rows = [{**row, "link": _link(row["player"])} for row in (published(results) if results else bundled())]
    chosen = [row for row in rows if not game or row["task"] == game]
    return sorted(chosen, key=lambda row: (row["task"], not row["plays"], -_mean(row["reward"]), row["player"]))


def _mean(score: dict[str, Any] | None) -> float:
    return float(score["mean"]) if score else float("-inf")


@cache
def bundled() -> list[dict[str, Any]]:
    """The benchmark's results that come with the Space."""
    found: list[dict[str, Any]] = json.loads((players.BUNDLE / "leaderboard.json").read_text(encoding="utf-8"))
    return found


def published(source: str) -> list[dict[str, Any]]:
    """The results of a dataset on the Hub; every run is verified first. Raises `UserError` for a dataset without results."""
    if not isinstance(source, str) or len(source) > 200 or not _REPO.fullmatch(source) or ".." in source or Path(source).exists():
        raise UserError(f"{str(source)[:60]!r} is not a dataset: expected USER/NAME or USER/NAME@REVISION")
    repo, _, revision = source.partition("@")
    with lines.DATASETS.place(), lines.DATASETS.turn():
        found = read_leaderboard(repo, revision=revision or None)
    return as_rows(found)


def _link(player: str) -> str:
    """The page of a player on the Hub; empty for a built-in player."""
    repo = player.partition("+")[2] or player
    return f"https://huggingface.co/{repo.partition('@')[0]}" if _REPO.fullmatch(repo) else ""
