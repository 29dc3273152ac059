"""Checkpoints: one safetensors file, replaced atomically after every update and verified on loading.

It holds the adapter, the moments of AdamW and the state of a learning credit; with `--keep best` also the best weights so
far. An exact resume needs no generator state, because every random stream is a function of (seed, update).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from msgrpo_hub.errors import UserError
from msgrpo_hub.storage.files import write_atomically

FORMAT = "msgrpo_hub-checkpoint-1"


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
    credit: Mapping[str, Tensor] | None = None,
) -> None:
    """Writes adapter weights, optimiser moments and progress.

    Args:
        path: of the file.
        parameters: of the adapter, by name.
        optimizer: AdamW over these parameters.
        progress: of the run.
        run: fingerprint of the configuration.
        credit: the state of a credit that learns.
    """
    tensors = {f"weight/{name}": parameter.detach() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        tensors |= {f"{key}/{name}": value for key, value in optimizer.state.get(parameter, {}).items()}
    tensors |= {f"credit/{name}": value.detach() for name, value in (credit or {}).items()}
    tensors |= {f"best/{name}": value for name, value in progress.best_weights.items()}
    tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    state = {name: getattr(progress, name) for name in ("updates", "best_update", "best_reward")}
    metadata = {"format": FORMAT, "run": run, "progress": json.dumps(state)}
    metadata["digest"] = _digest(metadata, tensors)
    write_atomically(path, lambda beside: save_file(tensors, beside, metadata))


def load_checkpoint(
    path: Path, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, run: str
) -> tuple[Progress, dict[str, Tensor]]:
    """Loads a checkpoint into the parameters and the optimiser.

    Returns:
        The progress of the run, and the state of its credit, empty if the credit does not learn.

    Raises:
        UserError: the file is damaged, of another format, or of another run.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise _refused(path, f"it cannot be read ({error})") from error
    if metadata.get("format") != FORMAT:
        raise _refused(path, f"its format is {metadata.get('format')!r}, expected {FORMAT!r}")
    if metadata.pop("digest", "") != _digest(metadata, tensors):
        raise _refused(path, "its checksum is wrong, so it is damaged")
    parts: dict[str, dict[str, Tensor]] = {"weight": {}, "credit": {}, "best": {}}
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = tensor
    weights, credit, best = (parts.pop(part) for part in ("weight", "credit", "best"))
    if metadata["run"] != run or weights.keys() != parameters.keys():
        raise _refused(path, "it belongs to a run with another configuration")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
            moments = {key: values[name].clone() for key, values in parts.items() if name in values}
            if moments:  # AdamW keeps its step counter on the CPU
                optimizer.state[parameter] = {k: v if k == "step" else v.to(parameter.device) for k, v in moments.items()}
    return Progress(**json.loads(metadata["progress"]), best_weights=best), credit


def _digest(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _refused(path: Path, reason: str) -> UserError:
    return UserError(f"cannot load the checkpoint {str(path)!r}: {reason}; delete it to start again, or name another folder")
