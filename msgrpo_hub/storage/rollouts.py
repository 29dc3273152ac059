"""Episodes as two Parquet tables that anybody can read: one row per episode (`default`) and one per step (`steps`).

What only the play could tell (replies, tokens, log-probabilities, advantages) is written while it is played; what the rules
say of it (legal and optimal actions, regret) is added when a data set is made of it, and left empty until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from msgrpo_hub.agent.prompt_formats import Message, system_text, user_text
from msgrpo_hub.episode import Completion, Episode, EpisodeScore, Finish, ReplyStatus, Step, StepScore
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game

FORMAT = "msgrpo-rollouts-v1"
"""Which columns there are and what they mean. A change of either is a new version."""

CONFIGS = ("default", "steps")
"""The two tables, by the names that `datasets.load_dataset` knows them by; each is a folder of shards."""

ROWS = 1000
"""Rows of a row group: small ones can be looked at one by one, on the Hub and by streaming."""

LARGEST = 2 * 1024**3
"""Bytes that a row group of somebody else's file may unpack to."""

_S, _B, _I, _L, _F = pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.float64()
_MESSAGES = pa.list_(pa.struct([("role", _S), ("content", _S)]))

EPISODE_COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    "episode": (_S, "id of the episode, the same in both configurations"),
    "split": (_S, "`train`: played while training; `validation`, `test`: played by `msgrpo eval`"),
    "game": (_S, "id of the game, with its version"),
    "seed": (_L, "seed of the initial state, which the episodes of a group share"),
    "member": (_I, "number in the group: its dynamics and its sampling are its own"),
    "update": (_I, "update that it was played for, the first is 1; null in evaluation"),
    "advantage": (_F, "advantage in its group; null in evaluation"),
    "drawn": (_B, "whether it was drawn for the update (AAW, unless another sampler was chosen); null in evaluation"),
    "reward": (_F, "sum of the rewards, without any format penalty"),
    "success": (_B, "whether the game was won"),
    "terminated": (_B, "ended by the rules"),
    "truncated": (_B, "ended by the horizon"),
    "error": (_S, "why it stopped before its end; empty where it did not"),
    "steps": (_I, "number of steps"),
    "actions": (pa.list_(_S), "the actions read from the replies; null where none could be read"),
    "unreadable": (_I, "replies that ended without a readable action"),
    "truncated_replies": (_I, "replies cut at the token limit before an action"),
    "illegal": (_I, "actions that could be read and were not legal"),
    "prompt_tokens": (_I, "tokens read; null where they are not known"),
    "reply_tokens": (_I, "tokens written; null as above"),
    "value_optimal": (_F, "expected return of optimal play from the initial state; null where the game is not solved"),
    "value_random": (_F, "expected return of uniformly random actions; null as above"),
    "regret": (_F, "expected return given away by its actions in all; null as above"),
    "luck_adjusted": (_F, "value_optimal − regret: the reward without the luck of the dynamics; null as above"),
    "optimal_steps": (_I, "steps with an optimal action; null as above"),
    "first_mistake": (_I, "first step (from 0) whose action was not optimal, -1 where there is none; null as above"),
    "player": (_S, "who played; `training`: the base with the adapter as it was after update − 1 updates"),
    "base": (_S, "base model; null for players that are none"),
    "base_revision": (_S, "its commit, or the hash of its folder"),
    "adapter": (_S, "adapter of an evaluation; null where there is none"),
    "adapter_revision": (_S, "its commit, or the hash of its folder"),
    "temperature": (_F, "sampling temperature; null where nothing is sampled"),
    "max_new_tokens": (_I, "limit of a reply, in tokens"),
    "run": (_S, "hash of the configuration that it was played with"),
}
"""Of the configuration `default`: column → (type, meaning)."""

STEP_COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    **{name: EPISODE_COLUMNS[name] for name in ("episode", "game", "seed", "member", "update")},
    "turn": (_I, "number of the step, from 0"),
    "prompt": (_MESSAGES, "chat messages that the player was given"),
    "reply": (_S, "what it answered, verbatim"),
    "finish": (_S, "`stop`: by its end token; `length`: cut at the token limit"),
    "status": (_S, "`ok`, `unreadable` or `truncated_reply`"),
    "action": (_S, "action read from the reply; null where none could be read"),
    "legal": (_B, "whether it was legal"),
    "reward": (_F, "reward of the step"),
    "legal_actions": (pa.list_(_S), "all legal actions"),
    "optimal_actions": (pa.list_(_S), "all optimal actions; empty where the game is not solved"),
    "regret": (_F, "expected return given away by the action; null where the game is not solved"),
    **{name: EPISODE_COLUMNS[name] for name in ("success", "advantage", "drawn")},
    "observation": (_S, "what the game showed, which is a part of the prompt"),
    "prompt_tokens": (_I, "tokens of the prompt; null where they are not known"),
    "reply_tokens": (_I, "tokens of the reply; null as above"),
    "prompt_ids": (pa.list_(_I), "token ids of the prompt; empty where they are not known"),
    "token_ids": (pa.list_(_I), "token ids of the reply, as sampled"),
    "log_probs": (pa.list_(_F), "log-probability of each token under the distribution that it was drawn from"),
    "entropies": (pa.list_(_F), "entropy of that distribution, in nats"),
}
"""Of the configuration `steps`."""

