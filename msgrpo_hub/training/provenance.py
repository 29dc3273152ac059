"""provenance.json: the sources, versions, hardware and numeric settings of a run, fixed at its start.

With another number of threads, another split into batches or another version of torch, sums round differently. Sooner or
later a sampled token differs, and so does the adapter. A resumed run therefore keeps these settings.
"""

from __future__ import annotations

import logging
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from msgrpo_hub import __version__
from msgrpo_hub.downloads.fetching import commit_of, resolve
from msgrpo_hub.downloads.names import located, split_revision
from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import Count, misfit
from msgrpo_hub.models.devices import default_threads, free_cores
from msgrpo_hub.storage.files import read_json, write_json
from msgrpo_hub.training.config import TrainConfig

log = logging.getLogger(__name__)

_PACKAGES = ("torch", "transformers", "peft")


def read_provenance(path: Path) -> dict[str, Any]:
    """The record of a run; empty for a new run. Raises `UserError` if it is damaged."""
    if not path.exists():
        return {}
    expected = "the record that the run wrote; restore it, or name another --output-dir"
    values = read_json(path, expected)
    began = values.get("rounding", {})
    if not isinstance(values.get("base_commit"), str) or not isinstance(began, dict) or misfit(began.get("threads", 1), Count):
        raise UserError(f"{str(path)!r} is damaged: expected {expected}")
    return values


def pin_sources(config: TrainConfig, began: Mapping[str, Any]) -> tuple[TrainConfig, dict[str, str]]:
    """Pins the base and the initial adapter of a run to commits.

    Args:
        config: of the run; its base and adapter may be branches, which can move.
        began: the record of a run that resumes; it continues with the same sources.

    Returns:
        The configuration with pinned names, and for the record: `base_commit` (of a folder, the hash of its content),
        `init_adapter_commit` and `chat_template_hash`, empty if there is none.

    Raises:
        UserError: the base is an adapter, or a source cannot be found, or is a folder that has changed since the run started.
    """

    def pinned(kind: str, key: str, given: str, source: str, now: str) -> tuple[str, str]:
        before = began.get(key, "")
        if not Path(source).is_dir():
            return f"{source}@{before or now}", before or now
        if before not in ("", now):
            raise UserError(f"the {kind} {given!r} has changed since the run began: put it back, or name another --output-dir")
        return given, now

    sources = resolve(config.model)
    if sources.adapter:
        raise UserError(
            f"model = {config.model!r} is a LoRA adapter: expected a base model; to train an adapter further, give its base, "
            f"and --init-adapter {config.model}"
        )
    model, commit = pinned("base", "base_commit", config.model, sources.base, sources.base_commit)
    adapter, adapter_commit = config.init_adapter, ""
    if adapter:
        name, revision = split_revision(adapter, None)
        source = located(name)
        adapter, adapter_commit = pinned("adapter", "init_adapter_commit", adapter, source, commit_of(source, revision))
    template = Path(config.chat_template)
    digest = sha256(template.read_bytes()).hexdigest() if config.chat_template and template.is_file() else ""
    if began.get("chat_template_hash", digest) != digest:
        raise UserError(
            f"the chat template {config.chat_template!r} has changed since the run began: put it back, or name another "
            "--output-dir"
        )
    record = {"base_commit": commit, "init_adapter_commit": adapter_commit, "chat_template_hash": digest}
    return replace(config, model=model, init_adapter=adapter), record


def choose_threads(wanted: int, began: Mapping[str, Any], parameters: int) -> None:
    """Sets the CPU threads of torch: the number given, else the run's own, else the default for a model of this size.

    A new run of a large model takes the free cores, unless OMP_NUM_THREADS is set.
    """
    threads = wanted or began.get("rounding", {}).get("threads") or default_threads(parameters)
    if not threads and "OMP_NUM_THREADS" not in os.environ:
        most, threads = torch.get_num_threads(), free_cores()
        log.warning("computing on %d of %d threads, by the cores that are free; --threads N decides otherwise", threads, most)
    if threads:
        torch.set_num_threads(threads)


def record(path: Path, sources: Mapping[str, str], device: str, engine: str, settings: Mapping[str, Any], accept: bool) -> None:
    """Writes the record of a new run, or compares the numeric settings of a resumed run with its record.

    Args:
        path: of the record.
        sources: from `pin_sources`.
        device: the kind of the training device, such as `cpu` or `cuda`.
        engine: the engine of the model (see `LanguageModel.chosen_engine`).
        settings: the other settings that decide rounding.
        accept: whether a resumed run may have other settings; the record then lists the changes.

    Raises:
        UserError: the settings differ and are not accepted.
    """
    versions = {name: version(name) for name in _PACKAGES}
    now = {"threads": torch.get_num_threads(), **settings, "device": device, "engine": engine, **versions}
    if not path.exists():
        all_versions = {"msgrpo_hub": __version__, "Python": platform.python_version(), **versions}
        machine = {"device": device, "hardware": hardware(device), "engine": engine, "versions": all_versions}
        write_json(path, {**sources, **machine, "rounding": now}, sort_keys=False)
        return
    values = read_provenance(path)
    began = values.get("rounding", {})
    changed = {name: [began[name], value] for name, value in now.items() if began.get(name, value) != value}
    if not changed:
        return
    if not accept:
        name, (before, after) = next(iter(changed.items()))
        raise UserError(
            f"the run began with {name} = {before!r} and would go on with {after!r}: expected the same, or its adapter is not "
            "that of an uninterrupted run; accept that with --accept-rounding"
        )
    values["resumed_otherwise"] = [*values.get("resumed_otherwise", []), changed]
    write_json(path, {**values, "rounding": {**began, **now}}, sort_keys=False)


def hardware(device: str) -> str:
    """The name of the GPU if the device is one with a name, else of the processor, in plain characters."""
    if device in ("cuda", "xpu"):
        name = torch.get_device_module(device).get_device_name()
    else:
        file = Path("/proc/cpuinfo")
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
        name = found[1] if found else platform.processor() or platform.machine()
    return " ".join(re.sub(r"[^A-Za-z0-9 .,()@+-]", " ", name).split())
