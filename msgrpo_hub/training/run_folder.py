"""The output folder of a run: its files, its lock, which run it holds, and its checkpoint."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from msgrpo_hub.errors import UserError
from msgrpo_hub.storage.files import disk_errors, hold, write_atomically
from msgrpo_hub.storage.run_files import LOCK
from msgrpo_hub.training.config import stored_config

SEED = re.compile(r"seed-(\d+)")
"""Name of the folder of one seed's run within the folder of several seeds."""

_TORN = re.compile(r"\.tmp[A-Za-z0-9]{6}")
"""Temporary names of safetensors."""


class RunFolder:
    """Paths of a run, all below `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.provenance = path / "provenance.json"
        self.metrics = path / "metrics.jsonl"
        self.rollouts = path / "rollouts"
        self.checkpoint = path / "checkpoint.safetensors"
        self.adapter = path / "adapter"
        self.best = path / "best"
        self.curves = path / "curves.png"
        self.replay = path / "replay.svg"
        self.video = path / "replay.mp4"
        self.gif = path / "replay.gif"
        self.test_episodes = path / "test_episodes.parquet"
        self.summary = path / "summary.json"
        self.acting = path / ".acting.new"
        self.testing = path / ".testing"

    def check(self, fields: Mapping[str, Any], resume: bool) -> None:
        """Creates the folder if needed. Raises `UserError` unless it is writable and empty, or with `resume` has the same run."""
        where = repr(str(self.path))
        if seeds := seed_folders(self.path):
            names = ", ".join(path.name for path in seeds[:3])
            raise UserError(f"{where} holds a run with several seeds ({names}): add --seeds, or name another --output-dir")
        if self.config.exists():
            if not resume:
                raise UserError(f"{where} already holds a run: continue it with --resume, or name another --output-dir")
            stored = stored_config(self.config)
            for name, value in fields.items():
                if (began := getattr(stored, name)) != value:
                    remedy = "resume with the same configuration, or name another --output-dir"
                    raise UserError(f"{where} holds a run with {name} = {began!r}, not {value!r}: {remedy}")
        elif foreign := [path.name for path in (self.metrics, self.checkpoint, self.summary) if path.exists()]:
            raise UserError(f"{where} holds {foreign[0]} but no config.toml: name an empty or a new --output-dir")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            why = f"cannot write to the output folder {where} ({error.strerror})"
            raise UserError(f"{why}: expected a writable folder, name another --output-dir") from error

    def claim(self, config: str) -> None:
        """Writes the configuration, given as TOML, or deletes the temporary files of a killed run."""
        if not self.config.exists():
            write_atomically(self.config, lambda beside: beside.write_text(config, encoding="utf-8"))
            return
        folders = (self.adapter, self.best, self.rollouts)
        left = [self.acting, *(path.with_name(f".{path.name}.new") for path in vars(self).values() if path != self.path)]
        left += [path for folder in folders for path in folder.rglob(".*.new")]
        left += [path for folder in (self.path, *folders) for path in folder.glob(".tmp*") if _TORN.fullmatch(path.name)]
        for path in left:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def updates(self) -> int:
        """The number of updates in the checkpoint. Raises `UserError` if it cannot be read."""
        if not self.checkpoint.exists():
            return 0
        try:
            with safe_open(self.checkpoint, framework="np") as file:
                return int(json.loads(file.metadata()[FORMAT])["progress"]["updates"])
        except (OSError, SafetensorError, TypeError, KeyError, ValueError) as error:  # the last three: another kind of file
            why = f"the checkpoint {str(self.checkpoint)!r} cannot be read ({error})"
            raise UserError(f"{why}: delete it to start again, or name another folder") from error

    def disk_errors(self) -> AbstractContextManager[None]:
        """Turns a full, read-only or missing disk into a `UserError` that says how many updates are saved."""
        return disk_errors(self.path, lambda: f"{self.updates()} updates are safe there", again="continue with --resume")


def seed_folders(folder: Path) -> list[Path]:
    """The runs in the folder of several seeds, `seed-0` and so on, by seed."""
    found = [path for path in folder.glob("seed-*") if SEED.fullmatch(path.name) and (path / "config.toml").exists()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("seed-")))


@contextmanager
def locked(folder: Path, made: Sequence[Path] = ()) -> Iterator[None]:
    """Holds the lock of a run folder, or raises `UserError` if another process trains there. Removes empty folders it `made`."""
    busy = f"{str(folder)!r} is in use by another process: wait until that training ends, or name another --output-dir"
    try:
        with hold(folder / LOCK, busy):
            yield
    finally:
        with suppress(OSError):  # the folder is gone
            if made and [path.name for path in folder.iterdir()] == [LOCK]:
                (folder / LOCK).unlink()
                for path in made:
                    path.rmdir()


# ---- the checkpoint

FORMAT = "msgrpo_hub-checkpoint-1"  # the only key of the metadata, since safetensors writes several in any order


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run."""

    updates: int = 0
    best_update: int = 0
    best_reward: float = float("-inf")
    best_weights: Mapping[str, Tensor] = field(default_factory=dict)
    """The adapter of the best update by name; empty in a run that keeps the last."""


def save_checkpoint(
    path: Path,
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    run: str,
    credit: Mapping[str, Tensor] = MappingProxyType({}),
) -> None:
    """Writes the state of a run with this fingerprint atomically; random streams follow from (seed, update) and are not saved."""
    parts: dict[str, Mapping[str, Tensor]] = {"weight": parameters, "credit": credit, "best": progress.best_weights}
    tensors = {f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
    for name, parameter in parameters.items():
        tensors |= {f"{key}/{name}": value for key, value in optimizer.state.get(parameter, {}).items()}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    state = {name: getattr(progress, name) for name in ("updates", "best_update", "best_reward")}
    metadata: dict[str, Any] = {"run": run, "progress": state}
    metadata["digest"] = digest_of(metadata, tensors)
    write_atomically(path, lambda beside: save_file(tensors, beside, {FORMAT: json.dumps(metadata)}))


def load_checkpoint(
    path: Path, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, run: str
) -> tuple[Progress, dict[str, Tensor]]:
    """Loads a checkpoint. Returns progress and credit's state. Raises `UserError` if it is damaged or of another run."""
    given, remedy = f"cannot load the checkpoint {str(path)!r}", "delete it to start again, or name another folder"
    try:
        with safe_open(path, framework="pt") as file:
            metadata = json.loads(file.metadata()[FORMAT])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:  # the last three: other metadata
        raise UserError(f"{given}: it cannot be read ({error}); {remedy}") from error
    if metadata.pop("digest", "") != digest_of(metadata, tensors):
        raise UserError(f"{given}: its checksum is wrong, so it is damaged or of another version; {remedy}")
    parts: dict[str, dict[str, Tensor]] = {"weight": {}, "credit": {}, "best": {}}
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = tensor
    weights, credit, best = (parts.pop(part) for part in ("weight", "credit", "best"))
    if metadata["run"] != run or weights.keys() != parameters.keys():
        raise UserError(f"{given}: it belongs to a run with another configuration; {remedy}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
            moments = {key: values[name].clone() for key, values in parts.items() if name in values}
            if moments:  # AdamW keeps its step counter on the CPU
                optimizer.state[parameter] = {k: v if k == "step" else v.to(parameter.device) for k, v in moments.items()}
    return Progress(**metadata["progress"], best_weights=best), credit


def digest_of(metadata: Mapping[str, object], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
