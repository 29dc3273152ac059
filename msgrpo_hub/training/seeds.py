"""Runs that differ in their seed: grouped into variants, with figures over seeds, a table and curves."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.statistics import FEWEST_SEEDS, OverSeeds, over_seeds
from msgrpo_hub.evaluation.summary import plays
from msgrpo_hub.evaluation.tables import aligned
from msgrpo_hub.fields import Range, check
from msgrpo_hub.games import make_game
from msgrpo_hub.games.game import return_range
from msgrpo_hub.rendering.seed_curves import SeedLines
from msgrpo_hub.storage.files import files_below
from msgrpo_hub.training.config import TrainConfig, fixed_fields, parse_games, stored_config
from msgrpo_hub.training.run_folder import SEED, RunFolder, seed_folders
from msgrpo_hub.training.summary import Metrics, read_metrics, read_summary

FIGURES = ("reward", "success", "reward_greedy", "success_greedy")

Summary = Mapping[str, Any]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SeedRun:
    """A run of one training seed."""

    folder: Path
    config: TrainConfig
    metrics: Sequence[Metrics]
    """One per finished update."""
    summary: Summary | None
    """None while the run is not finished."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Runs with the same settings and different seeds."""

    name: str
    runs: Mapping[int, SeedRun]
    """By training seed, in ascending order."""
    finished: Mapping[int, Summary]
    """The summaries of its finished runs by seed."""


def find_variants(folders: Iterable[Path]) -> list[Variant]:
    """The runs in folders as variants; `seed-0`, `seed-1`, … are one, as is any other run. Raises `UserError` if they differ."""
    paths: dict[Path, None] = {}
    for folder in folders:
        found = list(folder.glob("metrics.jsonl")) or files_below(folder, "metrics.jsonl")
        inside = sorted(path.parent.resolve() for path in found if RunFolder(path.parent).config.exists())
        if not inside:
            raise UserError(f"{str(folder)!r} holds no run: expected the output of `msgrpo train`, or a folder of them")
        paths |= dict.fromkeys(inside)
    groups: dict[Path, dict[int, SeedRun]] = {}
    for path in paths:
        own, place = RunFolder(path), path.parent if SEED.fullmatch(path.name) else path
        summary = read_summary(own.summary) if own.summary.exists() else None
        run = SeedRun(folder=path, config=stored_config(own.config), metrics=read_metrics(own.metrics), summary=summary)
        check_metrics(run)
        runs = groups.setdefault(place, {})
        if run.config.seed in runs or any(settings(run.config) != settings(other.config) for other in runs.values()):
            raise UserError(f"{str(place)!r} holds runs that differ in more than their seed: expected one per seed")
        runs[run.config.seed] = run
    above, variants = os.path.commonpath([place.parent for place in groups]), []
    for place, found_runs in groups.items():
        runs = dict(sorted(found_runs.items()))
        finished = {seed: run.summary for seed, run in runs.items() if run.summary is not None}
        variants.append(Variant(name=os.path.relpath(place, above), runs=runs, finished=finished))
    return variants


def check_within(name: str, value: object, bounds: tuple[float, float], where: str) -> None:
    """Raises `UserError` unless a stored mean is a number between its bounds, up to rounding."""
    check(name, round(value, 9) if isinstance(value, float) else value, Annotated[float, Range(*bounds)], where)


def check_metrics(run: SeedRun) -> None:
    """Raises `UserError` for a metric that no run has: a reward beyond its game, a share beyond 0 and 1, a negative time."""
    lows, highs = zip(*(return_range(make_game(game)) for game in parse_games(run.config.game)), strict=True)
    bounds = dict.fromkeys(("success", "unreadable", "truncated", "illegal"), (0.0, 1.0))
    bounds |= {"reward": (min(lows), max(highs)), "seconds": (0.0, math.inf)}
    for line in run.metrics:
        where = f" in update {line['update']:g} of {str(run.folder / 'metrics.jsonl')!r}"
        played = next((name for name in ("teacher_reward", "sft_replies") if name in line), "reward")
        for name in dict.fromkeys([played, *line]):
            kind = re.split("[_/]", name.removeprefix("validation_").removeprefix("teacher_"))
            if kind[0] in bounds and kind[-1] != "std":
                check_within(name, line.get(name), bounds[kind[0]], where)


