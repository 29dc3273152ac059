"""Files of a run: an append-only log while it plays, and the final Parquet files.

One run is one player on one task; its folder is `<player>/<commit>/<task>/<run hash>/`:

    config.lock.json   everything that determines the result; the run hash is the hash of its content
    episodes.jsonl     one line per finished episode; deleted when the run is complete
    episodes.parquet   one row per episode: seeds, scores (the columns of `storage.schema`)
    steps.parquet      one row per step: observation, reply, action, reward, legal and optimal actions, regret
    results.json       the summary, with intervals
    failures.jsonl     one line per episode that stopped with a server error; only in an incomplete run
    .lock              held by the playing process; only in an incomplete run
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from msgrpo_hub.episode import Episode, EpisodeScore, StepScore, known_sum
from msgrpo_hub.errors import UserError
from msgrpo_hub.storage.files import write_atomically
from msgrpo_hub.storage.shards import read_table, write_table
from msgrpo_hub.storage.tables import episode_rows, rollout_of, scores_of, step_of, step_row

CONFIG, LOG, EPISODES, STEPS = "config.lock.json", "episodes.jsonl", "episodes.parquet", "steps.parquet"
RESULTS, FAILURES, LOCK = "results.json", "failures.jsonl", ".lock"
TABLES = {"default": EPISODES, "steps": STEPS}
"""Configuration of the dataset → its file in a run."""

_DAMAGED = "is damaged: expected the episodes that `msgrpo eval` wrote; delete it to play them again"
_HEAD = ("seed", "member", "terminated", "truncated", "success")
_STEP = ("observation", "action", "status", "legal", "reward", "reply", "finish", "prompt_tokens", "reply_tokens")
_FILLED = {"default": ("game", "error", "reward", "success"), "steps": ("observation", "reply", "reward")}
"""Columns whose values are used before a run is verified: they have no null."""


def append_episodes(path: Path, played: Iterable[tuple[int, Episode]]) -> None:
    """Appends finished episodes to the log, one line each, and syncs them to disk."""
    with path.open("a", encoding="utf-8") as file:
        for index, episode in played:
            steps = [{name: row[name] for name in _STEP} for row in map(step_row, episode.steps)]
            line = {"index": index, "episode": {**{name: getattr(episode, name) for name in _HEAD}, "steps": steps}}
            near = known_sum([step.completion.near_draws for step in episode.steps])
            line |= {} if near is None else {"near_draws": near}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_rows(path: Path, *, repair: bool = False) -> list[dict[str, Any]]:
    """The rows of a log before its first incomplete line, which another process may be writing; `repair` removes the rest."""
    rows: list[dict[str, Any]] = []
    whole, lines = 0, path.read_bytes().splitlines(keepends=True) if path.exists() else []
    for line in lines:
        try:
            row = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            row = None
        if row is None:
            break
        if not isinstance(row, dict) or not isinstance(row.get("index"), int):
            raise UserError(f"{str(path)!r} {_DAMAGED}")
        rows.append(row)
        whole += len(line)
    if repair and len(rows) < len(lines):
        os.truncate(path, whole)
    return rows


def read_log(path: Path, game_id: str) -> tuple[dict[int, Episode], int | None]:
    """The finished episodes of a log by index, and their near draws (None if unknown). Removes an incomplete last line."""
    rows, episodes = read_rows(path, repair=True), {}
    try:
        for row in rows:
            steps = tuple(map(step_of, row["episode"]["steps"]))
            episodes[row["index"]] = Episode(game_id=game_id, **{**row["episode"], "steps": steps})
        return episodes, known_sum([row.get("near_draws") for row in rows])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{str(path)!r} {_DAMAGED}") from error


def write_tables(folder: Path, tables: Mapping[str, pa.Table]) -> None:
    """Writes both Parquet files; equal content gives equal bytes."""
    for config, name in TABLES.items():
        write_atomically(folder / name, partial(write_table, tables[config]))


def read_tables(folder: Path) -> tuple[list[Episode], list[EpisodeScore], list[list[StepScore]]]:
    """The episodes of a run with their scores, equal to those written. Raises `ValueError` if the tables do not fit."""
    tables = {config: read_table(folder / name, config) for config, name in TABLES.items()}
    for config, table in tables.items():
        if holes := [name for name in _FILLED[config] if table[name].null_count]:
            raise UserError(f"{TABLES[config]} has rows without {holes[0]}")
    rows = list(episode_rows(tables["default"], tables["steps"]))
    scored = [scores_of(head, steps) for head, steps in rows]
    episodes = [rollout_of(head, steps).episode for head, steps in rows]
    return episodes, [of_episode for _, of_episode in scored], [of_steps for of_steps, _ in scored]
