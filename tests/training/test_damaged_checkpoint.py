"""A checkpoint that is damaged, or of another run, is refused with its reason, and nothing is overwritten."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file

from msgrpo_hub.errors import UserError
from msgrpo_hub.training.checkpoint import load_checkpoint, save_checkpoint
from msgrpo_hub.training.config import load_config
from msgrpo_hub.training.run_folder import fingerprint
from msgrpo_hub.training.run_lock import HOLDER
from msgrpo_hub.training.trainer import Trainer

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
    (run / HOLDER).unlink(missing_ok=True)  # of the process that was killed
    before = hashes(run)
    ended = resumed(msgrpo, run)
    assert (ended.code, ended.out) == (2, ""), ended.err
    [line] = ended.err.splitlines()
    assert line.startswith(f"error: the checkpoint '{run / 'checkpoint.safetensors'}' is refused: ")
    assert reason in line
    assert hashes(run) == before


@pytest.mark.parametrize("change", [("--seed", "1"), ("--lora-rank", "2"), ("--learning-rate", "1e-3")])
def test_a_checkpoint_of_another_configuration_is_refused(
    change: tuple[str, str], msgrpo: Command, flags: list[str], run: Path, tmp_path: Path
) -> None:
    moment = ("Trainer.learn", "call", 2)
    assert msgrpo("train", *flags, *change, "--output-dir", tmp_path / "other", die_at=moment).code == -signal.SIGKILL
    shutil.copy(tmp_path / "other" / "checkpoint.safetensors", run)
    assert_refused(msgrpo, run, "it belongs to a run with another configuration")


def test_a_bit_flipped_anywhere_in_the_head_of_a_checkpoint_is_noticed(run: Path) -> None:
    """The head holds names, shapes, the configuration's fingerprint, the progress and the checksum."""
    path, config = run / "checkpoint.safetensors", load_config(run / "config.toml")
    trainer = Trainer(config, Accelerator(cpu=True))
    whole = path.read_bytes()
    head = 8 + int.from_bytes(whole[:8], "little")
    accepted = []
    metadata = whole.index(b'"exp_avg')  # every bit of what is not tensors, and some of the rest
    for place in [*range(metadata), *range(metadata, head, 50)]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            load_checkpoint(path, trainer.parameters, trainer.optimizer, fingerprint(config))
        except UserError:
            continue
        except Exception as error:  # a traceback for the user
            accepted.append((whole[max(place - 15, 0) : place + 5], repr(error)))
        else:
            accepted.append((whole[max(place - 15, 0) : place + 5], "accepted"))
    assert not accepted


def test_a_checkpoint_from_before_the_first_step_goes_back(run: Path, tmp_path: Path) -> None:
    """Where no group teaches anything, there are updates without a step, and no moments of the optimiser."""
    config = load_config(run / "config.toml")
    progress = replace(load_checkpoint_of(run), updates=1)
    one, two = Trainer(config, Accelerator(cpu=True)), Trainer(replace(config, seed=1), Accelerator(cpu=True))
    save_checkpoint(tmp_path / "checkpoint", one.parameters, one.optimizer, progress, "run")
    assert load_checkpoint(tmp_path / "checkpoint", two.parameters, two.optimizer, "run") == (progress, {})
    assert all(torch.equal(weight, two.parameters[name]) for name, weight in one.parameters.items())
    assert not two.optimizer.state


def load_checkpoint_of(run: Path) -> Any:
    config = load_config(run / "config.toml")
    trainer = Trainer(config, Accelerator(cpu=True))
    progress, _ = load_checkpoint(run / "checkpoint.safetensors", trainer.parameters, trainer.optimizer, fingerprint(config))
    return progress
