"""What decides the rounding of a run: fixed when it starts, so that a resumed run is the same run to the last bit.

With another number of threads, another split into batches or another version of torch, sums are added in another order. Their
last digits differ, sooner or later a draw turns, and the adapter is another one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import Count, misfit
from msgrpo_hub.models.devices import default_threads, free_cores
from msgrpo_hub.storage.files import read_json, write_json
from msgrpo_hub.training.config import TrainConfig

ROUNDING = "rounding"
"""Key of these settings in provenance.json."""
RESUMED = "resumed_otherwise"
"""Key of the accepted changes in provenance.json: for each such resume, setting → [before, after]."""

log = logging.getLogger(__name__)

_FIELDS = ("max_rows", "token_budget", "gradient_checkpointing")
_PACKAGES = ("torch", "transformers", "peft")


def rounding(config: TrainConfig, processes: int, device: str, engine: str, acting: str = "engine") -> dict[str, Any]:
    """Setting → its value in this process: threads, processes, device, engine, who acts, versions, fields of the config."""
    here = {"threads": torch.get_num_threads(), "processes": processes, "device": device, "engine": engine, "acting": acting}
    return here | {name: getattr(config, name) for name in _FIELDS} | {name: version(name) for name in _PACKAGES}


def choose_threads(config: TrainConfig, provenance: Path, parameters: int) -> None:
    """Sets the CPU threads of torch: those given, else those that the run began with, else those for a model of its size.

    A new run of a large model takes the cores that are free, unless OMP_NUM_THREADS is set.
    """
    threads = config.threads or _began(provenance).get("threads") or default_threads(parameters)
    if not threads and "OMP_NUM_THREADS" not in os.environ:
        most, threads = torch.get_num_threads(), free_cores()
        log.warning("computing on %d of %d threads, by the cores that are free; --threads N decides otherwise", threads, most)
    if threads:
        torch.set_num_threads(threads)


def check_rounding(now: Mapping[str, Any], provenance: Path, accept: bool) -> None:
    """Compares these settings with those that a run began with.

    Args:
        now: of this process.
        provenance: the record of the run.
        accept: whether other settings are accepted; they are then recorded.

    Raises:
        UserError: they differ and are not accepted.
    """
    began = _began(provenance)
    changed = {name: [began[name], value] for name, value in now.items() if began.get(name, value) != value}
    if not changed:
        return
    if not accept:
        name, (before, after) = next(iter(changed.items()))
        raise UserError(
            f"the run began with {name} = {before!r} and would go on with {after!r}: expected the same, or its adapter is not "
            "that of an uninterrupted run; accept that with --accept-rounding"
        )
    record = read_provenance(provenance)
    record[RESUMED] = [*record.get(RESUMED, []), changed]
    record[ROUNDING] = {**began, **now}
    write_json(provenance, record, sort_keys=False)


def _began(provenance: Path) -> dict[str, Any]:
    """The settings that a run began with; empty for a new run, and for one of before they were recorded."""
    return dict(read_provenance(provenance).get(ROUNDING, {}))


def read_provenance(path: Path) -> dict[str, Any]:
    """The record of where a run comes from; empty for a new run. Raises `UserError` if it is damaged."""
    if not path.exists():
        return {}
    expected = "what the run wrote there; put it back, or name another --output-dir"
    values = read_json(path, expected)
    began = values.get(ROUNDING, {})
    if not isinstance(values.get("base_commit"), str) or not isinstance(began, dict) or misfit(began.get("threads", 1), Count):
        raise UserError(f"{str(path)!r} is damaged: expected {expected}")
    return values
