"""The learning curves of a variant, as its figure draws them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from msgrpo_hub.rendering.seed_curves import Line, SeedLines
from msgrpo_hub.training.curriculum import parse_games
from msgrpo_hub.training.seed_sets import SeedRun, Variant, bounds_of, figures

Floats = npt.NDArray[np.float64]


def _updates(run: SeedRun) -> Floats:
    return np.array([line["update"] for line in run.metrics])


def _episodes(run: SeedRun) -> Floats:
    return np.array([run.config.episodes(int(line["update"])) for line in run.metrics], dtype=np.float64)


def _seconds(run: SeedRun) -> Floats:
    seconds: Floats = np.cumsum([line["seconds_acting"] + line["seconds_training"] for line in run.metrics])
    return seconds


X_AXES: dict[str, tuple[str, Callable[[SeedRun], Floats]]] = {
    "updates": ("updates", _updates),
    "episodes": ("training episodes", _episodes),
    "seconds": ("seconds of acting and training", _seconds),
}
"""Choice → label of the x axis, and the x of each update of a run."""


def seed_lines(variant: Variant, x: str = "updates") -> SeedLines:
    """The rewards of a variant on its first game: in training, in validation, and in the final test.

    Args:
        variant: some of whose runs have updates.
        x: a key of `X_AXES`.
    """
    drawn = {seed: run for seed, run in variant.runs.items() if run.metrics}
    of = X_AXES[x][1]
    adapter = figures(variant.finished)
    game, *others = parse_games(variant.config.game)
    of_game = f"/{game}" if others else ""
    return SeedLines(
        name=variant.name,
        game=f"{game} (of several games)" if others else game,
        training={seed: _line(run, of(run), f"reward{of_game}") for seed, run in drawn.items()},
        validation={seed: _line(run, of(run), f"validation_reward{of_game}") for seed, run in drawn.items()},
        test=adapter[game]["reward"].by_seed if adapter else {},
        references=_references(variant, game) if adapter else {},
        bounds=bounds_of(game, "reward"),
    )


def _line(run: SeedRun, x: Floats, key: str) -> Line:
    """A metric at the updates that have it."""
    values = np.array([line.get(key, np.nan) for line in run.metrics], dtype=np.float64)
    seen = np.isfinite(values)
    return x[seen], values[seen]


def _references(variant: Variant, game: str) -> dict[str, float]:
    """The other players' mean test rewards."""
    players = [name for name in next(iter(variant.finished.values()))["players"] if name != "adapter"]
    return {name: of[game]["reward"].mean for name in players if game in (of := figures(variant.finished, name))}
