"""What `--json` prints of trainings, as types."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

Pair = tuple[float, float]


class PlayerScores(TypedDict):
    """The test figures of a player, sampled and greedy; a scripted player's are from the same episodes."""

    episodes: int
    success: float
    """Share of the episodes that were won."""
    success_interval: Pair | None
    """95 %; null for too few episodes, like all intervals here."""
    reward: float
    reward_interval: Pair | None
    reward_rule: NotRequired[str | None]
    """How the interval was made, as for `eval`; absent in runs of earlier versions, like the one below."""
    success_greedy: float
    """At temperature 0, like the next three."""
    success_greedy_interval: Pair | None
    reward_greedy: float
    reward_greedy_interval: Pair | None
    reward_greedy_rule: NotRequired[str | None]
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
    """For the validation episodes and the final tables."""
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
    chat_template_hash: NotRequired[str]
    """SHA-256 of the file of `chat_template`; empty without one."""
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
