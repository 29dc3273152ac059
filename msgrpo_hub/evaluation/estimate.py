"""The cost of an evaluation before it runs: episodes, replies, tokens, time and price. Nothing is stored."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgrpo_hub.agent.policy import Policy
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat, find_format
from msgrpo_hub.evaluation.runner import asked_in, known_tasks, missing_episodes
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.tables import NONE, Row, aligned, short
from msgrpo_hub.games import Game, make_game
from msgrpo_hub.players.registry import ServedPlayer, find_player, identify
from msgrpo_hub.players.sample_play import RecordingPolicy, prompts_of, scripted_prompts
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rollout import play_episodes

COUNTED = 8
"""Episodes of scripted play whose prompts are counted, per task."""
SCRIPT = "random-safe"
"""The scripted player whose turns and prompts are counted."""
PROBE_SECONDS = 10.0
"""Seconds for the probes of all tasks together; each probe plays at least `FEWEST_TURNS`."""
FEWEST_TURNS = 2
"""The first turn of a probe also computes what all turns share."""
CHARACTERS_PER_TOKEN = 3.0
"""Characters of the games' prompts per token of a served model."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a server charges, in dollars per million tokens."""

    tokens_in: float = 0.0
    """For prompts."""
    tokens_out: float = 0.0
    """For replies."""


@dataclass(frozen=True, kw_only=True)
class TaskEstimate:
    """The cost of one task."""

    task: str
    episodes: int
    """Episodes still to be played."""
    calls: int
    """Replies for all of them."""
    prompt_tokens: float | None
    """Tokens read per episode; None for a player without tokens."""
    reply_tokens: float | None
    """Tokens written per episode; None as above."""
    seconds: float | None
    """Time for all of them; None for a server."""
    dollars: float | None
    """Price of all of them; None without a rate."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The cost of the evaluation of one player."""

    player: str
    calls_at_once: int
    """Replies that are computed or requested together."""
    tasks: tuple[TaskEstimate, ...]
    assumptions: tuple[str, ...]
    """What the numbers assume, in sentences."""


def estimate(
    name: str,
    suite: Suite,
    output_dir: Path,
    settings: PlayerSettings,
    batch_size: int,
    price: Price | None = None,
    seconds: float = PROBE_SECONDS,
) -> Estimate:
    """The cost of `evaluate` for one player. A local player plays a few turns of each task; a server gets no request.

    Args:
        name: of the player.
        suite: the tasks.
        output_dir: where earlier results may lie, whose episodes are not played again.
        settings: how models sample.
        batch_size: episodes that are played at a time.
        price: rate of a server.
        seconds: time for the probes of a local player.

    Raises:
        UserError: as for `evaluate`.
    """
    tasks, limit = known_tasks(name, suite), settings.max_new_tokens
    served = isinstance(find_player(name), ServedPlayer)
    player = identify(name, settings, prompts_of([make_game(task) for task in tasks], find_format(suite.prompt_format)))
    prompt_format, encoder = asked_in(player, suite), getattr(player.policy, "encoder", None)
    end, most, rows = time.monotonic() + seconds, 0, []
    for number, task in enumerate(tasks, start=1):
        missing = missing_episodes(player, suite, task, output_dir, batch_size)
        most, taken, reply = max(most, len(missing)), None, float(limit)
        if not served:
            keys = [suite.episode_keys(task)[index] for index in missing]
            until = end - seconds * (1 - number / len(tasks))
            taken, measured = probe(player.policy, make_game(task), keys, batch_size, prompt_format, until)
            reply = measured or reply
        seeds = suite.seeds(task)[:COUNTED]
        prompts = scripted_prompts(make_game(task), prompt_format, SCRIPT, seeds)
        turns, read, written, dollars = len(prompts) / len(seeds), None, None, None
        if served or encoder:
            read, written = sum(_lengths(prompts, encoder, reply)) / len(seeds), turns * reply
            dollars = len(missing) * (read * price.tokens_in + written * price.tokens_out) / 1e6 if price else None
        rows.append(
            TaskEstimate(
                task=task,
                episodes=len(missing),
                calls=round(len(missing) * turns),
                prompt_tokens=read,
                reply_tokens=written,
                seconds=taken,
                dollars=dollars,
            )
        )
    at_once = min(most, batch_size, settings.concurrency if served else most)
    notes = [f"Turns and prompts: as {SCRIPT} plays the first {COUNTED} episodes of each task."]
    if served:
        notes.append(f"Prompt tokens: one per {CHARACTERS_PER_TOKEN:g} characters.")
        notes.append(f"Replies: of full length, {limit} tokens (--max-new-tokens); shorter ones cost less.")
        notes.append(f"Time: depends on the server, which gets {at_once} calls at a time (--concurrency).")
    else:
        notes.append(
            f"Time: extrapolated from the first turns of each task (at least {FEWEST_TURNS}) and the reply lengths in them."
        )
    return Estimate(player=player.name, calls_at_once=at_once, tasks=tuple(rows), assumptions=tuple(notes))


