"""The runs in some folders as variants, sets of runs that differ in their seed alone, with their figures over the seeds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.over_seeds import OverSeeds, over_seeds
from msgrpo_hub.fields import check
from msgrpo_hub.games import make_game
from msgrpo_hub.games.game import return_range
from msgrpo_hub.training.config import TrainConfig, stored_config
from msgrpo_hub.training.metrics import Metrics, read_metrics
from msgrpo_hub.training.run_folder import SEED, RunFolder, fixed_fields
from msgrpo_hub.training.summary import read_summary

FIGURES = ("reward", "success", "reward_greedy", "success_greedy")

Summary = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SeedRun:
    """A run of one training seed, as its folder has it."""

    folder: Path
    config: TrainConfig
    metrics: Sequence[Metrics]
    """One per finished update."""
    summary: Summary | None
    """None while the run is not finished."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Runs that differ in their seed alone."""

    name: str
    """The name of their folder, or the settings that set them apart from the other variants."""
    runs: Mapping[int, SeedRun]
    """By training seed, in ascending order."""

    @property
    def config(self) -> TrainConfig:
        """That of its first seed."""
        return next(iter(self.runs.values())).config

    @property
    def finished(self) -> dict[int, Summary]:
        """The summaries of its finished runs by seed."""
        return {seed: run.summary for seed, run in self.runs.items() if run.summary is not None}


# ---- the runs of folders


def find_variants(folders: Iterable[Path]) -> list[Variant]:
    """The runs in some folders, divided into variants.

    A folder of runs `seed-0`, `seed-1`, … is a variant. Other runs are divided by their settings.

    Raises:
        UserError: a folder holds no run, or a variant has two runs of one seed.
    """
    groups: dict[tuple[str, str], dict[int, SeedRun]] = {}
    for path in dict.fromkeys(run for folder in folders for run in _run_folders(folder)):
        run = read_seed_run(path)
        seeds = groups.setdefault((_set_of(path), repr(sorted(settings(run.config).items()))), {})
        if other := seeds.get(run.config.seed):
            raise UserError(
                f"two runs of seed {run.config.seed} with the same settings, {str(other.folder)!r} and {str(path)!r}: "
                "expected one run per training seed; name one of them"
            )
        seeds[run.config.seed] = run
    names = _names([(place, runs) for (place, _), runs in groups.items()])
    return [Variant(name=name, runs=dict(sorted(runs.items()))) for name, runs in zip(names, groups.values(), strict=True)]


def _run_folders(folder: Path) -> list[Path]:
    """The folders of runs in a folder, or the folder itself if it is one."""
    if is_run(folder):
        return [folder.resolve()]
    inside = [path.parent.resolve() for path in folder.rglob("metrics.jsonl") if is_run(path.parent)]
    if not inside:
        raise UserError(f"{str(folder)!r} holds no run: expected the output of `msgrpo train`, or a folder of them")
    return sorted(inside, key=lambda path: (path.parent, _seed_of(path) or 0, path))


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run that has begun."""
    return bool(RunFolder(folder).config.exists() and RunFolder(folder).metrics.exists())


def set_folders(folder: Path) -> list[Path]:
    """The folders of the runs of a set, by seed."""
    found = [path for path in folder.glob("seed-*") if _seed_of(path) is not None and RunFolder(path).config.exists()]
    return sorted(found, key=lambda path: _seed_of(path) or 0)


def _seed_of(path: Path) -> int | None:
    """The seed that the name of a run's folder tells, if it is one of a set: of `seed-3`, 3."""
    found = SEED.fullmatch(path.name)
    return int(found[1]) if found else None


def _set_of(path: Path) -> str:
    return "" if _seed_of(path) is None else str(path.parent)


def read_seed_run(path: Path) -> SeedRun:
    """A run as its folder has it, finished or not."""
    folder = RunFolder(path)
    summary = read_summary(folder.summary) if folder.summary.exists() else None
    return SeedRun(folder=path, config=stored_config(folder.config), metrics=read_metrics(folder.metrics), summary=summary)


