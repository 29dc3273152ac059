"""Bad input is one line and exit status 2, and overwrites nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from msgrpo_hub.errors import UserError
from msgrpo_hub.training.trainer import out_of_memory
from tests.command import Command
from tests.files import hashes

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"

# ---- bad input

BAD: dict[str, tuple[str, str]] = {
    "no command": ("", "COMMAND; see msgrpo --help"),
    "a command that does not exist": ("trian", "unknown command 'trian': did you mean 'train'"),
    "an unknown game": ("play FrozenLake-NotSlipery-v1", f"unknown game 'FrozenLake-NotSlipery-v1': did you mean '{LAKE}'"),
    "no game": ("play", "GAME; see msgrpo play --help"),
    "an unknown flag of play": (f"play {LAKE} --palyer random", "unknown flag '--palyer': did you mean '--player'"),
    "an unknown player": (f"play {LAKE} --player optimall", "'optimall'.*did you mean 'optimal'"),
    "an unknown player like pocket": (f"play {LAKE} --player pockett", "'pockett'.*did you mean 'pocket'"),
    "a player that cannot play": (
        f"play {SNAKE} --player optimal",
        "Snake-Solo-v1 has no exact optimum.* use the player 'greedy'",
    ),
    "a seed that is no number": (f"play {LAKE} --seed one", "--seed.*int.*'one'; see msgrpo play --help"),
    "switches that are not JSON": ("eval pocket --chat-template-kwargs thinking=false", "expected a JSON object such as"),
    "switches of a training that are not JSON": ("train @ --chat-template-kwargs [1]", "expected a JSON object such as"),
    "a switch that is an object": (
        'train @ --chat-template-kwargs {"a":{}}',
        "a = '{}' in chat_template_kwargs: expected a text",
    ),
    "a negative temperature": (f"play {LAKE} --player @/base --temperature -1", "temperature.*-1.*at least 0"),
    "a reply of no tokens": (f"play {LAKE} --player @/base --max-new-tokens 0", "max.new.tokens.*0.*at least 1"),
    "a reply that does not fit": (
        f"play {LAKE} --player @/base --max-new-tokens 5000",
        r"5000.*1024 positions.*--max-new-tokens \d+\)",
    ),
    "a missing model folder": (f"play {LAKE} --player @/none", "no model in the folder '@/none': expected config.json"),
    "a missing model folder to train": ("train @ --model @/none", "no model in the folder '@/none': expected config.json"),
    "an empty model folder": (f"play {LAKE} --player @/empty", "no model in the folder '@/empty': expected config.json"),
    "an empty model folder to train": ("train @ --model @/empty", "no model in the folder '@/empty': expected config.json"),
    "a file as model": (f"play {LAKE} --player @/file", "no model in the folder '@/file': expected config.json"),
    "a Hub id without a network": (
        f"play {LAKE} --player some/model",
        "cannot load 'some/model': expected 'pocket', a folder, or a",
    ),
    "a Hub id to train without a network": (
        "train @ --model some/model",
        "cannot load 'some/model': expected 'pocket', a folder, or",
    ),
    "a revision without a network": (f"play {LAKE} --player some/model@v1", "cannot load 'some/model' at revision 'v1'"),
    "an adapter of another base": (
        f"play {LAKE} --player @/base+@/adapter-of-another-base",
        "does not fit its base '@/base'.*size",
    ),
    "a missing adapter": (f"play {LAKE} --player @/base+@/none", "'@/none'"),
    "a base as adapter": (f"play {LAKE} --player @/base+@/base", "'@/base' is not a LoRA adapter: expected adapter_config.json"),
    "an adapter as base of an adapter": (f"play {LAKE} --player @/run/adapter+@/run/adapter", "is a LoRA adapter, not a base"),
    "an adapter as training base": ("train @ --model @/run/adapter", "'@/run/adapter' is a LoRA adapter: expected a base model"),
    "a model without a chat template": (
        f"play {LAKE} --player @/no-template",
        "no chat template: pass one with --chat-template FILE",
    ),
    "a missing chat template": (f"play {LAKE} --player @/base --chat-template @/none", "'@/none'"),
    "a broken chat template": (f"play {LAKE} --player @/base --chat-template @/broken.jinja", "'@/broken.jinja'"),
    "no output folder": ("train", "--output-dir; see msgrpo train --help"),
    "an unknown preset": ("train @ --preset quickstrat", "unknown preset 'quickstrat': did you mean 'quickstart'"),
    "an unknown game to train": (
        "train @ --game Snake-Standart-v1",
        "unknown game 'Snake-Standart-v1': did you mean 'Snake-Standard",
    ),
    "an unknown flag of train": ("train @ --grops 3", "unknown flag '--grops': did you mean '--groups'"),
    "a shortened flag": ("train @ --group 3", "unknown flag '--group': did you mean '--groups'"),
    "an unknown choice": (
        "train @ --sampler best",
        "unknown sampler 'best': expected one of absolute-advantage.*or module:object",
    ),
    "a value that is no number": ("train @ --updates many", "--updates.*int.*'many'; see msgrpo train --help"),
    "a flag without its value": ("train @ --updates", "--updates: expected one argument"),
    "preset and file": (
        "train @ --preset quickstart --config @/broken.toml",
        "--preset and --config are both given: expected one",
    ),
    "a missing file": ("train @ --config @/none.toml", "cannot read the configuration '@/none.toml'.*expected a TOML file"),
    "a folder as file": ("train @ --config @/empty", "cannot read the configuration '@/empty'.*expected a TOML file"),
    "an unknown field": ("train @ --config @/unknown-field.toml", "unknown-field.toml 'gruops': did you mean 'groups'"),
    "a field of another type": ("train @ --config @/wrong-type.toml", "groups = 'three' in @/wrong-type.toml: expected int"),
    "broken TOML": ("train @ --config @/broken.toml", "'@/broken.toml' is not valid TOML: .*line 1"),
    "TOML in another encoding": ("train @ --config @/latin.toml", "'@/latin.toml' is not valid TOML"),
    "G' > G": ("train @ --group-size 4 --selected-per-group 5", "selected_per_group = 5 of group_size = 4: expected G' <= G"),
    "groups of one": ("train @ --group-size 1 --selected-per-group 1", "group_size = 1: expected at least 2"),
    "no updates": ("train @ --updates 0", "updates = 0: expected at least 1"),
    "a rate below zero": ("train @ --learning-rate -1", "learning_rate = -1.0: expected more than 0"),
    "a rate that is no number": ("train @ --learning-rate nan", "learning_rate = nan: expected"),
    "an infinite rate": ("train @ --learning-rate inf", "learning_rate = inf: expected"),
    "a penalty that is no number": ("train @ --format-penalty nan", "format_penalty = nan: expected"),
    "a KL weight below zero": ("train @ --beta -1", "beta = -1.0: expected at least 0"),
    "a clip below zero": ("train @ --epsilon-low -1", "epsilon_low = -1.0: expected at least 0"),
    "a warm-up below zero": ("train @ --warmup -1", "warmup = -1: expected at least 0"),
    "a seed below zero": ("train @ --seed -1", "seed = -1: expected at least 0"),
    "no validation episodes": ("train @ --eval-episodes 0 --eval-every 2", "eval_episodes = 0: expected at least 1"),
    "test episodes below zero": ("train @ --test-episodes -1", "test_episodes = -1: expected at least 0"),
    "threads below zero": ("train @ --threads -1", "threads = -1: expected at least 0"),
    "a device that is not there": ("train @ --device cuda", "device = 'cuda': torch finds no such device.*expected auto or cpu"),
    "a device that nobody makes": ("train @ --device tpu", "--device.*'tpu'.*'mps'"),
    "a device to play on that is not there": (f"play {LAKE} --player @/base --device mps", "device = 'mps': torch finds no"),
    "a tracker that is not installed": (
        "train @ --report-to wandb",
        "report_to = 'wandb' cannot be used.*install it or take 'none'",
    ),
    "a rate beyond all numbers": ("train @ --learning-rate 1e30", "expected finite numbers: lower --learning-rate"),
    "a base that is not finite": ("train @ --model @/nan-everywhere", "finite"),
    "a base with one weight that is not finite": ("train @ --model @/nan-in-a-layer", "finite"),
    "a base to play that is not finite": (f"play {LAKE} --player @/nan-everywhere", "finite"),
    "a folder below a file": (
        "train --output-dir @/file/run",
        "cannot write to the output folder '@/file/run'.*name another --output-dir",
    ),
    "a file as folder": ("train --output-dir @/file", "cannot write to the output folder '@/file'.*name another --output-dir"),
    "a read-only folder": (
        "train --output-dir /proc/run",
        "cannot write to the output folder '/proc/run'.*name another --output-dir",
    ),
    "a folder with a run": (
        "train --output-dir @/run",
        "'@/run' already holds a run: continue it with --resume, or name another",
    ),
    "a folder with another run": ("train --output-dir @/run --resume --seed 7", "'@/run' holds a run with seed = 0, not 7"),
}
"""Arguments, where @ is the place with the files (or, after `train`, a new output folder), and what the line must say."""


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_overwrites_nothing(
    arguments: str, words: str, msgrpo: Command, flags: list[str], place: Path, tmp_path: Path
) -> None:
    given = arguments.replace("train @", f"train --output-dir {tmp_path}/new").replace("@/", f"{place}/").split()
    if given[:1] == ["train"] and "--config" not in given and "--preset" not in given and len(given) > 1:
        given[1:1] = flags
    before = hashes(place)
    ended = msgrpo(*given, folder=tmp_path)
    assert (ended.code, ended.out) == (2, ""), ended.err
    [line] = ended.said
    assert line.startswith("error: ")
    assert re.search(words.replace("@/", f"{place}/"), line), line
    assert hashes(place) == before


def test_after_a_mistake_is_mended_the_same_folder_can_be_used(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    assert msgrpo("train", *flags, "--model", tmp_path / "none", "--output-dir", tmp_path / "run").code == 2
    ended = msgrpo("train", *flags, "--output-dir", tmp_path / "run")
    assert ended.code == 0, ended.err


def test_the_real_command_says_one_line_where_there_is_no_network() -> None:
    """Not a fork: here transformers is loaded by the command itself, and must keep quiet."""
    command = [Path(sys.executable).with_name("msgrpo"), "play", LAKE, "--player", "some/model"]
    ended = subprocess.run(command, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    [line] = ended.stderr.splitlines()
    assert line.startswith("error: cannot load 'some/model': expected 'pocket', a folder, or a Hub id")


def test_exhausted_gpu_memory_names_the_knob() -> None:
    with pytest.raises(UserError) as caught, out_of_memory("sampling", "--max-rows"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nGPU 0 has a total capacity of 8 GiB")
    assert str(caught.value) == (
        "the GPU's memory is exhausted while acting (CUDA out of memory. Tried to allocate 2 GiB.): "
        "lower --max-rows, then continue with --resume"
    )


@pytest.mark.parametrize("knob", [["--max-rows", "64"], ["--token-budget", "512"], ["--gradient-checkpointing"]])
def test_the_knobs_that_it_names_may_be_turned_when_a_run_goes_on(
    knob: list[str], msgrpo: Command, finished_run: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished_run, tmp_path / "run")
    ended = msgrpo("train", "--resume", "--output-dir", tmp_path / "run", *knob)
    assert ended.code == 0, ended.err
