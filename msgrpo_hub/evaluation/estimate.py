"""What an evaluation would cost: episodes, tokens, memory of the weights, time and price. Nothing is stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgrpo_hub.agent.policy import Policy
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat, find_format
from msgrpo_hub.downloads.names import split_adapter
from msgrpo_hub.evaluation.runner import asked_in, known_tasks, missing_episodes
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.tables import aligned, short
from msgrpo_hub.games import Game, make_game
from msgrpo_hub.players.identity import Player, identify
from msgrpo_hub.players.registry import SCRIPTED, entry_point
from msgrpo_hub.players.sample_play import RecordingPolicy, prompts_of, scripted_prompts
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rollout import play_episodes

COUNTED = 8
"""Episodes of scripted play whose prompts are counted, per task."""
SCRIPT = "random-safe"
"""Who plays them."""
PROBE_SECONDS = 10.0
"""Seconds that the probes of all tasks take together, unless two turns of each take longer."""
FEWEST_TURNS = 2
"""Of a probe: the first one also computes what all turns share."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a server charges, in dollars per million tokens."""

    tokens_in: float = 0.0
    """For prompts."""
    tokens_out: float = 0.0
    """For replies."""


@dataclass(frozen=True, kw_only=True)
class TaskEstimate:
    """What one task would cost."""

    task: str
    episodes: int
    """Episodes still to be played."""
    calls: int
    """Replies that they need."""
    prompt_tokens: float | None
    """Tokens read per episode; None for a player without tokens."""
    reply_tokens: float | None
    """Tokens written per episode; None as above."""
    seconds: float | None
    """Time for all of them; None if it cannot be told."""
    dollars: float | None
    """Price of all of them; None without a rate."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What the evaluation of one player would cost."""

    player: str
    weight_bytes: int | None
    """Memory of the weights; None for a player without weights here."""
    dtype: str | None
    """Type of the weights in memory; `mixed` if each tensor keeps its own."""
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
    """What `evaluate` would cost for one player.

    Args:
        name: of the player.
        suite: the tasks.
        output_dir: where earlier results may lie, whose episodes are not played again.
        settings: how models act.
        batch_size: episodes that are played at a time.
        price: rate of a server.
        seconds: time for the probes of a player that plays on this machine.

    Raises:
        UserError: as for `evaluate`.
    """
    tasks, limit = known_tasks(name, suite), settings.max_new_tokens
    default, served = find_format(suite.prompt_format), name.partition(":")[0] in ("endpoint", "provider")
    player: Player | None = None
    count: _Count | None = None
    weights, dtype, notes = None, None, [f"Turns and prompts: as {SCRIPT} plays the first {COUNTED} episodes of each task."]
    if served:
        from msgrpo_hub.models.context import prompt_lengths  # loads torch only when needed
        from msgrpo_hub.models.token_counts import CHARACTERS_PER_TOKEN, lengths_by_characters, served_tokenizer

        player = identify(name, settings)
        server = cast(Any, player.policy).server
        encoder = served_tokenizer(server, settings.chat_template_kwargs)
        count = partial(prompt_lengths, encoder) if encoder else lengths_by_characters
        counted = f"counted with the tokenizer of {server.model}" if encoder else f"one per {CHARACTERS_PER_TOKEN:g} characters"
        notes.append(f"Prompt tokens: {counted}.")
    elif name in SCRIPTED or name.startswith("dqn:") or entry_point(name):
        player = identify(name, settings)
    else:
        from msgrpo_hub.models.context import prompt_lengths
        from msgrpo_hub.models.devices import free_memory
        from msgrpo_hub.models.model_files import open_model

        base, adapter = split_adapter(name)
        files = open_model(
            base,
            adapter or None,
            chat_template=settings.chat_template or None,
            prompt_format=settings.chosen_format,
            chat_template_kwargs=settings.chat_template_kwargs,
        )
        expected = prompts_of([make_game(task) for task in tasks], default)
        files.check_context(expected(files.prompt_format), limit)
        default, count = files.prompt_format or default, partial(prompt_lengths, files.encoder)
        weights, dtype = files.weight_bytes(settings.dtype), str(files.dtype(settings.dtype) or "mixed").removeprefix("torch.")
        notes.append(
            f"Memory: of the weights{', before they are quantised to 4 bits' * settings.load_in_4bit}; a batch takes more."
        )
        if weights <= (free := free_memory(settings.device)) or settings.load_in_4bit or settings.device_map != "none":
            player = identify(name, settings, expected)
        else:
            notes.append(f"No time: the weights do not fit into {free / 1e9:.1f} GB of free memory, so no probe was played.")
    prompt_format, end, most, rows = asked_in(player, suite) if player else default, time.monotonic() + seconds, 0, []
    for number, task in enumerate(tasks, start=1):
        missing = (
            missing_episodes(player, suite, task, output_dir, batch_size) if player else range(suite.episodes * suite.repeats)
        )
        taken, reply, most = None, float(limit), max(most, len(missing))
        if player and not served:
            keys = [suite.episode_keys(task)[index] for index in missing]
            until = end - seconds * (1 - number / len(tasks))
            taken, measured = probe(player.policy, make_game(task), keys, batch_size, prompt_format, until)
            reply = reply if measured is None else measured
        rows.append(_row(suite, task, len(missing), prompt_format, count, reply, taken, price))
    at_once = min(most, batch_size, settings.concurrency if served else most)
    if any(row.seconds for row in rows):
        notes.append(f"Time: from the first turns of each task, at least {FEWEST_TURNS}, with replies as long as they are there.")
    elif count:
        notes.append(f"Replies: of full length, {limit} tokens (--max-new-tokens); shorter ones cost less.")
    if served:
        notes.append(f"Time: up to the server; it gets {at_once} calls at a time (--concurrency).")
    return Estimate(
        player=player.name if player else name,
        weight_bytes=weights,
        dtype=dtype,
        calls_at_once=at_once,
        tasks=tuple(rows),
        assumptions=tuple(notes),
    )


