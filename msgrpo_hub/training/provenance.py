"""Where a run comes from: the commit of its base, the machine, the versions. Written beside it before the first update."""

from __future__ import annotations

import json
import platform
import re
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

import torch

from msgrpo_hub import __version__
from msgrpo_hub.downloads.sources import resolve
from msgrpo_hub.errors import UserError
from msgrpo_hub.storage.files import write_atomically
from msgrpo_hub.training.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What a model card tells of a run, beside its configuration."""

    base_commit: str
    """Of a base on the Hub its commit, of a folder the hash of its content."""
    hardware: str
    versions: dict[str, str]


def pin_base(config: TrainConfig, path: Path) -> tuple[TrainConfig, Provenance]:
    """The configuration with its base pinned to a commit, and what is to be recorded.

    Args:
        config: of the run; its base may be a branch, which can move.
        path: the record of a run that goes on, if there is one: it goes on with the base that it began with.

    Raises:
        UserError: the base is an adapter, cannot be found, or is a folder that has changed since the run began.
    """
    began = json.loads(path.read_text())["base_commit"] if path.exists() else ""
    sources = resolve(config.model)
    if sources.adapter:
        raise UserError(f"model = {config.model!r} is a LoRA adapter: expected a base model, since training makes a new adapter")
    local = Path(sources.base).is_dir()
    if local and began not in ("", sources.base_commit):
        raise UserError(f"the base {config.model!r} has changed since the run began: put it back, or name another --output-dir")
    commit = began or sources.base_commit
    pinned = config if local else replace(config, model=f"{sources.base}@{commit}")
    return pinned, Provenance(base_commit=commit, hardware=hardware(), versions=versions())


def record(provenance: Provenance, path: Path) -> None:
    """Writes it as JSON, at once."""
    write_atomically(path, lambda beside: beside.write_text(json.dumps(asdict(provenance), indent=2) + "\n"))


def versions() -> dict[str, str]:
    """Of Python and the packages that decide the weights."""
    packages = {name: version(name) for name in ("torch", "transformers", "peft")}
    return {"msgrpo_hub": __version__, "Python": platform.python_version(), **packages}


def hardware() -> str:
    """The name of the GPU or else of the processor, in plain characters."""
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
    else:
        told = Path("/proc/cpuinfo")
        found = re.search(r"^model name\s*: (.+)$", told.read_text(), re.MULTILINE) if told.exists() else None
        name = found[1] if found else platform.processor() or platform.machine()
    return " ".join(re.sub(r"[^A-Za-z0-9 .,()@+-]", " ", name).split())
