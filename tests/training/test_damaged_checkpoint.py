"""A damaged checkpoint is refused with its reason, and nothing is overwritten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.files import hashes
from tests.training.interrupted import resumed

if TYPE_CHECKING:
    from tests.command import Command

pytestmark = pytest.mark.slow


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_weight(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": truncate,
    "empty": lambda path: path.write_bytes(b""),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a flipped bit": flip_a_weight,
    "some other safetensors": lambda path: save_file({"a": torch.zeros(3)}, path),
    "without a checksum": lambda path: save_file(load_file(path), path, {"format": "msgrpo_hub-checkpoint-1"}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_refused_and_nothing_is_overwritten(
    damage: Callable[[Path], object], msgrpo: Command, run: Path
) -> None:
    damage(run / "checkpoint.safetensors")
    before = hashes(run)
    ended = resumed(msgrpo, run)
    assert (ended.code, ended.out) == (2, ""), ended.err
    [line] = ended.err.splitlines()
    assert f"the checkpoint '{run / 'checkpoint.safetensors'}'" in line
    assert "delete it to start again, or name another folder" in line
    assert hashes(run) == before
