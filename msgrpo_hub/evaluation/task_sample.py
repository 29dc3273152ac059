"""Scripted play of a task, from which the tokens of an evaluation are counted before anything is played."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.games import make_game
from msgrpo_hub.players.sample_play import scripted_prompts

EPISODES = 8
"""Episodes of scripted play whose prompts are counted, per task."""
PLAYER = "random-safe"
"""Who plays them."""
PLAY = f"Turns and prompts: as {PLAYER} plays the first {EPISODES} episodes of each task."


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
class Sample:
    """Scripted play of a task."""

    turns: float
    """Turns per episode."""
    fixed: float | None = None
    """Prompt tokens per episode, without past replies."""
    past_replies: float = 0.0
    """Past replies in the prompts of an episode."""

    def estimate(
        self, task: str, episodes: int, *, reply: float | None, per_call: float | None, price: Price | None = None
    ) -> TaskEstimate:
        """The task with replies of so many tokens and so many seconds each."""
        calls = round(episodes * self.turns)
        read = None if self.fixed is None or reply is None else self.fixed + self.past_replies * reply
        written = None if read is None or reply is None else self.turns * reply
        dollars = None
        if price and read is not None and written is not None:
            dollars = episodes * (read * price.tokens_in + written * price.tokens_out) / 1e6
        return TaskEstimate(
            task=task,
            episodes=episodes,
            calls=calls,
            prompt_tokens=read,
            reply_tokens=written,
            seconds=None if per_call is None else calls * per_call,
            dollars=dollars,
        )


Count = Callable[[Sequence[Prompt]], Sequence[Any]]
"""Prompts → their `PromptLength`s."""


def sample(suite: Suite, task: str, prompt_format: PromptFormat, count: Count | None) -> Sample:
    """Plays the first episodes of a task, and counts the tokens of their prompts if `count` is given."""
    seeds = suite.seeds(task)[:EPISODES]
    prompts = scripted_prompts(make_game(task), prompt_format, PLAYER, seeds)
    lengths = count(prompts) if count else ()
    return Sample(
        turns=len(prompts) / len(seeds),
        fixed=sum(length.fixed for length in lengths) / len(seeds) if count else None,
        past_replies=sum(length.replies for length in lengths) / len(seeds),
    )
