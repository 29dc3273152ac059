"""Records of play: completion → step → episode → group, and the scores of steps and episodes. Frozen, plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

Finish = Literal["stop", "length"]
"""How a reply ended: with an end token, or at the token limit."""

NEAR = 1e-4
"""Distance from a boundary of the cumulative distribution within which float32 rounding may change the sampled token.

Rounding moves a boundary by less than 2e-5; types of 16 bits round a hundred times more.
"""

ReplyStatus = Literal["ok", "unreadable", "truncated_reply"]
"""Whether a reply was parsed. `unreadable`: it ended without an action; `truncated_reply`: it reached the token limit."""


def known_sum(counts: Sequence[int | None]) -> int | None:
    """The sum of some counts; None if one is None, or if there are none.

    >>> known_sum([1, 2]), known_sum([1, None]), known_sum([])
    (3, None, None)
    """
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One reply of a policy. Scripted players have no tokens.

    `log_probs[k]` is log p_old(token k) under the sampling distribution (temperature included), and `entropies[k]` the entropy
    of that distribution in nats. An `error`, such as a failed server, ends the episode without a score. `usage` is (prompt
    tokens, reply tokens) as a server reports them. `near_draws` counts the samples within `NEAR` of a boundary; None if unknown.
    """

    text: str
    finish: Finish = "stop"
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    entropies: tuple[float, ...] = ()
    error: str = ""
    usage: tuple[int, int] | None = None
    near_draws: int | None = field(default=None, compare=False)

    @property
    def tokens(self) -> tuple[int | None, int | None]:
        """Tokens of the prompt and of the reply; None for a scripted player, or if a server does not report them."""
        return self.usage or ((len(self.prompt_ids), len(self.token_ids)) if self.prompt_ids else (None, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn: the observation, the reply, the parsed action (None is ⊥), and the reward."""

    observation: str
    completion: Completion
    action: str | None
    status: ReplyStatus
    legal: bool
    reward: float


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One played game. `seed` gives the initial state; seed and `member` give the dynamics and the sampling."""

    game_id: str
    seed: int
    member: int
    steps: tuple[Step, ...]
    terminated: bool
    truncated: bool
    success: bool
    error: str = ""
    """Why the episode stopped early, such as a failed server. An episode with an error is never scored."""

    @cached_property
    def reward(self) -> float:
        """Σ_t r_t, the undiscounted return without format penalty."""
        return sum(step.reward for step in self.steps)

    @property
    def unreadable(self) -> int:
        """The number of replies without an action, truncated ones included."""
        return sum(step.action is None for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """G episodes from one initial state."""

    game_id: str
    seed: int
    episodes: tuple[Episode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScore:
    """Scores of one turn."""

    legal_actions: tuple[str, ...]
    optimal_actions: tuple[str, ...]
    """Empty for games without exact values."""
    regret: float | None
    """V*(s) − Q*(s, a), at least 0; None for games without exact values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeScore:
    """Scores of one episode. The last six are None for games without exact values."""

    reward: float
    success: bool
    steps: int
    unreadable: int
    """Replies that ended without an action."""
    truncated_replies: int
    """Replies that reached the token limit before an action."""
    illegal: int
    """Parsed actions that were not legal."""
    prompt_tokens: int | None
    reply_tokens: int | None
    value_optimal: float | None
    """V*(s0)."""
    value_random: float | None
    """The expected return of uniformly random actions from s0."""
    regret: float | None
    """Σ of the steps' regrets."""
    luck_adjusted: float | None
    """V*(s0) − regret."""
    optimal_steps: int | None
    """Steps whose action was optimal."""
    first_mistake: int | None
    """The first step (from 0) whose action was not optimal; -1 if all were."""
