"""Trains one configuration with several seeds, one after another, each in a folder of its own.

A set of seeds is resumed as a single run is: finished seeds are not run again, and an interrupted one continues bit for bit.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgrpo_hub.downloads.names import exists
from msgrpo_hub.errors import UserError
from msgrpo_hub.rendering.seed_curves import has_curves, plot_seed_curves
from msgrpo_hub.storage.files import disk_errors, write_atomically, write_json
from msgrpo_hub.training.acting import actor_of
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.run import train
from msgrpo_hub.training.run_folder import RunFolder
from msgrpo_hub.training.run_lock import locked
from msgrpo_hub.training.seed_lines import seed_lines
from msgrpo_hub.training.seed_sets import Variant, data_of, find_variants, is_run, set_folders

SUMMARY, CURVES = "seeds.json", "curves.png"
"""The summary and the curves over the seeds, in the folder of the set."""


def train_seeds(
    config: TrainConfig,
    output_dir: Path,
    seeds: Sequence[int],
    *,
    acting: str = "engine",
    resume: bool = False,
    accept_rounding: bool = False,
    show_progress: bool = True,
) -> Variant:
    """Trains a configuration with several seeds and sums them up.

    Args:
        config: of all runs; its own seed counts for nothing.
        output_dir: gets one folder per seed, `seed-0` and so on, with what `train` writes; seeds.json and curves.png.
        seeds: the training seeds, each once.
        acting: as of `train`.
        resume: go on with a set that is there: train what is missing.
        accept_rounding: as of `train`.
        show_progress: draw a progress bar for every seed on standard error, and name the seeds that are finished.

    Returns:
        All runs of the set, also those of other seeds that it had before.

    Raises:
        UserError: the folder holds other runs or is in use, or a seed failed; finished seeds are safe.
    """
    actor_of(acting, output_dir)  # a wrong name fails before anything is written
    configs = {seed: replace(config, seed=seed) for seed in seeds}
    made = [output_dir] * (not exists(output_dir))
    check_set(output_dir, configs, resume)
    with locked(output_dir, made):
        for number, (seed, own) in enumerate(configs.items(), start=1):
            try:
                folder = output_dir / f"seed-{seed}"
                how = {"acting": acting, "accept_rounding": accept_rounding, "show_progress": show_progress}
                train(own, folder, resume=True, **how)  # type: ignore[arg-type]
            except UserError as error:
                raise UserError(f"seed {seed} failed: {error}; {state_of(output_dir, configs)}") from error
            except KeyboardInterrupt as end:
                end.add_note(state_of(output_dir, configs))
                raise
            gc.collect()  # the next seed needs the memory of this one's model
            variant = write_summary(output_dir)
            if show_progress:
                print(f"seed {seed} is finished, {number} of {len(configs)}", file=sys.stderr)
    return variant


def check_set(folder: Path, configs: Mapping[int, TrainConfig], resume: bool) -> None:
    """Checks, before anything is written, that a folder can hold a set: its runs differ in their seed alone.

    Args:
        folder: of the set.
        configs: by seed.
        resume: whether these runs may have begun.

    Raises:
        UserError: it holds other runs, or cannot be written.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("several seeds under a launcher such as torchrun: expected one process, or one seed")
    if RunFolder(folder).config.exists():
        raise UserError(f"{str(folder)!r} holds a run of one seed: name another --output-dir for several")
    for seed, config in configs.items():
        RunFolder(folder / f"seed-{seed}").check_run(config, resume)
    for path in set_folders(folder):  # also those of other seeds
        seed = int(path.name.removeprefix("seed-"))
        RunFolder(path).check_run(replace(next(iter(configs.values())), seed=seed), resume=True)
    RunFolder(folder).check_writable()


def state_of(folder: Path, configs: Mapping[int, TrainConfig]) -> str:
    """What of a set is finished, and what to do."""
    runs = {seed: RunFolder(folder / f"seed-{seed}") for seed in configs}
    begun = {seed: run.updates() for seed, run in runs.items() if not run.summary.exists()}
    rest = [f"seed {seed} has {updates} of {configs[seed].updates} updates" for seed, updates in begun.items() if updates]
    return "; ".join([f"{len(runs) - len(begun)} of {len(runs)} seeds are finished", *rest, "continue with --resume"])


def write_summary(folder: Path) -> Variant:
    """Writes seeds.json and curves.png over the runs of a set, whether finished or not."""
    [variant] = find_variants(filter(is_run, set_folders(folder)))
    with disk_errors(folder, lambda: "the runs themselves are safe there"):
        write_json(folder / SUMMARY, data_of(variant), sort_keys=False)
        lines = [seed_lines(variant, "updates")]
        if has_curves(lines):
            write_atomically(folder / CURVES, lambda beside: plot_seed_curves(lines, beside, x_label="updates"))
    return variant