def settings(config: TrainConfig) -> dict[str, Any]:
    """What decides a run besides its seed."""
    return {name: value for name, value in fixed_fields(config).items() if name not in ("seed", "save_rollouts")}


def _names(groups: Sequence[tuple[str, Mapping[int, SeedRun]]]) -> list[str]:
    """One name per group: of a set its folder, of other runs the settings that are not the same in all groups."""
    every = [settings(next(iter(runs.values())).config) for _, runs in groups]
    differing = [name for name in every[0] if any(values[name] != every[0][name] for values in every)]
    apart = [", ".join(f"{name} {values[name]}" for name in differing) for values in every]
    above = os.path.commonpath([str(Path(place).parent) for place, _ in groups if place] or ["."])
    names = [
        os.path.relpath(place, above) if place else by_settings or next(iter(runs.values())).folder.name
        for (place, runs), by_settings in zip(groups, apart, strict=True)
    ]
    places = [place or str(next(iter(runs.values())).folder) for place, runs in groups]
    return [
        f"{name}, {by or os.path.relpath(at, above)}" if names.count(name) > 1 else name
        for name, by, at in zip(names, apart, places, strict=True)
    ]


def siblings(path: Path) -> dict[int, Summary]:
    """The finished runs of the set that a run's folder belongs to, itself among them, by seed; empty if it is alone."""
    if _seed_of(path.resolve()) is None or not RunFolder(path).config.exists():
        return {}
    own = settings(stored_config(RunFolder(path).config))
    folders = [RunFolder(one) for one in set_folders(path.resolve().parent)]
    finished = [(stored_config(one.config), one) for one in folders if one.summary.exists()]
    same = {config.seed: read_summary(one.summary) for config, one in finished if settings(config) == own}
    return dict(sorted(same.items())) if len(same) > 1 else {}


# ---- their figures


def tables_of(summary: Summary) -> dict[str, Mapping[str, Any]]:
    """The final table of every game of a run; empty for a run without test episodes."""
    return {table["game"]: table for table in (summary, *summary.get("other_games", ())) if "players" in table}


def figures(summaries: Mapping[int, Summary], player: str = "adapter") -> dict[str, dict[str, OverSeeds]]:
    """Game → figure (reward, success, and both greedy) → its values over the training seeds.

    Args:
        summaries: by training seed, of finished runs of one configuration.
        player: whose figures.
    """
    tables = {seed: tables_of(summary) for seed, summary in summaries.items()}
    games = [game for game in next(iter(tables.values()), {}) if all(player in own.get(game, {}) for own in tables.values())]
    return {
        game: {
            name: over_seeds({seed: _number(tables[seed][game][player], name) for seed in tables}, bounds_of(game, name))
            for name in FIGURES
        }
        for game in games
    }


def bounds_of(game: str, figure: str) -> tuple[float, float] | None:
    """The smallest and the largest possible value of a figure."""
    return (0.0, 1.0) if figure.startswith("success") else return_range(make_game(game))


def _number(row: Mapping[str, Any], name: str) -> float:
    check(name, row.get(name), float, " in the results of a run")
    return float(row[name])


def data_of(variant: Variant) -> dict[str, Any]:
    """A variant as plain data: its runs, and the figures of every player over its seeds."""
    players = dict.fromkeys(
        name for one in variant.finished.values() for table in tables_of(one).values() for name in table["players"]
    )
    runs = {seed: _run_data(run) for seed, run in variant.runs.items()}
    of_players = {player: records(figures(variant.finished, player)) for player in players}
    return {"variant": variant.name, "settings": settings(variant.config), "runs": runs, "players": of_players}


def records(games: Mapping[str, Mapping[str, OverSeeds]]) -> dict[str, Any]:
    """Figures of games as plain data."""
    return {game: {name: figure.record() for name, figure in of_game.items()} for game, of_game in games.items()}


def _run_data(run: SeedRun) -> dict[str, Any]:
    done = {"folder": run.folder.name, "updates": len(run.metrics), "finished": run.summary is not None}
    told = ("adapter_update", "best_update", "learned_nothing", "rewards_taught_nothing", "seconds")
    return done | {name: run.summary[name] for name in told if run.summary and name in run.summary}
