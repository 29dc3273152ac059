"""A probe: real batches of a task for a few seconds, to tell how long all its episodes will take. Nothing is stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import Policy
from msgrpo_hub.agent.prompt import Prompt, build_prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Completion
from msgrpo_hub.games import Game, stream
from msgrpo_hub.players.sample_play import RecordingPolicy
from msgrpo_hub.rollout import play_episodes


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a probe measured."""

    seconds_per_call: float
    """Seconds per reply."""
    rows: int
    """Replies per batch when this was measured."""
    is_full: bool
    """Whether these are as many as the task will have in a batch."""
    reply_tokens: float | None = None
    """Mean length of the replies; None if they have no tokens, or were cut short."""
    cut_at: int | None = None
    """Tokens after which the replies were cut, where whole replies take too long; their time is extrapolated."""


class _TimeUp(Exception):  # noqa: N818
    """Ends the play of a probe."""


def probe_tasks(
    games: Mapping[str, Game],
    seeds: Mapping[str, Sequence[int]],
    policy: Policy,
    prompt_format: PromptFormat,
    batch_size: int,
    seconds: float,
) -> dict[str, Probe]:
    """Plays the episodes of some tasks for about so many seconds in all.

    A language model first answers one prompt with replies cut at 1, 2, 4 … tokens. If whole replies take too long, their time
    is extrapolated, for all tasks. Otherwise each task is answered in batches of 1, 2, 4 … prompts, and then its episodes are
    played. A step begins only if it should end in time; so only the first can take longer than `seconds`.

    Args:
        games: task → its rules.
        seeds: task → the seeds of the episodes to be played, at least one.
        policy: plays; its limit of a reply, if it has one, is changed for a while.
        prompt_format: how the policy is asked.
        batch_size: episodes that will be played at a time.
        seconds: time for all tasks.
    """
    of_task = {
        task: _Batches(game=game, seeds=seeds[task], size=batch_size, policy=policy, prompt_format=prompt_format)
        for task, game in games.items()
    }
    end, limit, found = time.monotonic() + seconds, getattr(policy, "max_new_tokens", None), {}
    for number, (task, batches) in enumerate(of_task.items()):
        if number == 0 and limit is not None and (cut := _cut_replies(policy, limit, batches, end)):
            return dict.fromkeys(games, cut)
        now = time.monotonic()
        found[task] = _probe(batches, now + max(end - now, seconds / 2) / (len(games) - number))
    return found


@dataclass(frozen=True, kw_only=True)
class _Batches:
    """The episodes of a task, and who plays them."""

    game: Game
    seeds: Sequence[int]
    size: int
    """Episodes per batch."""
    policy: Policy
    prompt_format: PromptFormat
    completions: list[Completion] = field(default_factory=list)
    """The replies so far."""

    @cached_property
    def prompts(self) -> list[Prompt]:
        """The first prompts of the first batch."""
        states = [self.game.initial_state(stream(seed, "initial_state")) for seed in self.seeds[: self.size]]
        return [build_prompt(self.game, state, self.prompt_format) for state in states]

    def answer(self, rows: int) -> None:
        """Gets a reply to each of the first prompts."""
        rngs = [np.random.default_rng(row) for row in range(rows)]
        self.completions.extend(self.policy.complete(self.prompts[:rows], rngs))

    def play(self, on_turn: Callable[[int], None]) -> None:
        """Plays the episodes, batch after batch."""
        recording = RecordingPolicy(self.policy, completions=self.completions)
        for start in range(0, len(self.seeds), self.size):
            keys = [(seed, 0) for seed in self.seeds[start : start + self.size]]
            play_episodes(self.game, recording, keys, on_turn, prompt_format=self.prompt_format)


def _probe(batches: _Batches, deadline: float) -> Probe:
    """Answers growing batches, and plays if time is left."""
    full = len(batches.prompts)
    timed = _climb(batches.answer, full, deadline)
    (rows, taken), per_call = timed[-1], _extrapolated(timed, full) / full
    if rows == full and time.monotonic() + taken <= deadline:
        per_call = _played(batches, deadline)
    tokens = [reply.reply_tokens for reply in batches.completions if reply.reply_tokens is not None]
    mean = sum(tokens) / len(tokens) if tokens else None
    return Probe(seconds_per_call=per_call, rows=rows, is_full=rows == full, reply_tokens=mean)


def _played(batches: _Batches, deadline: float) -> float:
    """Plays until the deadline; the seconds per reply."""

    def on_turn(_: int) -> None:
        if time.monotonic() > deadline:
            raise _TimeUp

    before, began = len(batches.completions), time.monotonic()
    with suppress(_TimeUp):
        batches.play(on_turn)
    return (time.monotonic() - began) / (len(batches.completions) - before)


def _cut_replies(policy: Any, limit: int, batches: _Batches, deadline: float) -> Probe | None:
    """The time of a whole reply, extrapolated from replies that were cut; None if whole replies can be timed."""

    def cut_at(tokens: int) -> None:
        policy.max_new_tokens = tokens
        batches.answer(1)

    try:
        cut_at(1)  # the first call prepares the model
        timed = _climb(cut_at, limit, deadline)
    finally:
        policy.max_new_tokens = limit
        batches.completions.clear()
    cut = timed[-1][0]
    return Probe(seconds_per_call=_extrapolated(timed, limit), rows=1, is_full=False, cut_at=cut) if cut < limit else None


def _extrapolated(timed: Sequence[tuple[int, float]], size: int) -> float:
    """The seconds of a larger step, on the line through the first and the last one that were timed.

    >>> _extrapolated([(1, 2.0), (2, 2.1), (4, 2.3)], 10), _extrapolated([(1, 2.0)], 10)
    (2.9, 20.0)
    """
    (least, first), (largest, last) = timed[0], timed[-1]
    slope = max(last - first, 0.0) / (largest - least) if largest > least else first
    return round(last + slope * (size - largest), 9)


def _climb(step: Callable[[int], None], top: int, deadline: float) -> list[tuple[int, float]]:
    """Times steps of size 1, 2, 4 … `top`; (size, seconds) of each.

    A step begins only if it should end before the deadline. If `top` should take less than a quarter of the time left, it is
    next. Seconds are taken to grow in proportion to the size, which is the worst case.
    """
    timed: list[tuple[int, float]] = []
    size = 1
    while True:
        began = time.monotonic()
        step(size)
        taken = time.monotonic() - began
        timed.append((size, taken))
        left = deadline - time.monotonic()
        if size == top or 2 * taken > left:
            return timed
        size = top if taken * top / size < left / 4 else min(2 * size, top)
