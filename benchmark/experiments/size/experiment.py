"""Does a small model that is trained beat one ten times larger that is not? Bases of three sizes, made by one script."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from filelock import FileLock
from matplotlib.figure import Figure

from benchmark.experiments.arms import Comparison
from benchmark.experiments.differences import headline, means_of, with_interval
from benchmark.experiments.experiment import Settings, Values
from benchmark.experiments.figures import draw_ends
from benchmark.experiments.training import learning_curve
from benchmark.pocket.build import BuildConfig, make_base
from msgrpo_hub.evaluation.statistics import FEWEST_SEEDS, method_interval
from msgrpo_hub.training.config import preset

BASE = ", the base"
"""The ending of the names of untrained arms."""


class Size(Comparison):
    """Units first build their base, of some `width` and number of `layers`, unless another unit has built it."""

    def run(self, settings: Settings) -> Values:
        fields = dict(settings["settings"])
        built = {"width": fields.pop("width"), "layers": fields.pop("layers"), **fields.pop("build")}
        folder = self.scratch / "-".join(f"{name}-{value}" for name, value in built.items())
        with FileLock(f"{folder}.lock"):
            make_base(BuildConfig(output_dir=folder, threads=torch.get_num_threads(), **built))
        return learning_curve({**settings, "settings": {**fields, "model": str(folder)}})

    def headline(self, rows: Mapping[str, Values]) -> str:
        found = self.arms(rows)
        trained = {arm: list(means_of(seeds).values()) for arm, seeds in found.items() if not arm.endswith(BASE)}
        untrained = {arm: next(iter(means_of(seeds).values())) for arm, seeds in found.items() if arm.endswith(BASE)}
        largest, *_, smallest = self.config["arm"]
        if largest not in untrained or len(trained.get(smallest, ())) < FEWEST_SEEDS:
            return ""
        interval = method_interval(trained[smallest])
        assert interval
        said = "Yes" if interval.low > untrained[largest] else "No" if interval.high < untrained[largest] else "Unclear"
        game = preset("quickstart").game
        ends = ", ".join(f"{name} {with_interval(of_seeds, '.2f', game)}" for name, of_seeds in trained.items())
        bases = ", ".join(f"{name.removesuffix(BASE)} {mean:.2f}" for name, mean in untrained.items())
        between = headline({arm: found[arm] for arm in trained})
        compared = f" Among the trained ones: {between}" if between else ""
        return (
            f"{said}. Trained on the dry lake by `quickstart` for {self.config['updates']['quickstart']} updates: {ends}, over"
            f" training seeds. Before: {bases}: the pretraining documents teach the bases to read boards and to move at random,"
            f" so that a larger base plays no better before it is trained.{compared} These bases are made in few steps, from"
            " documents about lakes only."
        )

    def figure(self, rows: Mapping[str, Values]) -> Figure:
        return draw_ends(self.titled(rows))  # learning curves would not show the bases


EXPERIMENT = Size("size", "Does a small model that is trained beat one ten times larger that is not?")
