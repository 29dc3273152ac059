"""Files of a run: a log that only grows while it plays, and the Parquet files that it ends with.

One run is one player on one task; its folder is `<player>/<commit>/<task>/<run hash>/`:

    config.lock.json   all that decides the result; the run hash is the hash of this file's content
    episodes.jsonl     one line per finished episode, only while the run is not complete
    episodes.parquet   one row per episode: seeds, scores
    steps.parquet      one row per step: observation, reply, action, reward, legal and optimal actions, regret
    results.json       the summary, with intervals
    timing.json        seconds; the only file that differs when a run is repeated
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from msgrpo_hub.episode import Completion, Episode, EpisodeScore, Step, StepScore
from msgrpo_hub.storage.files import write_atomically

CONFIG, LOG, EPISODES, STEPS, RESULTS, TIMING = (
    "config.lock.json",
    "episodes.jsonl",
    "episodes.parquet",
    "steps.parquet",
    "results.json",
    "timing.json",
)

_EPISODE_COLUMNS = {
    "index": pa.int32(),
    "seed": pa.int64(),
    "member": pa.int32(),
    "terminated": pa.bool_(),
    "truncated": pa.bool_(),
    "reward": pa.float64(),
    "success": pa.bool_(),
    **{name: pa.int32() for name in ("steps", "unreadable", "truncated_replies", "illegal", "prompt_tokens", "reply_tokens")},
    **{name: pa.float64() for name in ("value_optimal", "value_random", "regret", "luck_adjusted")},
    **{name: pa.int32() for name in ("optimal_steps", "first_mistake")},
}
_STEP_COLUMNS = {
    "index": pa.int32(),
    "turn": pa.int32(),
    "observation": pa.string(),
    "reply": pa.string(),
    "finish": pa.string(),
    "action": pa.string(),
    "status": pa.string(),
    "legal": pa.bool_(),
    "reward": pa.float64(),
    "prompt_tokens": pa.int32(),
    "reply_tokens": pa.int32(),
    "legal_actions": pa.list_(pa.string()),
    "optimal_actions": pa.list_(pa.string()),
    "regret": pa.float64(),
}


# ---- the log


def append_episodes(path: Path, played: Iterable[tuple[int, Episode]], seconds: float) -> None:
    """Adds finished episodes to the log, each as one line, and makes sure that they are on the disk."""
    rows = list(played)
    with path.open("a", encoding="utf-8") as file:
        for index, episode in rows:
            line = {"index": index, "seconds": seconds / len(rows), "episode": _plain(episode)}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_log(path: Path, game_id: str) -> tuple[dict[int, Episode], float]:
    """The finished episodes of a log by index, and their seconds. A last line cut by a kill is cut off the file."""
    episodes: dict[int, Episode] = {}
    seconds, whole = 0.0, 0
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        try:
            row = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            row = None
        if row is None:
            os.truncate(path, whole)
            break
        whole += len(line)
        episodes[row["index"]] = _episode(game_id, row["episode"])
        seconds += row["seconds"]
    return episodes, seconds


def _plain(episode: Episode) -> dict[str, Any]:
    head = {name: getattr(episode, name) for name in ("seed", "member", "terminated", "truncated", "success")}
    return head | {"steps": [_plain_step(step) for step in episode.steps]}


def _plain_step(step: Step) -> dict[str, Any]:
    told = {name: getattr(step, name) for name in ("observation", "action", "status", "legal", "reward")}
    reply = step.completion
    return told | {
        "reply": reply.text.encode("utf-8", "replace").decode("utf-8"),  # half a surrogate pair, from a server, is no text
        "finish": reply.finish,
        "prompt_tokens": reply.prompt_tokens,
        "reply_tokens": reply.reply_tokens,
    }


def _episode(game_id: str, plain: Mapping[str, Any]) -> Episode:
    return Episode(game_id=game_id, **{**plain, "steps": tuple(_step(step) for step in plain["steps"])})


def _step(plain: Mapping[str, Any]) -> Step:
    read, written = plain["prompt_tokens"], plain["reply_tokens"]
    usage = None if read is None or written is None else (int(read), int(written))
    return Step(
        **{name: plain[name] for name in ("observation", "action", "status", "legal", "reward")},
        completion=Completion(text=plain["reply"], finish=plain["finish"], usage=usage),
    )


# ---- the final files


def write_tables(
    folder: Path,
    indices: Sequence[int],
    episodes: Sequence[Episode],
    scores: Sequence[EpisodeScore],
    steps: Sequence[Sequence[StepScore]],
) -> None:
    """Writes both Parquet files; equal content gives equal bytes."""
    for name, table in tables(indices, episodes, scores, steps).items():
        write_atomically(folder / name, partial(pq.write_table, table, compression="zstd"))


def tables(
    indices: Sequence[int],
    episodes: Sequence[Episode],
    scores: Sequence[EpisodeScore],
    steps: Sequence[Sequence[StepScore]],
) -> dict[str, pa.Table]:
    """The content of both Parquet files, by name."""
    kept = ("seed", "member", "terminated", "truncated")
    heads = [
        {"index": index, **{name: getattr(episode, name) for name in kept}, **asdict(score)}
        for index, episode, score in zip(indices, episodes, scores, strict=True)
    ]
    rows = [
        {"index": index, "turn": turn, **_plain_step(step), **asdict(score)}
        for index, episode, judged in zip(indices, episodes, steps, strict=True)
        for turn, (step, score) in enumerate(zip(episode.steps, judged, strict=True))
    ]
    return {
        EPISODES: pa.Table.from_pylist(heads, schema=pa.schema(list(_EPISODE_COLUMNS.items()))),
        STEPS: pa.Table.from_pylist(rows, schema=pa.schema(list(_STEP_COLUMNS.items()))),
    }


def read_tables(folder: Path, game_id: str) -> tuple[list[Episode], list[EpisodeScore], list[list[StepScore]]]:
    """What `write_tables` wrote, as equal objects."""
    heads = pq.read_table(folder / EPISODES).to_pylist()
    rows = pq.read_table(folder / STEPS).to_pylist()
    grouped = {index: list(group) for index, group in groupby(rows, key=lambda row: row["index"])}
    names = [field.name for field in fields(EpisodeScore)]
    episodes = [_episode(game_id, _head(head) | {"steps": grouped.get(head["index"], [])}) for head in heads]
    scores = [EpisodeScore(**{name: head[name] for name in names}) for head in heads]
    judged = [[_step_score(row) for row in grouped.get(head["index"], [])] for head in heads]
    return episodes, scores, judged


def _head(head: Mapping[str, Any]) -> dict[str, Any]:
    return {name: head[name] for name in ("seed", "member", "terminated", "truncated", "success")}


def _step_score(row: Mapping[str, Any]) -> StepScore:
    return StepScore(
        legal_actions=tuple(row["legal_actions"]), optimal_actions=tuple(row["optimal_actions"]), regret=row["regret"]
    )
