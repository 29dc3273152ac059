"""Does a small model that is trained beat one ten times larger that is not? Bases of three sizes, made by one script."""

from __future__ import annotations

from pathlib import Path

import torch
from filelock import FileLock

from benchmark.experiments.arms import compare_arms
from benchmark.experiments.experiment import Settings, Values
from benchmark.experiments.training import learning_curve
from msgrpo_hub.pocket.build import BuildConfig, make_base


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


EXPERIMENT = compare_arms(
    "size", "Does a small model that is trained beat one ten times larger that is not?", learning_curve_of_size
)
