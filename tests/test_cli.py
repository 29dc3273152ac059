"""The command line: bad input is one line and exit status 2, data goes to standard output, progress to standard error."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from msgrpo_hub.cli import parse
from msgrpo_hub.cli.training import train_config
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, episode_seed
from msgrpo_hub.training import TrainConfig
from msgrpo_hub.training.config import load_config, preset, to_toml
from msgrpo_hub.training.trainer import _memory
from tests.command import Command

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"


def files(folder: Path) -> dict[str, str]:
    """The hash of every file."""
    return {str(path.relative_to(folder)): sha256(path) for path in folder.rglob("*") if path.is_file()}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def run(msgrpo: Command, flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("run") / "run"
    assert msgrpo("train", *flags, "--output-dir", folder).code == 0
    return folder


@pytest.fixture(scope="module")
def place(tiny_model: Path, run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the bad inputs below name."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(tiny_model, folder / "base")
    shutil.copytree(run, folder / "run")
    (folder / "empty").mkdir()
    (folder / "file").write_text("not a folder")
    (folder / "unknown-field.toml").write_text("gruops = 3\n")
    (folder / "wrong-type.toml").write_text('groups = "three"\n')
    (folder / "broken.toml").write_text("groups = \n")
    (folder / "latin.toml").write_bytes(b'game = "\xff"\n')
    (folder / "broken.jinja").write_text("{% for %}")
    shutil.copytree(tiny_model, folder / "no-template", ignore=shutil.ignore_patterns("chat_template.jinja"))
    wide = AutoModelForCausalLM.from_pretrained(tiny_model)
    wide.config.hidden_size, wide.config.intermediate_size = 64, 128
    other = type(wide)(wide.config)
    get_peft_model(other, LoraConfig(r=4, target_modules="all-linear")).save_pretrained(folder / "adapter-of-another-base")
    for name, parts in (("nan-everywhere", ""), ("nan-in-a-layer", "mlp.up_proj")):
        shutil.copytree(tiny_model, folder / name)
        weights = load_file(folder / name / "model.safetensors")
        for weight in (weight for key, weight in weights.items() if parts in key):
            weight.view(-1)[0] = float("nan")
        save_file(weights, folder / name / "model.safetensors", {"format": "pt"})
    return folder


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
    "a negative temperature": (f"play {LAKE} --player @/base --temperature -1", "temperature.*-1.*at least 0"),
    "a reply of no tokens": (f"play {LAKE} --player @/base --max-new-tokens 0", "max.new.tokens.*0.*at least 1"),
    "a reply that does not fit": (
        f"play {LAKE} --player @/base --max-new-tokens 5000",
        "5000.*1024 positions.*lower --max-new-tokens",
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
    "a base as adapter": (f"play {LAKE} --player @/base+@/base", "the adapter '@/base' .*adapter_config.json"),
    "an adapter as base of an adapter": (f"play {LAKE} --player @/run/adapter+@/run/adapter", "is a LoRA adapter, not a base"),
    "an adapter as training base": ("train @ --model @/run/adapter", "'@/run/adapter' is a LoRA adapter: expected a base model"),
    "a model without a chat template": (
        f"play {LAKE} --player @/no-template",
        "no chat template: give one with --chat-template FILE",
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
    "an unknown choice": ("train @ --sampler best", "--sampler.*'best'.*absolute-advantage"),
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
    "G' > G": ("train @ --group-size 4 --drawn 5", "drawn = 5 of group_size = 4: expected G' <= G; lower --drawn"),
    "groups of one": ("train @ --group-size 1 --drawn 1", "group_size = 1: expected at least 2"),
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
    "a folder with a run": ("train --output-dir @/run", "'@/run' already holds a run: go on with --resume, or name another"),
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
    before = files(place)
    ended = msgrpo(*given, folder=tmp_path)
    assert (ended.code, ended.out) == (2, ""), ended.err
    [line] = ended.said
    assert line.startswith("error: ")
    assert re.search(words.replace("@/", f"{place}/"), line), line
    assert files(place) == before


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
    with pytest.raises(UserError) as caught, _memory("acting", "--max-rows"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nGPU 0 has a total capacity of 8 GiB")
    assert str(caught.value) == (
        "the GPU's memory is exhausted while acting (CUDA out of memory. Tried to allocate 2 GiB.): "
        "lower --max-rows, then go on with --resume"
    )


@pytest.mark.parametrize("knob", [["--max-rows", "64"], ["--token-budget", "512"], ["--gradient-checkpointing"]])
def test_the_knobs_that_it_names_may_be_turned_when_a_run_goes_on(knob: list[str], msgrpo: Command, run: Path) -> None:
    ended = msgrpo("train", "--resume", "--output-dir", run, *knob)
    assert ended.code == 0, ended.err


# ---- configuration


def some(field: dataclasses.Field[Any], hint: Any) -> st.SearchStrategy[Any]:
    """Values that the field accepts."""
    if field.name == "game":
        return st.sampled_from(list(GAMES))
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    kinds = {
        bool: st.booleans(),
        int: st.integers(1, 50) if field.name == "drawn" else st.integers(50, 10**12),
        float: st.floats(1e-300, 0.99),
        str: st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    }
    return kinds[hint]


HINTS = get_type_hints(TrainConfig)
CONFIGS = st.builds(TrainConfig, **{field.name: some(field, HINTS[field.name]) for field in dataclasses.fields(TrainConfig)})


@given(config=CONFIGS)
@settings(deadline=None)
def test_a_configuration_comes_back_from_its_toml(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "config.toml"
    path.write_text(to_toml(config))
    assert load_config(path) == config


def test_flags_win_over_the_file_the_preset_and_the_defaults(tmp_path: Path) -> None:
    def config(*given: str) -> TrainConfig:
        return train_config(parse(["train", "--output-dir", str(tmp_path), *given]))  # type: ignore[no-any-return]

    (tmp_path / "some.toml").write_text("groups = 3\nbeta = 1\n")
    assert config() == TrainConfig()
    assert config("--preset", "quickstart-snake") == preset("quickstart-snake")
    assert config("--preset", "quickstart", "--beta", "0.5") == dataclasses.replace(preset("quickstart"), beta=0.5)
    assert config("--config", str(tmp_path / "some.toml"), "--groups", "5") == TrainConfig(groups=5, beta=1.0)
    assert config("--gradient-checkpointing", "--no-exclude-test-starts") == TrainConfig(
        gradient_checkpointing=True, exclude_test_starts=False
    )


def test_the_resolved_configuration_runs_again_and_gives_the_same_adapter(msgrpo: Command, run: Path, tmp_path: Path) -> None:
    assert msgrpo("train", "--config", run / "config.toml", "--output-dir", tmp_path / "again").code == 0
    for name in ("config.toml", "adapter/adapter_model.safetensors", "replay.svg"):
        assert sha256(tmp_path / "again" / name) == sha256(run / name), name


def test_the_help_of_train_shows_every_field_with_its_documentation_and_default(msgrpo: Command) -> None:
    ended = msgrpo("train", "--help")
    assert ended.code == 0
    documented = re.findall(r'\n    (\w+): .*\n    """(.*)"""', inspect.getsource(TrainConfig))
    assert [name for name, _ in documented] == [field.name for field in dataclasses.fields(TrainConfig)]
    shown = "".join(ended.out.split())
    for name, text in documented:
        assert f"--{name.replace('_', '-')}" in shown
        default = getattr(TrainConfig, name)
        assert "".join(f"{text} Default: {'none' if default == '' else default}.".split()) in shown, name


# ---- output


def test_games_as_json_are_all_games(msgrpo: Command) -> None:
    games = json.loads(msgrpo("games", "--json").out)
    assert {game["id"]: game["horizon"] for game in games} == {game.id: game.horizon for game in GAMES.values()}
    assert all(game["rules"] and game["actions"] and game["instructions"] for game in games)
    listed = msgrpo("games")
    assert [line.split()[0] for line in listed.out.splitlines() if line] == list(GAMES)
    assert "Next: msgrpo play" in listed.err


@pytest.mark.parametrize("player", ["random", "random-legal", "random-safe", "greedy", "@/run/adapter"])
def test_an_episode_is_the_same_each_time_and_its_json_adds_up(player: str, msgrpo: Command, place: Path) -> None:
    arguments = ["play", SNAKE, "--seed", 3, "--player", player.replace("@", str(place)), "--max-new-tokens", 4]
    first, second = msgrpo(*arguments, "--json"), msgrpo(*arguments, "--json")
    assert first.code == 0, first.err
    assert first.out == second.out
    episode = json.loads(first.out)
    assert episode["seed"] == episode_seed(SNAKE, "test", 3)
    assert episode["reward"] == sum(step["reward"] for step in episode["steps"])
    assert 1 <= len(episode["steps"]) <= GAMES[SNAKE].horizon
    drawn = msgrpo(*arguments)
    assert drawn.out.count("turn ") == len(episode["steps"])
    assert drawn.out.endswith(f"reward {episode['reward']:g}\n")
    assert "Next:" in drawn.err
    assert "Next:" not in drawn.out


def test_an_adapter_alone_plays_as_it_does_on_its_base_and_not_as_the_base(msgrpo: Command, place: Path) -> None:
    def replies(player: str) -> str:
        return msgrpo("play", SNAKE, "--player", player, "--max-new-tokens", 8, "--json").out

    assert replies(f"{place}/base+{place}/run/adapter") == replies(f"{place}/run/adapter") != replies(f"{place}/base")


def test_another_seed_is_another_episode(msgrpo: Command) -> None:
    assert msgrpo("play", LAKE, "--seed", 1).out != msgrpo("play", LAKE, "--seed", 2).out


def test_a_person_plays_by_first_letters_and_is_asked_again_after_nonsense(msgrpo: Command) -> None:
    by_letter = msgrpo("play", LAKE, "--player", "human", "--json", stdin="jump\n\nl\n" + "U\nleft\n" * 8)
    actions = [step["action"] for step in json.loads(by_letter.out)["steps"]]
    assert actions == ["Left", *["Up", "Left"] * 4][: len(actions)]
    assert len(actions) == GAMES[LAKE].horizon
    assert by_letter.err.count("Left / Down / Right / Up?") == len(actions) + 2
    assert "[Rules]" in by_letter.err


def test_a_person_who_leaves_is_told_in_a_line_of_its_own(msgrpo: Command) -> None:
    ended = msgrpo("play", LAKE, "--player", "human", stdin="left\n")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1] == "error: no more input: expected one of Left, Down, Right, Up on a line"


def test_training_puts_data_on_stdout_and_progress_on_stderr(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    ended = msgrpo("train", *flags, "--json", "--output-dir", tmp_path / "run")
    assert json.loads(ended.out) == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert "training: 100%" in ended.err
    assert "training" not in ended.out.replace("seconds_training", "")


def test_a_finished_run_is_told_again_without_training(msgrpo: Command, run: Path) -> None:
    before = files(run)
    again = msgrpo("train", "--resume", "--output-dir", run)
    assert again.code == 0
    assert "training:" not in again.err
    for player in ("random", "base", "adapter", "optimal"):
        assert f"\n{player} " in again.out
    assert f"msgrpo play {LAKE} --player {run}/adapter" in again.err
    assert files(run) == before


def test_every_command_is_the_same_as_a_module_and_as_a_script() -> None:
    commands = [[Path(sys.executable).with_name("msgrpo")], [sys.executable, "-m", "msgrpo_hub"]]
    one, two = (subprocess.run([*command, "play", LAKE, "--seed", "5"], capture_output=True, text=True) for command in commands)
    assert one.returncode == two.returncode == 0
    assert one.stdout == two.stdout != ""