def settings(config: TrainConfig) -> dict[str, Any]:
    """The settings that two runs of one variant share."""
    return {name: value for name, value in fixed_fields(config).items() if name not in ("seed", "save_rollouts")}


def siblings(path: Path) -> dict[int, Summary]:
    """The summaries by seed of the finished runs beside `path` with its settings, itself included; empty without others."""
    path, found = path.resolve(), dict[int, Summary]()
    own = settings(stored_config(RunFolder(path).config))
    for run in map(RunFolder, seed_folders(path.parent) if SEED.fullmatch(path.name) else []):
        config = stored_config(run.config)
        if run.summary.exists() and settings(config) == own:
            found[config.seed] = read_summary(run.summary)
    return found if len(found) > 1 else {}


# ---- figures


def tables_of(summary: Summary) -> dict[str, Mapping[str, Any]]:
    """The final table of every game of a run; empty for a run without test episodes."""
    return {table["game"]: table for table in (summary, *summary.get("other_games", ())) if "players" in table}


def figures(summaries: Mapping[int, Summary], player: str = "adapter") -> dict[str, dict[str, OverSeeds]]:
    """Game → figure (reward, success, and both greedy) of a player → its values over the training seeds of finished runs."""
    tables = {seed: tables_of(summary) for seed, summary in summaries.items()}
    found: dict[str, dict[str, OverSeeds]] = {}
    for game in next(iter(tables.values()), {}):
        if not all(player in own.get(game, {}) for own in tables.values()):
            continue
        for name in FIGURES:
            values = {seed: own[game][player].get(name) for seed, own in tables.items()}
            bounds = (0.0, 1.0) if name.startswith("success") else return_range(make_game(game))
            for value in values.values():
                check_within(name, value, bounds, " in the results of a run")
            found.setdefault(game, {})[name] = over_seeds(values, bounds)
    return found


def data_of(variant: Variant) -> dict[str, Any]:
    """A variant as plain data: its runs, and the figures of every player over its seeds."""
    tables = [table for summary in variant.finished.values() for table in tables_of(summary).values()]
    runs = {}
    for seed, run in variant.runs.items():
        told = ("adapter_update", "best_update", "learned_nothing", "rewards_taught_nothing", "seconds")
        done = {"folder": run.folder.name, "updates": len(run.metrics), "finished": run.summary is not None}
        runs[seed] = done | {name: run.summary[name] for name in told if run.summary and name in run.summary}
    players = dict.fromkeys(name for table in tables for name in table["players"])
    of_players = {player: records(figures(variant.finished, player)) for player in players}
    config = next(iter(variant.runs.values())).config
    return {"variant": variant.name, "settings": settings(config), "runs": runs, "players": of_players}


def records(games: Mapping[str, Mapping[str, OverSeeds]]) -> dict[str, Any]:
    """Figures of games as plain data."""
    return {game: {name: figure.record() for name, figure in of_game.items()} for game, of_game in games.items()}


