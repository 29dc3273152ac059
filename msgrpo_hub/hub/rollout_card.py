"""The card of a rollout data set: columns from the schema, statistics from the episodes, and how to load it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from msgrpo_hub import __version__
from msgrpo_hub.hub.cards import as_code, as_text, checked, front_matter, render
from msgrpo_hub.storage.schema import COLUMNS, CONFIGS, FORMAT
from msgrpo_hub.storage.tables import Origin, Rollout

SPLITS = ("train", "validation", "test")


@dataclass(kw_only=True)
class Tally:
    """Sums over the episodes of one player in one game and split."""

    episodes: int = 0
    steps: int = 0
    reward: float = 0.0
    success: int = 0
    selected: int = 0
    without_action: int = 0
    """Replies that are unparsed or truncated."""
    tokens: int = 0
    last_update: int = 0

    def add(self, rollout: Rollout) -> None:
        episode = rollout.episode
        self.episodes += 1
        self.steps += len(episode.steps)
        self.reward += episode.reward
        self.success += episode.success
        self.selected += bool(rollout.selected)
        self.without_action += episode.unreadable
        self.tokens += sum(step.completion.reply_tokens or 0 for step in episode.steps)
        self.last_update = max(self.last_update, rollout.update or 0)


@dataclass(kw_only=True)
class Statistics:
    """Statistics of a data set, collected while its shards are written."""

    tallies: dict[tuple[Origin, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    """(origin, game) → sums."""
    sizes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(configuration, split) → bytes in memory."""

    def add(self, origin: Origin, rollouts: Sequence[Rollout], written: Mapping[str, pa.Table]) -> None:
        for rollout in rollouts:
            self.tallies[origin, rollout.episode.game_id].add(rollout)
        for config, table in written.items():
            self.sizes[config, origin.split] += table.nbytes

    @property
    def episodes(self) -> int:
        return sum(tally.episodes for tally in self.tallies.values())

    def rows(self, config: str, split: str) -> int:
        """The number of rows of a split."""
        name = "episodes" if config == "default" else "steps"
        return sum(getattr(tally, name) for (origin, _), tally in self.tallies.items() if origin.split == split)


@dataclass(frozen=True, kw_only=True)
class RolloutCard:
    """The content of a rollout data set's card."""

    repo_id: str
    statistics: Statistics
    shown: Sequence[str]
    """The players that its picture shows."""
    version: str = __version__
    format: str = FORMAT

    @property
    def name(self) -> str:
        return self.repo_id.partition("/")[2]

    @property
    def games(self) -> list[str]:
        return sorted({game for _, game in self.statistics.tallies})

    @property
    def splits(self) -> list[str]:
        return [split for split in SPLITS if self.statistics.rows("default", split)]

    @property
    def has_examples(self) -> bool:
        """Whether the first split has replies to imitate: selected in training, or from successful episodes."""
        own = [tally for (origin, _), tally in self.statistics.tallies.items() if origin.split == self.splits[0]]
        return any(tally.selected if self.splits[0] == "train" else tally.success for tally in own)

    @property
    def columns(self) -> Mapping[str, Mapping[str, tuple[str, str]]]:
        """Configuration → column → (type, meaning)."""
        return {config: {name: (shown(kind), text) for name, (kind, text) in COLUMNS[config].items()} for config in CONFIGS}


def shown(kind: pa.DataType) -> str:
    """A type as readable text.

    >>> shown(pa.list_(pa.float64()))
    'list of float64'
    """
    if pa.types.is_list(kind):
        return f"list of {shown(kind.value_type)}"
    return "{" + ", ".join(part.name for part in kind) + "}" if pa.types.is_struct(kind) else str(_dtype(kind))


def render_rollouts(card: RolloutCard) -> str:
    """The checked README of a rollout data set."""
    values = {"card": card, "front_matter": front_matter(metadata(card)), "linked": linked}
    return checked(render("rollouts.md.jinja", values))


def linked(source: str, revision: str | None) -> str:
    """A model with its commit; a link if the model is a repository.

    >>> linked("ada/lake", "0123456789abcdef")
    '[ada/lake](https://huggingface.co/ada/lake/tree/0123456789abcdef) at 0123456789ab'
    """
    if not revision:
        return as_text(source)
    is_repository = re.fullmatch(r"[\w.-]+/[\w.-]+", source, re.ASCII) and re.fullmatch(r"\w+", revision, re.ASCII)
    name = f"[{source}](https://huggingface.co/{source}/tree/{revision})" if is_repository else as_code(source)
    return f"{name} at {as_text(revision[:12])}"


# ---- front matter


def metadata(card: RolloutCard) -> dict[str, Any]:
    """The front matter: what the Hub shows, and the files of each configuration and split."""
    return {
        "license": "apache-2.0",
        "language": ["en"],
        "pretty_name": f"Episodes of {', '.join(card.games)}",
        "task_categories": ["reinforcement-learning", "text-generation"],
        "tags": ["msgrpo", "text-games", "reinforcement-learning", *card.games],
        "size_categories": [size_category(card.statistics.episodes)],
        "dataset_info": [_info(card, config) for config in CONFIGS],
        "configs": [_files(card, config) for config in CONFIGS],
    }


def _files(card: RolloutCard, config: str) -> dict[str, Any]:
    first = {"default": True} if config == "default" else {}
    files = [{"split": split, "path": f"{config}/{split}-*.parquet"} for split in card.splits]
    return {"config_name": config, **first, "data_files": files}


def _info(card: RolloutCard, config: str) -> dict[str, Any]:
    """Columns and row counts as `datasets` reads them."""
    features = [{"name": name, **_feature(kind)} for name, (kind, _) in COLUMNS[config].items()]
    statistics = card.statistics
    splits = [
        {"name": split, "num_bytes": statistics.sizes[config, split], "num_examples": statistics.rows(config, split)}
        for split in card.splits
    ]
    return {"config_name": config, "features": features, "splits": splits}


def _feature(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind):
        inner = kind.value_type
        parts = [{"name": part.name, **_feature(part.type)} for part in inner] if pa.types.is_struct(inner) else _dtype(inner)
        return {"list": parts}
    return {"dtype": _dtype(kind)}


def _dtype(kind: pa.DataType) -> str:
    return {"double": "float64"}.get(str(kind), str(kind))


def size_category(rows: int) -> str:
    """The Hub's size category for a number of rows.

    >>> size_category(999), size_category(25_600)
    ('n<1K', '10K<n<100K')
    """
    bounds = ("1K", "10K", "100K", "1M", "10M", "100M", "1B")
    for power, (low, high) in enumerate(zip(("", *bounds), bounds, strict=False)):
        if rows < 10 ** (3 + power):
            return f"{low}<n<{high}" if low else f"n<{high}"
    return f"n>{bounds[-1]}"
