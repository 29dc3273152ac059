"""The card of a results dataset: its table, how to read it, and how to add a player."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import yaml  # type: ignore[import-untyped]

from msgrpo_hub import __version__
from msgrpo_hub.hub.card_rules import check_card
from msgrpo_hub.hub.cards import render


@dataclass(frozen=True, kw_only=True)
class ResultsCard:
    """All that the card of a results dataset says."""

    repo_id: str
    table_file: str
    """The Parquet file with one row per run."""
    runs: int
    tables: str
    """One per task, in Markdown."""
    refused: Mapping[str, str]
    """What lies in the dataset and is not listed → why."""
    example: str
    """A task that it has."""
    version: str = __version__

    @property
    def name(self) -> str:
        return self.repo_id.partition("/")[2]


def render_results(card: ResultsCard) -> str:
    """The README of a results dataset, checked. Its page and `load_dataset` show the table, and nothing else of it."""
    metadata = {
        "pretty_name": f"Results of players of text games: {card.name}",
        "language": "en",
        "task_categories": ["reinforcement-learning", "text-generation"],
        "tags": ["msgrpo", "text-games", "reinforcement-learning", "leaderboard"],
        "configs": [{"config_name": "default", "data_files": [{"split": "runs", "path": card.table_file}], "default": True}],
    }
    front_matter = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=1000)
    content = render("results.md.jinja", {"card": card, "front_matter": front_matter})
    check_card(content)
    return content
