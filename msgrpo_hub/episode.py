"""Floor 1, records of play: completion → step → episode → group. All frozen, all plain data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Finish = Literal["stop", "length"]
"""How a reply ended: by its end token, or by the token limit."""

ReplyStatus = Literal["ok", "unreadable", "truncated_reply"]
"""Whether an action could be read; a reply without one that was cut at the token limit is told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One reply of a policy. Scripted players have no tokens.

    `log_probs[k]` is log p_old(token k), under the very distribution the token was drawn from (temperature included).
    `entropies[k]` is the entropy of that distribution, in nats. `error` says why there is no reply at all (a server that
    failed): such a turn is nobody's play, and the episode stops unfinished. `usage` is (prompt tokens, reply tokens) as a
    server reports them, for replies whose token ids are not known.
    """

    text: str
    finish: Finish = "stop"
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    entropies: tuple[float, ...] = ()
    error: str = ""
    usage: tuple[int, int] | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens read; None for a scripted player, and where a server does not say."""
        return self.usage[0] if self.usage else len(self.prompt_ids) or None

    @property
    def reply_tokens(self) -> int | None:
        """Tokens written; None as above."""
        return self.usage[1] if self.usage else len(self.token_ids) if self.prompt_ids else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn: what was seen, what was answered, the action read from it (None is ⊥), and what came of it."""

    observation: str
    completion: Completion
    action: str | None
    status: ReplyStatus
    legal: bool
    reward: float


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One played game. `seed` gives the initial state; `member` sets its dynamics and sampling apart in the group."""

    game_id: str
    seed: int
    member: int
    steps: tuple[Step, ...]
    terminated: bool
    truncated: bool
    success: bool
    error: str = ""
    """Why the episode stopped before its end: a failure of ours or of a server. Such an episode is never scored."""

    @cached_property
    def reward(self) -> float:
        """Σ_t r_t, the undiscounted return, without any format penalty."""
        return sum(step.reward for step in self.steps)

    @property
    def unreadable(self) -> int:
        """The number of replies without a readable action (cut replies included)."""
        return sum(step.action is None for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """G episodes from one initial state."""

    game_id: str
    seed: int
    episodes: tuple[Episode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScore:
    """What the rules say of one turn, whatever was played."""

    legal_actions: tuple[str, ...]
    optimal_actions: tuple[str, ...]
    """Empty where the game is not solved."""
    regret: float | None
    """V*(s) − Q*(s, a), at least 0; None where the game is not solved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeScore:
    """What one episode was worth. The last six are None where the game is not solved."""

    reward: float
    success: bool
    steps: int
    unreadable: int
    """Replies that ended and had no action that could be read."""
    truncated_replies: int
    """Replies cut at the token limit before an action."""
    illegal: int
    """Actions that could be read and were not legal."""
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
    """The first step (from 0) whose action was not optimal; -1 where there is none."""
