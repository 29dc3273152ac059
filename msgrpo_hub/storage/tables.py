"""Episodes ↔ rows of the two tables: one row per episode (`default`) and one per step (`steps`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby, repeat
from typing import Any, get_args

import pyarrow as pa

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, THINK_ACTION, Message, PromptFormat
from msgrpo_hub.episode import Completion, Episode, EpisodeScore, Finish, ReplyStatus, Step, StepScore
from msgrpo_hub.games import make_game
from msgrpo_hub.rollout import past_turns
from msgrpo_hub.storage.schema import CONFIGS, SCHEMAS

Scores = tuple[Sequence[StepScore], EpisodeScore]
"""Scores of the steps, and of the whole episode (`evaluation.scores.judged`)."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """An episode with its index (None in training), and the data of the update it was played for (None in evaluation)."""

    episode: Episode
    index: int | None = None
    prompt_format: str = THINK_ACTION.name
    update: int | None = None
    advantage: float | None = None
    step_advantages: tuple[float, ...] | None = None
    selected: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Who played episodes, and with which settings; each field is a column."""

    split: str
    player: str
    run: str
    base: str | None = None
    base_revision: str | None = None
    adapter: str | None = None
    adapter_revision: str | None = None
    temperature: float | None = None
    max_new_tokens: int | None = None


_OF_ROLLOUT = ("index", "update", "advantage", "selected")
_OF_EPISODE = ("seed", "member", "terminated", "truncated", "success", "error")
_OF_STEP = ("observation", "action", "status", "legal", "reward")
_TOKENS = ("prompt_ids", "token_ids", "log_probs", "entropies")
_KEY = ("game", "seed", "member", "update", "index")
"""Columns that match steps to their episode within a file."""


def tables(
    rollouts: Sequence[Rollout], origin: Origin | None = None, scores: Sequence[Scores] | None = None
) -> dict[str, pa.Table]:
    """Both tables of some episodes. The scores, one per episode, fill the columns that follow from the rules."""
    rows: dict[str, list[dict[str, Any]]] = {config: [] for config in CONFIGS}
    for rollout, scored in zip(rollouts, scores or repeat(None, len(rollouts)), strict=True):
        head, steps = rows_of(rollout, origin, scored)
        rows["default"].append(head)
        rows["steps"] += steps
    return {config: pa.Table.from_pylist(rows[config], schema=SCHEMAS[config]) for config in CONFIGS}


def rows_of(
    rollout: Rollout, origin: Origin | None = None, scores: Scores | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row of an episode, and the rows of its steps."""
    episode = rollout.episode
    both = {name: getattr(rollout, name) for name in _OF_ROLLOUT} | {"game": episode.game_id}
    both |= {name: getattr(episode, name) for name in ("seed", "member", "success")}
    both["episode"] = f"{origin.run}-{rollout.update or 0}-{episode.seed}-{episode.member}" if origin else None
    head = both | {name: getattr(episode, name) for name in _OF_EPISODE} | (_values(origin) if origin else {})
    head |= {"prompt_format": rollout.prompt_format, "steps": len(episode.steps)}
    steps = [{**both, "turn": turn, **step_row(step)} for turn, step in enumerate(episode.steps)]
    for row, advantage in zip(steps, rollout.step_advantages or [None] * len(steps), strict=True):
        row["advantage"] = advantage
    if scores is None:
        return head, steps
    of_steps, of_episode = scores
    head |= _values(of_episode) | {"actions": [step.action for step in episode.steps]}
    prompt_format = PROMPT_FORMATS.get(rollout.prompt_format)  # a stored name never imports a format
    prompts = prompts_of(episode, prompt_format) if prompt_format else [None] * len(steps)
    for row, score, messages in zip(steps, of_steps, prompts, strict=True):
        row |= _values(score) | {"prompt": messages}
    return head, steps


def _values(record: Origin | EpisodeScore | StepScore) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}  # asdict makes slow deep copies


def step_row(step: Step) -> dict[str, Any]:
    """The columns of a step that need no other data."""
    reply = step.completion
    counts = dict(zip(("prompt_tokens", "reply_tokens"), reply.tokens, strict=True))
    own = {name: getattr(step, name) for name in _OF_STEP} | {name: getattr(reply, name) for name in _TOKENS}
    # a server may send lone surrogates, which no file can hold
    return own | counts | {"reply": reply.text.encode("utf-8", "replace").decode(), "finish": reply.finish}


def prompts_of(episode: Episode, prompt_format: PromptFormat) -> list[list[Message]]:
    """The prompts of an episode that was played in this format."""
    game, steps = make_game(episode.game_id), episode.steps
    return [
        prompt_format.render(game, step.observation, past_turns(prompt_format, steps[:turn])) for turn, step in enumerate(steps)
    ]


def read_rollouts(heads: pa.Table, steps: pa.Table) -> list[Rollout]:
    """The episodes of two tables, in the order of the rows. Raises `ValueError` for tables that do not fit together."""
    return [rollout_of(head, rows) for head, rows in episode_rows(heads, steps)]


def episode_rows(heads: pa.Table, steps: pa.Table) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The row of each episode with the rows of its steps. Raises `ValueError` as above."""
    grouped = groupby(steps.to_pylist(), key=lambda row: tuple(row[name] for name in _KEY))
    for head in heads.to_pylist():
        identity, rows = next(grouped, (None, iter(()))) if head["steps"] else (None, iter(()))
        group = list(rows)
        complete = [row["turn"] for row in group] == list(range(head["steps"]))
        if not complete or (group and identity != tuple(head[name] for name in _KEY)):
            raise ValueError(f"the steps of episode {head['seed']}, {head['member']} are not where they should be")
        yield head, group
    if next(grouped, None):
        raise ValueError("there are steps without an episode")


def rollout_of(head: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> Rollout:
    """The episode of a row and the rows of its steps. Raises `ValueError` for values that no episode has."""
    episode = Episode(game_id=head["game"], steps=tuple(map(step_of, steps)), **{name: head[name] for name in _OF_EPISODE})
    advantages = [row["advantage"] for row in steps]
    if any((advantage is None) != (head["advantage"] is None) for advantage in advantages):
        raise ValueError(f"episode {head['seed']}, {head['member']} has advantages for only some of its steps")
    return Rollout(
        episode=episode,
        prompt_format=head["prompt_format"],
        step_advantages=None if head["advantage"] is None else tuple(advantages),
        **{name: head[name] for name in _OF_ROLLOUT},
    )


def step_of(row: Mapping[str, Any]) -> Step:
    """The step of a row; a row without token ids, as in the log of a run, gives one without."""
    if row["status"] not in get_args(ReplyStatus) or row["finish"] not in get_args(Finish):
        raise ValueError(f"status {row['status']!r} and finish {row['finish']!r}: expected those of the format")
    ids: dict[str, Any] = {name: tuple(row.get(name, ())) for name in _TOKENS}
    read, written = row["prompt_tokens"], row["reply_tokens"]
    usage = None if ids["prompt_ids"] or read is None or written is None else (int(read), int(written))
    completion = Completion(text=row["reply"], finish=row["finish"], usage=usage, **ids)
    return Step(completion=completion, **{name: row[name] for name in _OF_STEP})


def scores_of(head: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> tuple[list[StepScore], EpisodeScore]:
    """The stored scores of an episode, from the rows of a run."""
    of_steps = [
        StepScore(legal_actions=tuple(row["legal_actions"]), optimal_actions=tuple(row["optimal_actions"]), regret=row["regret"])
        for row in steps
    ]
    return of_steps, EpisodeScore(**{field.name: head[field.name] for field in fields(EpisodeScore)})
