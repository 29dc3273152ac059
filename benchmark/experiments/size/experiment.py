"""Does a small model that is trained beat one ten times larger that is not? Bases of three sizes, made by one script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from filelock import FileLock
from matplotlib.figure import Figure

from benchmark.experiments.arms import compare_arms, game_of, titled
from benchmark.experiments.curves import Arms, draw_ends, means_of, with_interval
from benchmark.experiments.experiment import Settings, Values, configuration
from benchmark.experiments.headlines import LEAST
from benchmark.experiments.headlines import headline as of_arms
from benchmark.experiments.training import learning_curve
from benchmark.pocket.build import BuildConfig, make_base
from msgrpo_hub.evaluation.statistics import method_interval

CONFIG = configuration("size")
BASE = ", the base"
"""How the name of an arm ends that is not trained."""


def learning_curve_of_size(settings: Settings, scratch: Path) -> Values:
    """`learning_curve` on a base of some `width` and number of `layers`, made as `build` says unless another unit has made it."""
    fields = dict(settings["settings"])
    base = base_of({"width": fields.pop("width"), "layers": fields.pop("layers"), **fields.pop("build")}, scratch)
    return learning_curve({**settings, "settings": {**fields, "model": str(base)}}, scratch)


def base_of(build_fields: Settings, scratch: Path) -> Path:
    """The folder of a base, which is built if it is not there; an interrupted build goes on."""
    folder = scratch / "-".join(f"{name}-{value}" for name, value in build_fields.items())
    with FileLock(f"{folder}.lock"):
        make_base(BuildConfig(output_dir=folder, threads=torch.get_num_threads(), **build_fields))
    return folder


def headline(rows: Mapping[str, Values]) -> str:
    """Whether the smallest base, trained, is above the largest one, and what size does to trained ones."""
    found = titled(CONFIG, rows)
    sizes, untrained = _sizes(found[0][1]) if found else ({}, {})
    largest, smallest = next(iter(CONFIG["arm"])), list(CONFIG["arm"])[-1]
    if largest not in untrained or len(sizes.get(smallest, ())) < LEAST:
        return ""
    interval = method_interval(sizes[smallest])
    assert interval
    said = {1: "Yes", -1: "No", 0: "Not told apart"}[
        int(interval.low > untrained[largest]) - int(interval.high < untrained[largest])
    ]
    game = game_of(CONFIG, "quickstart")
    trained = ", ".join(f"{name} {with_interval(of_seeds, '.2f', game)}" for name, of_seeds in sizes.items())
    bases = ", ".join(f"{name.removesuffix(BASE)} {mean:.2f}" for name, mean in untrained.items())
    between = of_arms({arm: seeds for arm, seeds in found[0][1].items() if not arm.endswith(BASE)})
    compared = f" Among trained ones: {between}" if between else ""
    return (
        f"{said}. Trained on the dry lake by `quickstart` for {CONFIG['updates']['quickstart']} updates: {trained}, over training"
        f" seeds. Before: {bases}: the documents that the bases were made from teach them to read boards and to move at random,"
        f" so that a larger base plays no better before it is trained.{compared} These bases are made in few steps, from"
        " documents about lakes alone."
    )


def _sizes(arms: Arms) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Test rewards of trained arms, one per seed, and of the bases."""
    means = {arm: list(means_of(seeds).values()) for arm, seeds in arms.items()}
    return (
        {arm: of_seeds for arm, of_seeds in means.items() if not arm.endswith(BASE)},
        {arm: of_seeds[0] for arm, of_seeds in means.items() if arm.endswith(BASE)},
    )


def figure(rows: Mapping[str, Values]) -> Figure:
    """How every seed ends; curves would not show the bases."""
    return draw_ends(titled(CONFIG, rows))


EXPERIMENT = replace(
    compare_arms("size", "Does a small model that is trained beat one ten times larger that is not?", learning_curve_of_size),
    headline=headline,
    figure=figure,
)
