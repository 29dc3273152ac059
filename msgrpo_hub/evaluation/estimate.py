"""The cost of an evaluation before it runs: episodes, replies, tokens, time and price. Nothing is stored."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgrpo_hub.agent.policy import Policy, Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat, find_format
from msgrpo_hub.evaluation.runner import asked_in, known_tasks, missing_episodes
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.tables import NONE, Row, aligned, short
from msgrpo_hub.games import Game, make_game
from msgrpo_hub.players.registry import KINDS, ModelPlayer, find_player, identify
from msgrpo_hub.players.sample_play import RecordingPolicy, prompts_of, scripted_prompts
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rollout import play_episodes

COUNTED = 8
"""Episodes of scripted play whose prompts are counted, per task."""
SCRIPT = "random-safe"
"""The scripted player whose turns and prompts are counted."""
FEWEST_TURNS = 2
"""The fewest turns of a probe, however slow the model is: the first turn also computes what all turns share."""
CHARACTERS_PER_TOKEN = 3.0
"""Characters of the games' prompts per token of a served model."""


def estimate(
    name: str,
    suite: Suite,
    output_dir: Path,
    settings: PlayerSettings,
    batch_size: int,
    price: tuple[float, float] | None = None,
    seconds: float = 10.0,
) -> dict[str, Any]:
    """The cost of `evaluate` for one player. A local player plays a few turns of each task; a server gets no request.

    Episodes in `output_dir` are not played again. `price` is in dollars per million tokens of prompts and of replies; `seconds`
    are for the probes of a local player, all tasks together. Other arguments and errors as for `evaluate`; also `UserError` if
    the weights of a model do not fit into memory.
    Returns `player`, `calls_at_once` (replies that are computed or requested together), `assumptions` (sentences), and `tasks`:
    per task the number of `episodes` still to be played, the `calls`, `seconds` and `dollars` of all of them, and the
    `prompt_tokens` and `reply_tokens` per episode. Unknown values are None.
    """
    found, tasks, limit = find_player(name), known_tasks(name, suite), settings.max_new_tokens
    served = KINDS[found.kind].served
    if isinstance(found, ModelPlayer):
        found.check_memory(settings)
    player = identify(name, settings, prompts_of([make_game(task) for task in tasks], find_format(suite.prompt_format)))
    prompt_format = asked_in(player, suite)
    encoder = getattr(player.policy, "encoder", None)
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
            read, written = _tokens(prompts, encoder, reply) / len(seeds), turns * reply
            dollars = len(missing) * (read * price[0] + written * price[1]) / 1e6 if price else None
        counts = {"episodes": len(missing), "calls": round(len(missing) * turns), "prompt_tokens": read, "reply_tokens": written}
        rows.append({"task": task, **counts, "seconds": taken, "dollars": dollars})
    at_once = min(most, batch_size, settings.concurrency if served else most)
    notes = [f"Turns and prompts: as {SCRIPT} plays the first {COUNTED} episodes of each task."]
    if served:
        notes.append(f"Prompt tokens: one per {CHARACTERS_PER_TOKEN:g} characters.")
        notes.append(f"Replies: of full length, {limit} tokens (--max-new-tokens); shorter ones cost less.")
    else:
        notes.append(f"Time: extrapolated from the first turns of each task (at least {FEWEST_TURNS}) and their reply lengths.")
    return {"player": player.name, "calls_at_once": at_once, "tasks": rows, "assumptions": notes}


def _tokens(prompts: Sequence[Prompt], encoder: Any, reply: float) -> float:
    """The tokens of prompts whose past replies have `reply` tokens each, by an encoder or by their characters."""
    if encoder:
        from msgrpo_hub.models.context import prompt_lengths  # loads torch only when needed

        return sum(fixed + replies * reply for fixed, replies in prompt_lengths(encoder, prompts))
    messages = [message for prompt in prompts for message in prompt.contents]
    characters = sum(len(text) for role, text in messages if role != "assistant")
    return characters / CHARACTERS_PER_TOKEN + reply * sum(role == "assistant" for role, _ in messages)


class _TimeUp(Exception):  # noqa: N818
    """Ends the play of a probe."""


def probe(
    policy: Policy, game: Game, keys: Sequence[tuple[int, int]], batch_size: int, prompt_format: PromptFormat, deadline: float
) -> tuple[float, float | None]:
    """Plays the first batch until the deadline, but `FEWEST_TURNS` turns. Returns all seconds, and mean tokens of a reply."""
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
    tokens = [written for reply in recording.completions if (written := reply.tokens[1]) is not None]
    seconds = (times[-1] - times[0] + rest * per_episode) * len(keys) / len(batch)
    return seconds, sum(tokens) / len(tokens) if tokens else None


def estimate_table(estimate: Mapping[str, Any]) -> str:
    """A line per task, the sums and the assumptions. Columns without a value are left out."""
    lines: list[Row] = [("task", "episodes", "calls", "prompt tokens", "reply tokens", "time", "price")]
    table: list[tuple[str, list[float | None]]] = []
    for row in estimate["tasks"]:
        tokens = [None if each is None else each * row["episodes"] for each in (row["prompt_tokens"], row["reply_tokens"])]
        table.append((row["task"], [row["episodes"], row["calls"], *tokens, row["seconds"], row["dollars"]]))
    columns = zip(*(values for _, values in table), strict=True)
    sums = [None if None in column else sum(filter(None, column)) for column in columns]
    for name, (*counts, seconds, dollars) in [*table, ("all", sums)]:
        price = NONE if dollars is None else f"${dollars:,.2f}"
        lines.append((name, *(NONE if count is None else f"{count:,.0f}" for count in counts), _time(seconds), price))
    known = [column for column in zip(*lines, strict=True) if set(column[1:]) != {NONE}]
    title = f"{short(estimate['player'], 60)}   {estimate['calls_at_once']} calls at a time"
    return "\n".join([title, aligned(list(zip(*known, strict=True))), *estimate["assumptions"]])


def _time(seconds: float | None) -> str:
    """Seconds as readable text.

    >>> _time(0.4), _time(200), _time(9000), _time(None)
    ('under 1 s', '3 min', '2.5 h', '–')
    """
    for text, size, most in (("{:.0f} s", 1, 90), ("{:.0f} min", 60, 5400), ("{:.1f} h", 3600, math.inf)):
        if seconds is not None and seconds < most:
            return "under 1 s" if 0 < seconds < 1 else text.format(seconds / size)
    return NONE
