"""What `--json` prints of evaluations and their results, as types."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from msgrpo_hub.games import Split


class Mean(TypedDict):
    """A mean with its 95 % interval."""

    mean: float
    low: float | None
    """Null for fewer than 30 boards, unless all values are 0 or 1."""
    high: float | None
    rule: str | None
    """How the interval was made."""


class FirstMistake(TypedDict):
    """When players of a solved game first go wrong."""

    episodes_without: float | None
    """Share of the episodes without a mistake."""
    mean_step: float | None
    """Mean step, from 0, of the first mistake in the others."""


class Parts(TypedDict):
    """The variance of one episode, in parts."""

    board: float
    """Between boards."""
    within: float
    """Between plays of one board."""
    chance: float | None
    """Of that, what the game draws; null where it cannot be told from sampling."""
    sampling: float | None
    """Of that, what the player draws; null as above."""


class Repeated(TypedDict):
    """The figures of several plays of each board."""

    boards: int
    """Boards whose plays are all finished, which the rest is about."""
    runs: NotRequired[dict[str, list[float]]]
    """`reward` and `success` → the mean of each play over the boards."""
    run_to_run: NotRequired[dict[str, float]]
    """The same → standard deviation of the mean from run to run."""
    pass_at: NotRequired[dict[str, Mean]]
    """k → how often one of k plays succeeds."""
    variance: NotRequired[dict[str, Parts]]
    """The same as of `runs` → the parts of the variance."""


class RunScores(TypedDict):
    """One player on one task: what was played, and the scores."""

    harness: int
    """Version of the protocol."""
    player: str
    identity: dict[str, Any]
    """Everything that decides the player's replies, such as commits and the sampling."""
    prompt_format: NotRequired[str]
    """How it was asked; absent in runs of the first harness, like the next."""
    prompt_format_hash: NotRequired[str]
    task: str
    """Id of the game."""
    task_hash: str
    suite: str
    split: Split
    episodes: int
    """How many are scored."""
    repeats: NotRequired[int]
    """Plays of each board, if more than one."""
    run: str
    """Hash of all the above."""
    complete: bool
    failed: int
    """Episodes without a score, such as those whose server failed."""
    near_draws: NotRequired[int]
    """Draws that another rounding may turn; only for models that play on this machine."""
    reward: Mean | None
    """Of the episodes; null without any, like the next two."""
    success: Mean | None
    luck_adjusted: Mean | None
    """Optimal value less regret; null if the game is not solved."""
    normalised: float | None
    """Reward on the scale of random play (0) and the best reference (1)."""
    regret_per_step: float | None
    """Expected return given away per step; null if the game is not solved, like the next three."""
    decisions: int | None
    """Steps in states whose actions differ in value."""
    optimal_decisions: float | None
    """Share of them that were optimal."""
    first_mistake: FirstMistake | None
    references: dict[str, float]
    """Player → its mean on the same episodes, such as `optimal`, `random` and `silent`."""
    unreadable_rate: float
    """Share of the replies that ended without an action that could be parsed (unparsed)."""
    truncated_rate: float
    """Share of the replies that reached the token limit before an action."""
    illegal_rate: float
    """Share of the replies with an action that was not legal."""
    steps: int
    """Replies in all."""
    prompt_tokens: int | None
    """Tokens read; null if they are not known."""
    reply_tokens: int | None
    """Tokens written; null as above."""
    above_optimum: bool
    """Whether the reward lies above the exact optimum, beyond what luck explains: an error somewhere."""
    repeated: NotRequired[Repeated]


class Failure(TypedDict):
    """An episode that stopped because a reply did not come."""

    index: int
    """Its number."""
    seed: int
    turn: int
    """The turn without a reply, from 1."""
    error: str
    """Why."""


class EvaluatedRun(RunScores):
    """A run of `msgrpo eval`."""

    folder: str
    """Where its files are."""
    failures: list[Failure]
    """The episodes that are missing."""


class CheckedRun(TypedDict):
    """What a replay of stored episodes found."""

    player: str
    task: str
    folder: str
    episodes: int
    problems: list[str]
    """Records that do not agree with the rules; none if all do."""
    unchecked: list[str]
    """What could not be checked."""


class WrittenReport(TypedDict):
    """The page of `msgrpo report`."""

    report: str
    """Its path."""


class RankedRun(RunScores):
    """A row of a leaderboard."""

    name: str
    """The player, as the leaderboard names it."""
    rank: list[int] | None
    """The first and the last place that the paired tests leave open; null for a player that does not play."""
    folder: str
    unchecked: list[str]
    """What the replay could not check."""


class Board(TypedDict):
    """A leaderboard."""

    source: str
    commit: str
    """Of the dataset; empty for a folder."""
    results: list[RankedRun]
    refused: dict[str, str]
    """Run → why it is not listed."""
