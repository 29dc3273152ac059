"""Records of play: completion → step → episode → group, and the scores of steps and episodes. Frozen, plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

Finish = Literal["stop", "length"]
"""How a reply ended: by its end token, or by the token limit."""

NEAR = 1e-4
"""A draw this close to a boundary of the cumulative distribution may give another token where float32 is rounded otherwise.

The rounding is about 2e-5 nats, which moves a boundary by less than 2e-5. Types of 16 bits round a hundred times more.
"""

ReplyStatus = Literal["ok", "unreadable", "truncated_reply"]
"""Whether a reply was parsed. `unreadable`: it ended without an action; `truncated_reply`: it was cut at the token limit."""


def known_sum(counts: Sequence[int | None]) -> int | None:
    """The sum of some counts; None if one of them is unknown, or if there are none.

    >>> known_sum([1, 2]), known_sum([1, None]), known_sum([])
    (3, None, None)
    """
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One reply of a policy. Scripted players have no tokens.

    `log_probs[k]` is log p_old(token k), under the distribution that the token was sampled from (temperature included).
    `entropies[k]` is the entropy of that distribution, in nats. `error` says why there is no reply, such as a server that
    failed: the episode then stops and is not scored. `usage` is (prompt tokens, reply tokens) as reported by a server, for
    replies without token ids. `near_draws` counts the draws that another rounding may turn (see `NEAR`); it is
    None where nothing is drawn here, and in stored replies.
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
    def prompt_tokens(self) -> int | None:
        """Tokens read; None for a scripted player, or if a server does not report them."""
        return self.usage[0] if self.usage else len(self.prompt_ids) or None

    @property
    def reply_tokens(self) -> int | None:
        """Tokens written; None as above."""
        return self.usage[1] if self.usage else len(self.token_ids) if self.prompt_ids else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn: the observation, the reply, the action parsed from it (None is ⊥), and its reward."""

    observation: str
    completion: Completion
    action: str | None
    status: ReplyStatus
    legal: bool
    reward: float


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One played game. `seed` gives the initial state; `member` gives the dynamics and the sampling within the group."""

    game_id: str
    seed: int
    member: int
    steps: tuple[Step, ...]
    terminated: bool
    truncated: bool
    success: bool
    error: str = ""
    """Why the episode stopped before its end, such as a server that failed. An episode with an error is never scored."""

    @cached_property
    def reward(self) -> float:
        """Σ_t r_t, the undiscounted return, without any format penalty."""
        return sum(step.reward for step in self.steps)

    @property
    def near_draws(self) -> int | None:
        """The number of draws that another rounding may turn; None if that is not known of a reply."""
        return known_sum([step.completion.near_draws for step in self.steps])

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
    """The first step (from 0) whose action was not optimal; -1 if all were."""
