"""The output folder of a run: where its files are, and which run owns it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from msgrpo_hub.errors import UserError
from msgrpo_hub.storage.files import disk_errors, write_atomically
from msgrpo_hub.training.config import TrainConfig, stored_config, to_toml

RESUMABLE_FIELDS = ("report_to", "threads", "max_rows", "token_budget", "gradient_checkpointing", "device")
"""Fields that may change when a run resumes."""

_TORN = re.compile(r"\.tmp[A-Za-z0-9]{6}")
"""The name under which safetensors writes a file before it has its own."""


SEED = re.compile(r"seed-(\d+)")
"""The name of the folder of one seed's run, in the folder of a set."""


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run, all below `path`."""

    path: Path

    config = property(lambda self: self.path / "config.toml")
    provenance = property(lambda self: self.path / "provenance.json")
    metrics = property(lambda self: self.path / "metrics.jsonl")
    acting = property(lambda self: self.path / ".acting.new")  # removed with all that a killed run leaves
    rollouts = property(lambda self: self.path / "rollouts")
    checkpoint = property(lambda self: self.path / "checkpoint.safetensors")
    adapter = property(lambda self: self.path / "adapter")
    best = property(lambda self: self.path / "best")
    curves = property(lambda self: self.path / "curves.png")
    replay = property(lambda self: self.path / "replay.svg")
    test_episodes = property(lambda self: self.path / "test_episodes.parquet")
    summary = property(lambda self: self.path / "summary.json")

    def check(self, config: TrainConfig, resume: bool) -> None:
        """Checks that a run can use the folder. Nothing is written yet.

        Raises:
            UserError: it holds another run, or cannot be written.
        """
        self.check_run(config, resume)
        self.check_writable()

    def check_writable(self) -> None:
        """Makes the folder if it is missing. Raises `UserError` if it cannot be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise UserError(
                f"cannot write to the output folder {str(self.path)!r} ({error.strerror}): expected a writable folder, "
                "name another --output-dir"
            ) from error

    def check_run(self, config: TrainConfig, resume: bool) -> None:
        """Checks that the folder holds nothing, or the same run to be resumed. Raises `UserError` otherwise."""
        seeds = [path.parent.name for path in sorted(self.path.glob("seed-*/config.toml")) if SEED.fullmatch(path.parent.name)]
        if seeds:
            raise UserError(
                f"{str(self.path)!r} holds a run with several seeds ({', '.join(seeds[:3])}): name them with --seeds, or another "
                "--output-dir"
            )
        if self.config.exists():
            if not resume:
                raise UserError(
                    f"{str(self.path)!r} already holds a run: continue it with --resume, or name another --output-dir"
                )
            self._check_same(config)
        elif (foreign := [p.name for p in (self.metrics, self.checkpoint, self.summary) if p.exists()]) != []:
            raise UserError(f"{str(self.path)!r} holds {foreign[0]} but no config.toml: name an empty or a new --output-dir")

    def claim(self, config: TrainConfig) -> None:
        """Removes what a killed run left half-written, and writes the configuration. The folder now belongs to this run."""
        if not self.config.exists():
            write_atomically(self.config, lambda beside: beside.write_text(to_toml(config), encoding="utf-8"))
            return
        for left in self._half_written():
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink(missing_ok=True)

    def _half_written(self) -> list[Path]:
        """What a killed run leaves: the names beside those of its files, and safetensors'. Others may lie in the folder too."""
        own = [getattr(self, name) for name, kind in vars(RunFolder).items() if isinstance(kind, property)]
        beside = [path.with_name(f".{path.name}.new") for path in own]
        folders = (self.adapter, self.best, self.rollouts)
        inside = [left for folder in folders for left in folder.rglob(".*.new")]
        torn = [path for folder in (self.path, *folders) for path in folder.glob(".tmp*") if _TORN.fullmatch(path.name)]
        return [self.acting, *(path for path in (*beside, *inside, *torn) if path.exists())]

    def disk_errors(self) -> AbstractContextManager[None]:
        """Turns a disk that is full, read-only or gone into a `UserError` that says how many updates are safe."""
        return disk_errors(self.path, lambda: f"{self.updates()} updates are safe there", again="continue with --resume")

    def updates(self) -> int:
        """The number of updates in the checkpoint; later ones are played again. Raises `UserError` if it cannot be read."""
        if not self.checkpoint.exists():
            return 0
        try:
            with safe_open(self.checkpoint, framework="np") as file:
                return int(json.loads(file.metadata()["progress"])["updates"])
        except (OSError, SafetensorError, TypeError, KeyError, ValueError) as error:  # the last three: not a checkpoint of ours
            raise UserError(
                f"the checkpoint {str(self.checkpoint)!r} cannot be read ({error}): delete it to start again, "
                "or name another folder"
            ) from error

    def _check_same(self, config: TrainConfig) -> None:
        stored = stored_config(self.config)
        for name, value in fixed_fields(config).items():
            if getattr(stored, name) != value:
                raise UserError(
                    f"{str(self.path)!r} holds a run with {name} = {getattr(stored, name)!r}, not {value!r}: "
                    "resume with the same configuration, or name another --output-dir"
                )


def fixed_fields(config: TrainConfig) -> dict[str, Any]:
    """The fields that may not change when a run resumes, with their values."""
    return {name: value for name, value in asdict(config).items() if name not in RESUMABLE_FIELDS}


def fingerprint(config: TrainConfig) -> str:
    """Identifies the run that a checkpoint belongs to."""
    return hashlib.sha256(repr(sorted(fixed_fields(config).items())).encode()).hexdigest()