_Count = Callable[[Sequence[Prompt]], Sequence[Any]]
"""Prompts → their `PromptLength`s."""


def _row(
    suite: Suite,
    task: str,
    episodes: int,
    prompt_format: PromptFormat,
    count: _Count | None,
    reply: float,
    seconds: float | None,
    price: Price | None,
) -> TaskEstimate:
    """The tokens and the price of a task, from scripted play of its first episodes with replies of so many tokens."""
    seeds = suite.seeds(task)[:COUNTED]
    prompts = scripted_prompts(make_game(task), prompt_format, SCRIPT, seeds)
    turns, read, written, dollars = len(prompts) / len(seeds), None, None, None
    if count:
        read, written = sum(length.tokens(reply) for length in count(prompts)) / len(seeds), turns * reply
        dollars = episodes * (read * price.tokens_in + written * price.tokens_out) / 1e6 if price else None
    return TaskEstimate(
        task=task,
        episodes=episodes,
        calls=round(episodes * turns),
        prompt_tokens=read,
        reply_tokens=written,
        seconds=seconds,
        dollars=dollars,
    )


class _TimeUp(Exception):  # noqa: N818
    """Ends the play of a probe."""


def probe(
    policy: Policy, game: Game, keys: Sequence[tuple[int, int]], batch_size: int, prompt_format: PromptFormat, deadline: float
) -> tuple[float, float | None]:
    """Plays the first batch until the deadline, but at least two turns.

    The remaining turns count as the last one that was played: as many seconds per episode, and as many episodes end in each.

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
    """The estimate of a player: a line per task, the sums, and what they assume."""
    tasks, title = estimate.tasks, short(estimate.player, 60)
    if estimate.weight_bytes is not None:
        title += f"   {estimate.weight_bytes / 1e6:,.0f} MB of weights in {estimate.dtype}"
    read, written = ([row.episodes * (getattr(row, name) or 0) for row in tasks] for name in ("prompt_tokens", "reply_tokens"))
    seconds, dollars = ([getattr(row, name) for row in tasks] for name in ("seconds", "dollars"))
    rows = [
        ("task", "episodes", "calls", "prompt tokens/episode", "reply tokens/episode", "time", "price"),
        *(
            (
                row.task,
                f"{row.episodes:,}",
                f"{row.calls:,}",
                *("–" if tokens is None else f"{tokens:,.0f}" for tokens in (row.prompt_tokens, row.reply_tokens)),
                _time(row.seconds),
                "–" if row.dollars is None else f"${row.dollars:,.2f}",
            )
            for row in tasks
        ),
        (
            "all",
            f"{sum(row.episodes for row in tasks):,}",
            f"{sum(row.calls for row in tasks):,}",
            *(f"{sum(tokens):,.0f} in all" if tasks[0].prompt_tokens is not None else "–" for tokens in (read, written)),
            _time(None if None in seconds else sum(seconds)),
            "–" if None in dollars else f"${sum(dollars):,.2f}",
        ),
    ]
    shown = [column for column in zip(*rows, strict=True) if set(column[1:]) != {"–"}]
    return "\n".join(
        [f"{title}   {estimate.calls_at_once} calls at a time", aligned(list(zip(*shown, strict=True))), *estimate.assumptions]
    )


def _time(seconds: float | None) -> str:
    """Seconds as readable text.

    >>> _time(0.4), _time(50), _time(200), _time(9000), _time(None)
    ('under 1 s', '50 s', '3 min', '2.5 h', '–')
    """
    if seconds is None:
        return "–"
    if seconds < 1:
        return "under 1 s" if seconds else "0 s"
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
