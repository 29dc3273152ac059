"""Trains one configuration with several seeds, one after another or several at once, each in a process and a folder of its own.

A set of seeds is resumed as a single run is: finished seeds are not run again, and interrupted ones continue bit for bit.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from tqdm import tqdm

from msgrpo_hub.downloads.names import exists
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.loading import hide_progress_bars
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

_SPAWN = get_context("spawn")
"""A new process for each seed has the memory, the threads and the random streams of a run alone."""


def train_seeds(
    config: TrainConfig,
    output_dir: Path,
    seeds: Sequence[int],
    *,
    parallel: int = 1,
    acting: str = "engine",
    resume: bool = False,
    accept_rounding: bool = False,
    show_progress: bool = True,
) -> Variant:
    """Trains a configuration with several seeds and sums them up.

    A program that calls this needs `if __name__ == "__main__":` around it, since every seed has a new process.

    Args:
        config: of all runs; its own seed counts for nothing.
        output_dir: gets one folder per seed, `seed-0` and so on, with what `train` writes; seeds.json and curves.png.
        seeds: the training seeds, each once.
        parallel: how many train at once. Without `config.threads`, each new run gets its part of the machine's threads.
        acting: as of `train`.
        resume: go on with a set that is there: train what is missing.
        accept_rounding: as of `train`.
        show_progress: draw one progress bar for all updates on standard error.

    Returns:
        All runs of the set, also those of other seeds that it had before.

    Raises:
        UserError: the folder holds other runs or is in use, or a seed failed; the other seeds are trained all the same, unless
            it failed before its first update.
    """
    actor_of(acting, output_dir)  # a wrong name fails here, not in every process
    runs = SeedSet(folder=output_dir, configs={seed: replace(config, seed=seed) for seed in seeds}, acting=acting)
    made = [output_dir] * (not exists(output_dir))
    runs.check(resume)
    with locked(output_dir, made):
        return _train_set(runs, config, parallel, accept_rounding, show_progress)


def _train_set(runs: SeedSet, config: TrainConfig, parallel: int, accept_rounding: bool, show_progress: bool) -> Variant:
    """Trains the seeds of a set that are not finished, and sums it up."""
    seeds = [*runs.configs]
    waiting = [seed for seed in seeds if seed not in runs.finished]
    tqdm.set_lock(threading.RLock())
    done, total = sum(map(runs.updates, seeds)), config.updates * len(seeds)
    bar = tqdm(total=total, initial=done, desc="training", unit="update", disable=not show_progress)
    with bar, _part_of_the_threads(config, parallel), runs.stopped_at_the_end():
        while waiting or runs.running:
            while waiting and len(runs.running) < parallel:
                runs.start(waiting.pop(0), accept_rounding)
            wait([process.sentinel for process, _ in runs.running.values()], timeout=1)
            if runs.collect():
                write_summary(runs.folder)
            bar.update(sum(map(runs.updates, seeds)) - bar.n)
            bar.set_postfix_str(f"{len(runs.finished)} of {len(seeds)} seeds finished")
    if runs.failed:
        raise runs.failure()
    return write_summary(runs.folder)


def write_summary(folder: Path) -> Variant:
    """Writes seeds.json and curves.png over the runs of a set, whether finished or not."""
    [variant] = find_variants(filter(is_run, set_folders(folder)))
    with disk_errors(folder, lambda: "the runs themselves are safe there"):
        write_json(folder / SUMMARY, data_of(variant), sort_keys=False)
        lines = [seed_lines(variant, "updates")]
        if has_curves(lines):
            write_atomically(folder / CURVES, lambda beside: plot_seed_curves(lines, beside, x_label="updates"))
    return variant


@dataclass(kw_only=True)
class SeedSet:
    """The runs of a set, and the processes that train them."""

    folder: Path
    configs: Mapping[int, TrainConfig]
    """By seed."""
    acting: str = "engine"
    """Who plays the episodes of updates."""
    running: dict[int, tuple[SpawnProcess, Connection]] = field(default_factory=dict)
    """By seed, its process, and where that says why it failed."""
    failed: dict[int, str] = field(default_factory=dict)
    """By seed, why."""

    def of(self, seed: int) -> RunFolder:
        return RunFolder(self.folder / f"seed-{seed}")

    def updates(self, seed: int) -> int:
        """How many updates of a seed are safe."""
        return self.of(seed).updates()

    @property
    def finished(self) -> list[int]:
        return [seed for seed in self.configs if self.of(seed).summary.exists()]

    def check(self, resume: bool) -> None:
        """Checks, before anything is written, that the folder can hold the set: its runs differ in their seed alone."""
        if os.environ.get("WORLD_SIZE", "1") != "1":
            raise UserError("several seeds under a launcher such as torchrun: expected one process; each seed gets its own")
        if RunFolder(self.folder).config.exists():
            raise UserError(f"{str(self.folder)!r} holds a run of one seed: name another --output-dir for several")
        for seed, config in self.configs.items():
            self.of(seed).check_run(config, resume)
        for path in set_folders(self.folder):  # also those of other seeds
            seed = int(path.name.removeprefix("seed-"))
            RunFolder(path).check_run(replace(next(iter(self.configs.values())), seed=seed), resume=True)
        RunFolder(self.folder).check_writable()

    def start(self, seed: int, accept_rounding: bool) -> None:
        """Starts the process of a seed. Ctrl-C does not reach it: the process that started it ends it."""
        said, saying = _SPAWN.Pipe(duplex=False)
        arguments = (self.configs[seed], self.of(seed).path, self.acting, accept_rounding, saying)
        process = _SPAWN.Process(target=_train, args=arguments, name=f"seed {seed}")
        with _ctrl_c_ignored():
            process.start()
        saying.close()
        self.running[seed] = process, said

    def collect(self) -> list[int]:
        """The seeds whose processes have ended since. Raises `UserError` if a process failed before its first update."""
        ended = [seed for seed, (process, _) in self.running.items() if not process.is_alive()]
        for seed in ended:
            process, said = self.running.pop(seed)
            if process.exitcode:
                self.failed[seed] = _last_words(said) or f"its process ended with status {process.exitcode}"
                if not self.updates(seed):
                    raise self.failure()
        return ended

    def failure(self) -> UserError:
        seed, why = next(iter(self.failed.items()))
        more = f"; {len(self.failed) - 1} more failed" if len(self.failed) > 1 else ""
        return UserError(f"seed {seed} failed: {why}{more}; {self.state()}")

    def state(self) -> str:
        """What is finished, and what to do."""
        begun = {seed: self.updates(seed) for seed in self.configs if seed not in self.finished}
        rest = [
            f"seed {seed} has {updates} of {self.configs[seed].updates} updates" for seed, updates in begun.items() if updates
        ]
        done = f"{len(self.finished)} of {len(self.configs)} seeds are finished"
        return "; ".join([done, *rest, "continue with --resume"])

    @contextmanager
    def stopped_at_the_end(self) -> Iterator[None]:
        """Ends the processes with the block. An interruption says what is finished."""
        try:
            yield
        except KeyboardInterrupt as end:
            self.stop()
            end.add_note(self.state())
            raise
        finally:
            self.stop()

    def stop(self) -> None:
        """Ends the processes that run; a run may be killed at any moment."""
        for process, _ in self.running.values():
            process.kill()
        for process, _ in self.running.values():
            process.join()
        self.running.clear()


def _train(config: TrainConfig, folder: Path, acting: str, accept_rounding: bool, saying: Connection) -> None:
    """What the process of a seed does."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tqdm.set_lock(threading.RLock())  # its own is a semaphore of the system, which a killed process leaves behind
    warnings.filterwarnings("ignore", category=FutureWarning)
    hide_progress_bars()
    try:
        train(config, folder, acting=acting, resume=True, accept_rounding=accept_rounding, show_progress=False)
    except UserError as error:
        saying.send(str(error))
        sys.exit(2)


def _end_with_parent() -> None:
    """Ends this process when the one that started it is gone, so that the set can be resumed at once."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _last_words(said: Connection) -> str:
    """Why a process failed, if it could say it."""
    with suppress(EOFError):
        return str(said.recv()) if said.poll() else ""
    return ""


@contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """Processes that are started meanwhile ignore Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    with suppress(ValueError):  # only the main thread may set a handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        with suppress(ValueError):
            signal.signal(signal.SIGINT, before)


@contextmanager
def _part_of_the_threads(config: TrainConfig, parallel: int) -> Iterator[None]:
    """New runs that share the machine take their part of its threads, unless somebody has said how many."""
    name = "OMP_NUM_THREADS"
    if parallel == 1 or config.threads or name in os.environ:
        yield
        return
    os.environ[name] = str(max(1, (os.cpu_count() or 1) // parallel))
    try:
        yield
    finally:
        del os.environ[name]
