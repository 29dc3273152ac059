"""What `--json` prints, as types: with the records of other rooms, the one source of the JSON Schemas (`schemas.py`)."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from msgrpo_hub.episode import ReplyStatus
from msgrpo_hub.games import Split

Pair = tuple[float, float]


# ---- games and play


class Boards(TypedDict):
    """How many boards the first episodes of a split have."""

    split: Split
    episodes: int
    boards: int
    """The number of different ones."""


class GameRules(TypedDict):
    """A game."""

    id: str
    """Its id, with its version."""
    rows: int
    columns: int
    horizon: int
    """The most turns of an episode."""
    actions: list[str]
    """All actions, whether legal in a state or not."""
    reward_range: Pair
    """The smallest and the largest reward of a step."""
    instructions: str
    rules: list[str]
    task_hash: NotRequired[str]
    """Identifies rules, boards, rewards, horizon and seeds. Only for games that are named."""
    boards: NotRequired[list[Boards]]
    """Only for games that are named."""


class PlayedStep(TypedDict):
    """A turn."""

    observation: str
    reply: str
    """What the player answered, verbatim."""
    action: str | None
    """The action parsed from the reply; null if it has none."""
    status: ReplyStatus
    """Whether the reply was parsed; `truncated_reply`: it reached the token limit before an action."""
    reward: float


class PlayedEpisode(TypedDict):
    """An episode."""

    game: str
    seed: int
    """The seed of its initial state."""
    reward: float
    """The sum of the rewards."""
    success: bool
    """Whether the game was won."""
    steps: list[PlayedStep]


# ---- evaluation


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


class MachinePrice(TypedDict):
    """What a machine of the Hub costs."""

    usd: float
    """Dollars for a unit of time."""
    unit: str
    """That unit, such as `minute`."""
    most_usd: float | None
    """The most that the job can cost; null if the unit of the price is unknown."""


class JobData(TypedDict):
    """A job of `msgrpo jobs`; with --dry-run, one that was not sent."""

    id: NotRequired[str]
    url: NotRequired[str]
    stage: NotRequired[str]
    """How it ended, in the Hub's word."""
    command: list[str]
    """What it runs."""
    state: str
    """The private repository of its run."""
    flavor: str
    """The machine."""
    timeout: int
    """Seconds after which an attempt is stopped."""
    attempts: int
    """How often it is started at most."""
    price: MachinePrice


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


# ---- training


class PlayerScores(TypedDict):
    """The test figures of a player, sampled and greedy; a scripted player's are from the same episodes."""

    episodes: int
    success: float
    """Share of the episodes that were won."""
    success_interval: Pair | None
    """95 %; null for too few episodes, like all intervals here."""
    reward: float
    reward_interval: Pair | None
    success_greedy: float
    """At temperature 0, like the next three."""
    success_greedy_interval: Pair | None
    reward_greedy: float
    reward_greedy_interval: Pair | None
    unreadable_rate: float
    """Shares of the replies, as for `eval`."""
    truncated_rate: float
    illegal_rate: float


class GameTable(TypedDict):
    """The test figures of a game: beside these, each of `players` is a key with its figures."""

    game: NotRequired[str]
    """Id of the game."""
    boards: NotRequired[int]
    """Different boards among the test episodes."""
    players: NotRequired[list[str]]
    """In the order of the table; absent, as are their figures, for a run without test episodes."""
    left_out: NotRequired[list[str]]
    """Players that cannot play the game, each with the reason."""


class TrainSummary(GameTable):
    """A finished training run, as in its summary.json. `base` and `adapter` are among its players."""

    model: str
    """The base model."""
    seed: int
    """The training seed."""
    episodes: int
    """Test episodes."""
    replayed_test_episode: NotRequired[int]
    """The one that replay.svg shows."""
    other_games: NotRequired[list[GameTable]]
    """The tables of the other games of a run of several."""
    seconds_acting: float
    seconds_training: float
    seconds_evaluating: float
    """For the final tables."""
    seconds: float
    """In all."""
    adapter_update: int
    """The update that the adapter is of."""
    best_update: int
    """The update that was best on the validation episodes; 0 if there was none."""
    learned_nothing: NotRequired[str]
    """Why, if it learned nothing."""
    base_commit: str
    """Of a base on the Hub its commit, of a folder the hash of its content."""
    init_adapter_commit: str
    """The same of the adapter that the run began with; empty without one."""
    device: str
    hardware: str
    """Name of the GPU or the processor."""
    engine: str
    """`fast` or `plain`."""
    versions: dict[str, str]
    """Of Python and the packages that decide the weights."""
    rounding: dict[str, Any]
    """What decides how numbers are rounded: threads, batches, processes, device, versions."""
    resumed_otherwise: NotRequired[list[dict[str, Any]]]
    """For each resume with `--accept-rounding`: setting → before and after."""
    config: dict[str, Any]
    """The whole configuration, as in config.toml."""
    processes: int
    threads: int


class SeedFigure(TypedDict):
    """A figure over training seeds."""

    mean: float
    interval: Pair | None
    """95 %, over training seeds; null for fewer than 3."""
    std: float | None
    by_seed: dict[str, float]
    """Training seed → the figure of its run."""


class SeedRunData(TypedDict):
    """The run of one training seed."""

    folder: str
    """Its name."""
    updates: int
    """How many are finished."""
    finished: bool
    adapter_update: NotRequired[int]
    """The update that the adapter is of."""
    best_update: NotRequired[int]
    """The update that was best on the validation episodes; 0 if there was none."""
    learned_nothing: NotRequired[str]
    """Why, if it learned nothing."""
    seconds: NotRequired[float]


class VariantData(TypedDict):
    """Runs that differ in their training seed alone."""

    variant: str
    """Its name."""
    settings: dict[str, Any]
    """The configuration without the seed."""
    runs: dict[str, SeedRunData]
    """By training seed."""
    players: dict[str, dict[str, dict[str, SeedFigure]]]
    """Player → game → figure (`reward`, `success`, and both `_greedy`)."""


class DrawnCurves(TypedDict):
    """The figure of `msgrpo curves`, and what it shows."""

    figure: str
    """Its path."""
    variants: list[VariantData]


class Staged(TypedDict):
    """What a push would send."""

    folder: str
    files: list[str]
    """Their names in the repository."""
