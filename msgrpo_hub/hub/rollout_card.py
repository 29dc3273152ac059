"""The card of a rollout dataset: columns from the schema, statistics from the episodes, a replay, and how to load it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from huggingface_hub import DatasetCardData

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, THINK_ACTION
from msgrpo_hub.games import make_game
from msgrpo_hub.hub.cards import render
from msgrpo_hub.rendering.replay_svg import replay_svg
from msgrpo_hub.storage.schema import COLUMNS, CONFIGS, FORMAT
from msgrpo_hub.storage.tables import Origin, Rollout

_KEPT = 50  # episodes per player to select the picture from


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
    last_update: int = 0


@dataclass(kw_only=True)
class Statistics:
    """Statistics of a dataset, collected while its shards are written, with the episodes for its picture."""

    tallies: dict[tuple[Origin, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    """(origin, game) → sums."""
    kept: dict[str, dict[int, Rollout]] = field(default_factory=lambda: defaultdict(dict))
    """Player → seed → the first episode from it, in the first game."""

    def add(self, origin: Origin, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            episode, tally = rollout.episode, self.tallies[origin, rollout.episode.game_id]
            tally.episodes += 1
            tally.steps += len(episode.steps)
            tally.reward += episode.reward
            tally.success += episode.success
            tally.selected += bool(rollout.selected)
            tally.without_action += episode.unreadable
            tally.last_update = max(tally.last_update, rollout.update or 0)
            own = self.kept[origin.player]
            if episode.game_id == next(iter(self.tallies))[1] and len(own) < _KEPT:
                own.setdefault(episode.seed, rollout)

    @property
    def episodes(self) -> int:
        return sum(tally.episodes for tally in self.tallies.values())

    @property
    def games(self) -> list[str]:
        return sorted({game for _, game in self.tallies})

    @property
    def splits(self) -> list[str]:
        there = {origin.split for origin, _ in self.tallies}
        return [split for split in ("train", "validation", "test") if split in there]

    def chosen(self) -> list[tuple[str, Rollout]]:
        """The worst and the best player on the seed where they differ most; without a common seed, one good episode."""

        def mean(player: str) -> float:
            return sum(one.episode.reward for one in self.kept[player].values()) / len(self.kept[player])

        players = sorted((player for player, own in self.kept.items() if own), key=mean)
        one, other = self.kept[players[0]], self.kept[players[-1]]
        common = [seed for seed in one if seed in other]
        if len(players) == 1 or not common:
            return [(players[-1], max(other.values(), key=lambda rollout: rollout.episode.reward))]
        seed = max(common, key=lambda seed: other[seed].episode.reward - one[seed].episode.reward)
        return [(players[0], one[seed]), (players[-1], other[seed])]

    def picture(self) -> str:
        """An animated SVG of the chosen episodes."""
        chosen = self.chosen()
        prompt_format = PROMPT_FORMATS.get(chosen[0][1].prompt_format, THINK_ACTION)
        game = make_game(chosen[0][1].episode.game_id)
        return replay_svg(game, [(name, rollout.episode) for name, rollout in chosen], prompt_format)


def render_rollouts(repo_id: str, statistics: Statistics) -> str:
    """The README of a rollout dataset."""
    splits = statistics.splits
    configs = []
    for config in CONFIGS:
        files = [{"split": split, "path": f"{config}/{split}-*.parquet"} for split in splits]
        configs.append({"config_name": config, **({"default": True} if config == "default" else {}), "data_files": files})
    metadata = DatasetCardData(
        license="apache-2.0",
        language=["en"],
        pretty_name=f"Episodes of {', '.join(statistics.games)}",
        task_categories=["reinforcement-learning", "text-generation"],
        tags=["msgrpo", "text-games", "reinforcement-learning", *statistics.games],
        configs=configs,
    )
    first = [tally for (origin, _), tally in statistics.tallies.items() if origin.split == splits[0]]
    return render(
        "rollouts.md.jinja",
        metadata,
        repo_id=repo_id,
        name=repo_id.partition("/")[2],
        statistics=statistics,
        games=statistics.games,
        splits=splits,
        shown=[name for name, _ in statistics.chosen()],
        has_examples=any(tally.selected if splits[0] == "train" else tally.success for tally in first),
        columns={config: {name: (_shown(kind), text) for name, (kind, text) in COLUMNS[config].items()} for config in CONFIGS},
        format=FORMAT,
    )


def _shown(kind: pa.DataType) -> str:
    """A type as readable text."""
    if pa.types.is_list(kind):
        return f"list of {_shown(kind.value_type)}"
    if pa.types.is_struct(kind):
        return "{" + ", ".join(part.name for part in kind) + "}"
    return {"double": "float64"}.get(str(kind), str(kind))