COLUMNS = dict(zip(CONFIGS, (EPISODE_COLUMNS, STEP_COLUMNS), strict=True))


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """An episode, and what the update that it was played for made of it; None in evaluation."""

    episode: Episode
    update: int | None = None
    advantage: float | None = None
    drawn: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where the episodes of a shard come from; each field is a column."""

    split: str
    player: str
    run: str
    base: str | None = None
    base_revision: str | None = None
    adapter: str | None = None
    adapter_revision: str | None = None
    temperature: float | None = None
    max_new_tokens: int | None = None


Judge = Callable[[Episode], tuple[list[StepScore], EpisodeScore]]
"""Scores an episode and its steps by the rules: `evaluation.scores.judged`."""


def schema(config: str) -> pa.Schema:
    """The columns of a configuration, with the version of the format."""
    return pa.schema([(name, kind) for name, (kind, _) in COLUMNS[config].items()], metadata={"format": FORMAT})


# ---- episodes → tables


def tables(rollouts: Sequence[Rollout], origin: Origin | None = None, judge: Judge | None = None) -> dict[str, pa.Table]:
    """Both tables of some episodes; with an origin and a judge, also what the rules say of them.

    Raises:
        ValueError: from the judge, for a record that does not replay.
    """
    rows: dict[str, list[dict[str, Any]]] = {config: [] for config in CONFIGS}
    for rollout in rollouts:
        head, steps = rows_of(rollout, origin, judge)
        rows["default"].append(head)
        rows["steps"] += steps
    return {config: pa.Table.from_pylist(rows[config], schema=schema(config)) for config in CONFIGS}


def rows_of(
    rollout: Rollout, origin: Origin | None = None, judge: Judge | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row of an episode, and those of its steps."""
    episode = rollout.episode
    told = {"update": rollout.update, "advantage": rollout.advantage, "drawn": rollout.drawn}
    both = {"game": episode.game_id, "seed": episode.seed, "member": episode.member, "success": episode.success, **told}
    both["episode"] = f"{origin.run}-{rollout.update or 0}-{episode.seed}-{episode.member}" if origin else None
    head = {name: getattr(episode, name) for name in ("terminated", "truncated", "error")} | both
    steps = [{**both, "turn": turn, **_step_row(step)} for turn, step in enumerate(episode.steps)]
    if origin is None or judge is None:
        return head | {"steps": len(steps)}, steps
    judged, score = judge(episode)
    head |= _told(origin) | _told(score) | {"actions": [step.action for step in episode.steps]}
    for row, step, said in zip(steps, episode.steps, judged, strict=True):
        row |= _told(said) | {"prompt": prompt_messages(episode.game_id, step.observation)}
    return head, steps


def _told(record: Origin | EpisodeScore | StepScore) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}  # asdict copies deeply, which takes long


def _step_row(step: Step) -> dict[str, Any]:
    reply = step.completion
    told = {name: getattr(step, name) for name in ("observation", "action", "status", "legal", "reward")}
    tokens = {name: getattr(reply, name) for name in ("prompt_ids", "token_ids", "log_probs", "entropies")}
    text = reply.text.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair, from a server, is no text
    counts = {"prompt_tokens": reply.prompt_tokens, "reply_tokens": reply.reply_tokens}
    return told | tokens | counts | {"reply": text, "finish": reply.finish}


def prompt_messages(game_id: str, observation: str) -> list[Message]:
    """The prompt of a step: the game's words, and what it showed."""
    return [{"role": "system", "content": _system(game_id)}, {"role": "user", "content": user_text(observation)}]


@cache
def _system(game_id: str) -> str:
    return system_text(make_game(game_id))


# ---- tables → episodes


