"""The card of a results dataset: its table, how to read the table, and how to add a player."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgrpo_hub import __version__
from msgrpo_hub.hub.cards import checked, front_matter, render


@dataclass(frozen=True, kw_only=True)
class ResultsCard:
    """The content of a results dataset's card."""

    repo_id: str
    table_file: str
    """The Parquet file with one row per run."""
    runs: int
    tables: str
    """One per task, in Markdown."""
    refused: Mapping[str, str]
    """What is in the dataset but not listed → the reason."""
    example: str
    """A task of the dataset."""
    command: str
    """Plays a model with the suite and the settings that most models of the table share."""
    version: str = __version__

    @property
    def name(self) -> str:
        return self.repo_id.partition("/")[2]


def render_results(card: ResultsCard) -> str:
    """The checked README of a results dataset. The dataset's page and `load_dataset` show the table alone."""
    metadata = {
        "pretty_name": f"Results of players of text games: {card.name}",
        "license": "apache-2.0",
        "language": "en",
        "task_categories": ["reinforcement-learning", "text-generation"],
        "tags": ["msgrpo", "text-games", "reinforcement-learning", "leaderboard"],
        "configs": [{"config_name": "default", "data_files": [{"split": "runs", "path": card.table_file}], "default": True}],
    }
    return checked(render("results.md.jinja", {"card": card, "front_matter": front_matter(metadata)}))
