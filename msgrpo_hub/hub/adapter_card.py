"""The card of an adapter: its content as typed data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgrpo_hub import __version__
from msgrpo_hub.evaluation.over_seeds import OverSeeds
from msgrpo_hub.evaluation.paired import Verdict
from msgrpo_hub.evaluation.statistics import BETTING
from msgrpo_hub.games import Game, splits_of
from msgrpo_hub.games.game import return_range
from msgrpo_hub.training.config import CHOICES, TrainConfig
from msgrpo_hub.training.presets import Origin, of_game, origin_of
from msgrpo_hub.training.starts import parse_games

LOCAL = "folder:"
"""Beginning of the published name of a local adapter; the hash of its content follows."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A mean with its 95 % interval; the ends are None for fewer than 30 episodes."""

    mean: float
    low: float | None
    high: float | None
    rule: str | None = None
    """How the interval was made; None in records of earlier versions."""

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:z.3f} (n < 30)"
        wide = ", wide since nearly all episodes scored the same" if self.rule == BETTING else ""
        return f"{self.mean:z.3f} [{self.low:z.3f}, {self.high:z.3f}]{wide}"


@dataclass(frozen=True, kw_only=True)
class PlayerRow:
    """A player's results on the test episodes: sampled, greedy, and the rates of faulty sampled replies."""

    success: Figure
    reward: Figure
    success_greedy: Figure
    reward_greedy: Figure
    unreadable_rate: float
    truncated_rate: float
    illegal_rate: float


@dataclass(frozen=True, kw_only=True)
class TaskScore:
    """A finished run of `msgrpo eval` with the adapter."""

    task: str
    task_hash: str
    suite: str
    split: str
    episodes: int
    """Starts: each is one value of the intervals."""
    mode: str
    temperature: float | None
    reward: Figure
    success: Figure
    references: Mapping[str, float]
    """Reward of the reference players on the same episodes."""
    folder: str
    """Folder of its episodes in the repository."""
    repeats: int = 1
    """Plays of each start."""

    @property
    def plays(self) -> str:
        """How many starts, and how often each was played if more than once: `50`, or `50 × 4`."""
        return f"{self.episodes}" + (f" × {self.repeats}" if self.repeats > 1 else "")


@dataclass(frozen=True, kw_only=True)
class Base:
    """The published base model."""

    repo_id: str
    commit: str
    license: str | None
    license_name: str | None = None
    license_link: str | None = None
    built_in: bool = False
    """Whether it is `pocket`."""

    @property
    def metadata(self) -> dict[str, str]:
        """The licence as front matter."""
        named = {"license": self.license, "license_name": self.license_name, "license_link": self.license_link}
        return {key: value for key, value in named.items() if value}


@dataclass(frozen=True, kw_only=True)
class GameTable:
    """The test episodes of a run in one of its games."""

    game: Game
    game_hash: str
    players: Mapping[str, PlayerRow]
    """Empty if the run had no test episodes."""
    boards: int | None
    """Boards of the test episodes; None if the run had none."""
    verdict: Verdict | None = None
    """Of the adapter against its base, on the same test episodes; None for a run that does not have them."""

    @property
    def is_apart(self) -> bool:
        return self.boards is not None and splits_of(self.game.id).are_apart

    @property
    def adapter(self) -> PlayerRow | None:
        return self.players.get("adapter")

    @property
    def one_score(self) -> bool:
        """Whether the reward of an episode is its success, so that one of them is enough."""
        means = [
            (row.reward.mean - row.success.mean, row.reward_greedy.mean - row.success_greedy.mean)
            for row in self.players.values()
        ]
        return return_range(self.game) == (0.0, 1.0) and not any(map(any, means))

    @property
    def marks(self) -> dict[str, float]:
        """What the reward of the adapter is measured against: its base, and the reference, which is the last player."""
        names = [name for name in ("base", *list(self.players)[-1:]) if name in self.players and name != "adapter"]
        return {name: self.players[name].reward.mean for name in names}


@dataclass(frozen=True, kw_only=True)
class Typical:
    """The test episode that the quick start plays."""

    index: int
    """That of the first game whose reward is nearest to the adapter's median; 0 without test episodes."""
    end: str = ""
    """How it ended in the run's own test, such as `success 1.0`; empty if unknown."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a run's own files say of it and its card repeats."""

    init_adapter_commit: str
    """Commit of the adapter that the run started from, or the hash of its folder; empty if it started from a new one."""
    replayed: int | None
    """Index of the test episode of the first game that replay.svg shows, if a replay exists."""
    typical: Typical
    seconds: Mapping[str, float]
    """Stage (acting, training, evaluating) → seconds."""
    processes: int
    threads: int
    memory_mb: float | None
    hardware: str
    versions: Mapping[str, str]
    lora_layers: tuple[str, ...]
    """Names of the layers and parameters that the adapter changes."""
    adapter_update: int
    """The update that the weights are of."""
    over_seeds: Mapping[str, Mapping[str, OverSeeds]]
    """Game → figure → its values in the runs beside it that differ in their seed alone; empty without such runs."""

    def facts(self) -> dict[str, Any]:
        """Field → value."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(RunFacts)}


@dataclass(frozen=True, kw_only=True)
class AdapterCard(RunFacts):
    """The content of an adapter's card."""

    repo_id: str
    games: tuple[GameTable, ...]
    """One per game of the run, in the order of its configuration."""
    config: TrainConfig
    """As published: without anything specific to the machine."""
    base: Base
    scores: tuple[TaskScore, ...]
    has_curves: bool
    rollouts: str | None
    """Dataset with the training episodes, if one exists."""
    version: str = __version__

    @property
    def name(self) -> str:
        return self.repo_id.partition("/")[2]

    @property
    def evaluated(self) -> bool:
        return self.games[0].adapter is not None

    @property
    def marks(self) -> dict[str, float]:
        """Name → mean reward of the lines that the learning curve is beside; the curve of several games has none."""
        return self.games[0].marks if len(self.games) == 1 else {}

    @property
    def repeatable(self) -> bool:
        """Whether anyone can train it again: a run that started from a local adapter needs a folder that is not published."""
        return not self.config.init_adapter.startswith(LOCAL)

    @property
    def weights(self) -> Mapping[str, int]:
        """Game id → its weight when groups are dealt out."""
        return parse_games(self.config.game)

    @property
    def differences(self) -> Mapping[str, tuple[object, object]]:
        """Choices that are not the default: field → (value, default)."""
        defaults = TrainConfig()
        pairs = {name: (getattr(self.config, name), getattr(defaults, name)) for name in (*CHOICES, "minibatches")}
        return {name: (value, default) for name, (value, default) in pairs.items() if value != default}

    @property
    def changed(self) -> tuple[TaskScore, ...]:
        """Scores on tasks that the adapter was not trained on."""
        return tuple(score for score in self.scores if score.task not in self.weights)

    @property
    def settings(self) -> list[tuple[str, object, Origin]]:
        """Name, value and origin of every setting of the run, and of what its games decide."""
        rows: list[tuple[str, object, Origin]]
        rows = [(name, value, origin_of(name, value)) for name, value in dataclasses.asdict(self.config).items()]
        for table in self.games:
            rows += [(f"{name} of {table.game.id}", one.value, one.origin) for name, one in of_game(table.game).items()]
        return rows
