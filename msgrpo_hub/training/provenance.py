"""Where a run comes from: the commit of its base, the machine, the versions. Written beside it before the first update."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from msgrpo_hub import __version__
from msgrpo_hub.downloads.names import located, split_revision
from msgrpo_hub.downloads.sources import commit_of, resolve
from msgrpo_hub.errors import UserError
from msgrpo_hub.storage.files import write_json
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.rounding import ROUNDING, read_provenance


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What a model card tells of a run, beside its configuration."""

    base_commit: str
    """Of a base on the Hub its commit, of a folder the hash of its content."""
    init_adapter_commit: str = ""
    """The same of the adapter that the run began with, if it began with one."""
    chat_template_hash: str = ""
    """SHA-256 of the file of `chat_template`, if the run has one."""
    device: str = ""
    """The kind of the device that trains, such as `cpu` or `cuda`."""
    hardware: str = ""
    """The name of the GPU or the processor."""
    engine: str = ""
    """The engine that was chosen for the model (see `LanguageModel.chosen_engine`)."""
    versions: dict[str, str]


def pin_sources(config: TrainConfig, path: Path) -> tuple[TrainConfig, Provenance]:
    """The configuration with its base and its first adapter pinned to commits, and what is to be recorded.

    Args:
        config: of the run; its base and adapter may be branches, which can move.
        path: the record of a run that resumes, if there is one: it continues with the sources that it began with.

    Raises:
        UserError: the base is an adapter, a source cannot be found, or is a folder that has changed since the run began.
    """
    began = read_provenance(path)
    sources = resolve(config.model)
    if sources.adapter:
        raise UserError(
            f"model = {config.model!r} is a LoRA adapter: expected a base model; to train an adapter further, give its base, "
            f"and --init-adapter {config.model}"
        )
    model, commit = _pinned("base", config.model, sources.base, sources.base_commit, began.get("base_commit", ""))
    pinned, adapter_commit = replace(config, model=model), ""
    if config.init_adapter:
        name, revision = split_revision(config.init_adapter, None)
        source = located(name)
        now = commit_of(source, revision)
        adapter, adapter_commit = _pinned("adapter", config.init_adapter, source, now, began.get("init_adapter_commit", ""))
        pinned = replace(pinned, init_adapter=adapter)
    template = template_hash(config)
    if began.get("chat_template_hash", template) != template:
        raise _changed("chat template", config.chat_template)
    provenance = Provenance(
        base_commit=commit, init_adapter_commit=adapter_commit, chat_template_hash=template, versions=versions()
    )
    return pinned, provenance


def template_hash(config: TrainConfig) -> str:
    """SHA-256 of the file of `chat_template`; empty without one, or if it cannot be read."""
    try:
        return sha256(Path(config.chat_template).read_bytes()).hexdigest() if config.chat_template else ""
    except OSError:
        return ""


def _changed(what: str, given: str) -> UserError:
    return UserError(f"the {what} {given!r} has changed since the run began: put it back, or name another --output-dir")


def _pinned(what: str, given: str, source: str, now: str, began: str) -> tuple[str, str]:
    """The name of a source with its commit, and the commit; of a folder the name as it was given, and the hash."""
    local = Path(source).is_dir()
    if local and began not in ("", now):
        raise _changed(what, given)
    return (given, now) if local else (f"{source}@{began or now}", began or now)


def record(provenance: Provenance, path: Path, device: str, engine: str, rounding: Mapping[str, Any]) -> None:
    """Writes it as JSON, at once, with the device that trains, the engine that was chosen, and all that decides rounding."""
    values = asdict(replace(provenance, device=device, hardware=hardware(device), engine=engine)) | {ROUNDING: dict(rounding)}
    write_json(path, values, sort_keys=False)


def versions() -> dict[str, str]:
    """Of Python and the packages that decide the weights."""
    packages = {name: version(name) for name in ("torch", "transformers", "peft")}
    return {"msgrpo_hub": __version__, "Python": platform.python_version(), **packages}


def hardware(device: str) -> str:
    """The name of the GPU if the device is one with a name, else of the processor, in plain characters."""
    if device in ("cuda", "xpu"):
        name = torch.get_device_module(device).get_device_name()
    else:
        processors = Path("/proc/cpuinfo")
        found = (
            re.search(r"^model name\s*: (.+)$", processors.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
            if processors.exists()
            else None
        )
        name = found[1] if found else platform.processor() or platform.machine()
    return " ".join(re.sub(r"[^A-Za-z0-9 .,()@+-]", " ", name).split())