def _lengths(prompts: Sequence[Prompt], encoder: Any, reply: float) -> list[float]:
    """The tokens of prompts whose past replies have `reply` tokens each, by an encoder or by their characters."""
    if encoder:
        from msgrpo_hub.models.context import prompt_lengths  # loads torch only when needed

        return [length.fixed + length.replies * reply for length in prompt_lengths(encoder, prompts)]
    found = []
    for prompt in prompts:
        past = sum(role == "assistant" for role, _ in prompt.contents)
        characters = sum(len(text) for role, text in prompt.contents if role != "assistant")
        found.append(characters / CHARACTERS_PER_TOKEN + past * reply)
    return found


class _TimeUp(Exception):  # noqa: N818
    """Ends the play of a probe."""


def probe(
    policy: Policy, game: Game, keys: Sequence[tuple[int, int]], batch_size: int, prompt_format: PromptFormat, deadline: float
) -> tuple[float, float | None]:
    """Plays the first batch until the deadline, but at least two turns.

    The remaining turns count like the last one that was played: the same seconds per episode, the same share of ends.

    Returns:
        Seconds for all episodes, and the mean tokens of a reply; None for players without tokens.
    """
    recording, batch = RecordingPolicy(policy), keys[:batch_size]
    times, live = [time.monotonic()], [len(batch)]

    def on_turn(left: int) -> None:
        times.append(time.monotonic())
        live.append(left)
        if len(times) > FEWEST_TURNS and times[-1] > deadline:
            raise _TimeUp

    with suppress(_TimeUp):
        play_episodes(game, recording, batch, on_turn, prompt_format=prompt_format)
    turns = len(times) - 1
    if not turns:
        return 0.0, None
    per_episode, survival = (times[-1] - times[-2]) / live[-2], (live[-1] / live[0]) ** (1 / turns)
    rest = sum(live[-1] * survival**turn for turn in range(game.horizon - turns))
    tokens = [reply.reply_tokens for reply in recording.completions if reply.reply_tokens is not None]
    seconds = (times[-1] - times[0] + rest * per_episode) * len(keys) / len(batch)
    return seconds, sum(tokens) / len(tokens) if tokens else None


def estimate_table(estimate: Estimate) -> str:
    """The estimate of a player: a line per task, the sums, and what they assume. Columns without a value are left out."""
    lines: list[Row] = [("task", "episodes", "calls", "prompt tokens", "reply tokens", "time", "price")]
    sums: list[float | None] = [0.0] * 6
    for row in estimate.tasks:
        tokens = [None if each is None else each * row.episodes for each in (row.prompt_tokens, row.reply_tokens)]
        values = [float(row.episodes), float(row.calls), *tokens, row.seconds, row.dollars]
        sums = [None if total is None or value is None else total + value for total, value in zip(sums, values, strict=True)]
        lines.append((row.task, *_cells(values)))
    lines.append(("all", *_cells(sums)))
    columns = [column for column in zip(*lines, strict=True) if set(column[1:]) != {NONE}]
    title = f"{short(estimate.player, 60)}   {estimate.calls_at_once} calls at a time"
    return "\n".join([title, aligned(list(zip(*columns, strict=True))), *estimate.assumptions])


def _cells(values: Sequence[float | None]) -> tuple[str, ...]:
    """Counts, seconds and dollars as text."""
    *counts, seconds, dollars = values
    price = NONE if dollars is None else f"${dollars:,.2f}"
    return *(NONE if count is None else f"{count:,.0f}" for count in counts), _time(seconds), price


def _time(seconds: float | None) -> str:
    """Seconds as readable text.

    >>> _time(0.4), _time(50), _time(200), _time(9000), _time(None)
    ('under 1 s', '50 s', '3 min', '2.5 h', '–')
    """
    if seconds is None:
        return NONE
    if seconds < 1:
        return "under 1 s" if seconds else "0 s"
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