def read_rollouts(heads: pa.Table, steps: pa.Table) -> list[Rollout]:
    """The episodes of two tables, in the order of the rows. Raises `ValueError` where the tables do not fit together."""
    key = ("seed", "member", "update")
    grouped = groupby(steps.to_pylist(), key=lambda row: tuple(row[name] for name in key))
    rollouts = []
    for head in heads.to_pylist():
        identity, rows = next(grouped, (None, iter(()))) if head["steps"] else (None, iter(()))
        found = list(rows)
        whole = [row["turn"] for row in found] == list(range(head["steps"]))
        if not whole or (found and identity != tuple(head[name] for name in key)):
            raise ValueError(f"the steps of episode {head['seed']}, {head['member']} are not where they should be")
        rollouts.append(_rollout(head, found))
    if next(grouped, None):
        raise ValueError("there are steps of no episode")
    return rollouts


def _rollout(head: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> Rollout:
    kept = {name: head[name] for name in ("seed", "member", "terminated", "truncated", "success", "error")}
    episode = Episode(game_id=head["game"], steps=tuple(_step(row) for row in steps), **kept)
    return Rollout(episode=episode, **{name: head[name] for name in ("update", "advantage", "drawn")})


def _step(row: Mapping[str, Any]) -> Step:
    if row["status"] not in get_args(ReplyStatus) or row["finish"] not in get_args(Finish):
        raise ValueError(f"a reply is {row['status']!r} and ended by {row['finish']!r}, which is neither known")
    ids: dict[str, Any] = {name: tuple(row[name]) for name in ("prompt_ids", "token_ids", "log_probs", "entropies")}
    read, written = row["prompt_tokens"], row["reply_tokens"]
    usage = None if ids["prompt_ids"] or read is None or written is None else (int(read), int(written))
    return Step(
        **{name: row[name] for name in ("observation", "action", "status", "legal", "reward")},
        completion=Completion(text=row["reply"], finish=row["finish"], usage=usage, **ids),
    )


def origin_of(head: Mapping[str, Any]) -> Origin | None:
    """The origin that a row of `default` tells; None for one of a training's own log."""
    return Origin(**{field.name: head[field.name] for field in fields(Origin)}) if head["run"] is not None else None


# ---- files


def write_table(table: pa.Table, path: Path) -> None:
    """Writes a shard; equal content is equal bytes."""
    with open_shard(path, table.schema) as file:
        file.write_table(table, row_group_size=ROWS)


def open_shard(path: Path, columns: pa.Schema) -> pq.ParquetWriter:
    """A shard to be written part by part."""
    return pq.ParquetWriter(path, columns, compression="zstd", write_page_index=True)


def shards(folder: Path) -> list[tuple[Path, Path]]:
    """The shards below a folder, of both configurations, in the order of their names.

    They lie in `default/` and `steps/` of a data set, or of `rollouts/` in the folder of a run. A shard of steps without its
    episodes is what a kill left behind, and does not count.
    """
    place = next((place for place in (folder, folder / "rollouts") if (place / "default").is_dir()), folder)
    return [(path, place / "steps" / path.name) for path in sorted(place.glob("default/*.parquet"))]


def read_shard(heads: Path, steps: Path) -> tuple[pa.Table, pa.Table]:
    """Both tables of a shard.

    Raises:
        UserError: it is missing, is no Parquet, has other columns, or would unpack to more than fits.
    """
    return _read(heads, "default"), _read(steps, "steps")


def _read(path: Path, config: str) -> pa.Table:
    try:
        with pq.ParquetFile(path) as file:
            groups = [file.metadata.row_group(number).total_byte_size for number in range(file.metadata.num_row_groups)]
            if max(groups, default=0) > LARGEST:
                raise UserError(f"{str(path)!r} unpacks to {max(groups)} bytes at once: expected at most {LARGEST}")
            if file.schema_arrow != schema(config):
                raise UserError(f"{str(path)!r} has other columns: expected those of {FORMAT}, as `msgrpo push rollouts` writes")
            return file.read()
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{str(path)!r} cannot be read ({_first(error)}): expected a shard of {FORMAT}") from error


def _first(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def load_shards(folder: Path, split: str | None = None) -> Iterator[list[Rollout]]:
    """The episodes of each shard below a folder. Raises `UserError` as `read_shard` does, and where a shard is inconsistent."""
    for heads, steps in shards(folder):
        if split in (None, heads.name.partition("-")[0]):
            try:
                yield read_rollouts(*read_shard(heads, steps))
            except (ValueError, TypeError) as error:
                raise UserError(f"{str(heads)!r} is refused ({_first(error)}): expected whole episodes") from error
