"""A checkpoint that is damaged, or of another run, is refused with its reason, and nothing is overwritten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from tests.command import Command
from tests.files import hashes
from tests.training.interrupted import resumed

pytestmark = pytest.mark.slow

# ---- damaged or foreign checkpoints


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_weight(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def forget_the_checksum(path: Path) -> None:
    save_file(load_file(path), path, {"format": "msgrpo_hub-checkpoint-1"})


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (truncate, "it cannot be read"),
    "empty": (lambda path: path.write_bytes(b""), "it cannot be read"),
    "no safetensors": (lambda path: path.write_text("{}" * 1000), "it cannot be read"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "it cannot be read"),
    "a flipped bit": (flip_a_weight, "its checksum is wrong, so it is damaged"),
    "some other safetensors": (lambda path: save_file({"a": torch.zeros(3)}, path), "its format is None"),
    "the adapter": (lambda path: save_file(load_file(path), path, {"format": "pt"}), "its format is 'pt'"),
    "without a checksum": (forget_the_checksum, "checksum"),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_refused_with_its_reason_and_nothing_is_overwritten(
    damage: Callable[[Path], object], reason: str, msgrpo: Command, run: Path
) -> None:
    damage(run / "checkpoint.safetensors")
    assert_refused(msgrpo, run, reason)


def assert_refused(msgrpo: Command, run: Path, reason: str) -> None:
    before = hashes(run)
    ended = resumed(msgrpo, run)
    assert (ended.code, ended.out) == (2, ""), ended.err
    [line] = ended.err.splitlines()
    assert line.startswith(f"error: cannot load the checkpoint '{run / 'checkpoint.safetensors'}': ")
    assert reason in line
    assert hashes(run) == before