def seed_table(variants: Sequence[Variant]) -> str:
    """One block per game, with a line per variant, and one per other player where it is equal in all variants; then remarks."""
    blocks, remarks = [], []
    tables = [table for variant in variants for summary in variant.finished.values() for table in tables_of(summary).items()]
    for game in dict.fromkeys(game for game, _ in tables):
        adapters = [of[game] for variant in variants if game in (of := figures(variant.finished))]
        same = all(of["reward"].by_seed == of["success"].by_seed for of in adapters)
        names = ["reward"] if same else ["reward", "success"]
        head = [("reward = success" if same else name, "std", "worst", "best", "greedy") for name in names]
        rows = [["", "seeds", *(cell for part in head for cell in part)]]
        for player in dict.fromkeys(player for name, table in tables if name == game for player in table["players"]):
            own: dict[str, list[str]] = {}
            for variant in variants:
                if played := figures(variant.finished, player).get(game):
                    cells = own[variant.name] = [str(len(played["reward"].by_seed)) if player == "adapter" else ""]
                    for name in names:
                        over, values, greedy = played[name], played[name].by_seed.values(), played[f"{name}_greedy"].mean
                        spread = ["–" if over.std is None else f"{over.std:.3f}", f"{min(values):z.3f}", f"{max(values):z.3f}"]
                        cells += [str(over), *spread] if player == "adapter" else [f"{over.mean:z.3f}", "", "", ""]
                        cells.append(f"{greedy:z.3f}")
            if player == "adapter":
                rows += [[variant, *cells] for variant, cells in own.items()]
            elif len({*map(tuple, own.values())}) == 1:
                rows.append([player, *next(iter(own.values()))])
        episodes = next(table["adapter"]["episodes"] for name, table in tables if name == game)
        title = f"{game}, {episodes} test episodes per run; means over training seeds with 95 % intervals over the seeds"
        blocks.append(f"{title}\n{aligned(rows)}")
    for variant in variants:
        for seed, run in variant.runs.items():
            if run.summary is None:
                remarks.append(f"{variant.name}, seed {seed}: {len(run.metrics)} of {run.config.updates} updates")
            elif why := run.summary.get("learned_nothing"):
                remarks.append(f"{variant.name}, seed {seed} learned nothing: {why}")
            elif why := run.summary.get("rewards_taught_nothing"):
                remarks.append(f"{variant.name}, seed {seed} learned from SFT alone: {why}")
            for name, table in tables_of(run.summary or {}).items():
                if not plays(table["adapter"]):
                    remarks.append(f"{variant.name}, seed {seed} does not play {name}: under half of its replies parsed")
        if 0 < len(variant.finished) < FEWEST_SEEDS:
            remarks.append(f"{variant.name}: an interval needs {FEWEST_SEEDS} finished seeds")
    return "\n".join(["\n\n".join(blocks), *remarks]).strip()


# ---- curves

X_AXES: dict[str, tuple[str, Callable[[SeedRun], Iterable[float]]]] = {
    "updates": ("updates", lambda run: [line["update"] for line in run.metrics]),
    "episodes": ("training episodes", lambda run: [run.config.episodes(int(line["update"])) for line in run.metrics]),
    "tokens": (
        "sampled tokens",
        lambda run: np.cumsum([round(line.get("tokens_per_second", 0) * line["seconds_acting"]) for line in run.metrics]),
    ),
    "processor-seconds": (
        "processor seconds of sampling and training",
        lambda run: np.cumsum([line["processor_seconds"] for line in run.metrics]),
    ),
}
"""Choice → label of the x axis, and the x of each update of a run."""


def seed_lines(variant: Variant, x: str = "updates") -> SeedLines:
    """The rewards of a variant on its first game over `x` of `X_AXES`. Raises `UserError` if a run has not measured `x`."""
    config = next(iter(variant.runs.values())).config
    game, *others = parse_games(config.game)
    summaries = variant.finished

    def lines(metric: str) -> dict[int, tuple[Floats, Floats]]:
        found = {}
        for seed, run in variant.runs.items():
            values = np.array([line.get(f"{metric}/{game}" if others else metric, np.nan) for line in run.metrics], np.float64)
            seen = np.isfinite(values)
            try:
                if run.metrics:
                    found[seed] = (np.array([*X_AXES[x][1](run)], np.float64)[seen], values[seen])
            except KeyError as error:
                raise UserError(f"{str(run.folder)!r} has no {error} in metrics.jsonl: expected another --x") from error
        return found

    players = tables_of(next(iter(summaries.values()))).get(game, {}).get("players", []) if summaries else []
    means = {name: of[game]["reward"] for name in players if game in (of := figures(summaries, name))}
    return SeedLines(
        name=variant.name,
        game=f"{game} (of several games)" if others else game,
        training=lines("reward"),
        validation=lines("validation_reward"),
        test=means.pop("adapter").by_seed if "adapter" in means else {},
        references={name: figure.mean for name, figure in means.items()},
        bounds=return_range(make_game(game)),
    )
