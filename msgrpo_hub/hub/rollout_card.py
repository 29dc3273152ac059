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
class Statistics:
    """Statistics of a dataset, collected while its shards are written, with the episodes for its picture."""

    tallies: dict[tuple[Origin, str], dict[str, float]] = field(default_factory=dict)
    """(origin, game) → sums over the episodes by name, and the last update."""
    kept: dict[str, dict[int, Rollout]] = field(default_factory=lambda: defaultdict(dict))
    """Player → seed → the first episode from it, in the first game."""

    def add(self, origin: Origin, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            episode = rollout.episode
            tally = self.tallies.setdefault((origin, episode.game_id), {})
            counts = {
                "episodes": 1,
                "steps": len(episode.steps),
                "reward": episode.reward,
                "success": episode.success,
                "selected": bool(rollout.selected),
                "without_action": episode.unreadable,  # replies, unparsed or truncated
            }
            tally |= {name: tally.get(name, 0) + count for name, count in counts.items()}
            tally["last_update"] = max(tally.get("last_update", 0), rollout.update or 0)
            own = self.kept[origin.player]
            if episode.game_id == next(iter(self.tallies))[1] and len(own) < _KEPT:
                own.setdefault(episode.seed, rollout)

    @property
    def episodes(self) -> int:
        return sum(int(tally["episodes"]) for tally in self.tallies.values())

    @property
    def games(self) -> list[str]:
        return sorted({game for _, game in self.tallies})

    def chosen(self) -> list[tuple[str, Rollout]]:
        """The worst and the best player on the seed where they differ most; without a common seed, one good episode."""
        means = {player: sum(one.episode.reward for one in own.values()) / len(own) for player, own in self.kept.items() if own}
        ranked = sorted(means, key=means.__getitem__)
        worst, best = ranked[0], ranked[-1]
        one, other = self.kept[worst], self.kept[best]
        common = [seed for seed in one if seed in other]
        if worst == best or not common:
            return [(best, max(other.values(), key=lambda rollout: rollout.episode.reward))]
        seed = max(common, key=lambda seed: other[seed].episode.reward - one[seed].episode.reward)
        return [(worst, one[seed]), (best, other[seed])]

    def picture(self) -> str:
        """An animated SVG of the chosen episodes."""
        chosen = self.chosen()
        prompt_format = PROMPT_FORMATS.get(chosen[0][1].prompt_format, THINK_ACTION)
        game = make_game(chosen[0][1].episode.game_id)
        return replay_svg(game, [(name, rollout.episode) for name, rollout in chosen], prompt_format)


def render_rollouts(repo_id: str, statistics: Statistics) -> str:
    """The README of a rollout dataset."""
    there = {origin.split for origin, _ in statistics.tallies}
    splits = [split for split in ("train", "validation", "test") if split in there]
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
        has_examples=any(tally["selected" if splits[0] == "train" else "success"] for tally in first),
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
