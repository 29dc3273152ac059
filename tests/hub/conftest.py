"""A trained run, the built-in base on the loopback Hub, and the `msgrpo` command in a process that uses this Hub."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.hub.uploading import Pushed
from tests.files import once
from tests.hub.hostile import Files, edit
from tests.hub.pushed_results import TASKS
from tests.hub.pushed_rollouts import LAKE, RUN
from tests.hub_server.client import LOADS_MODELS, Finished
from tests.hub_server.fixture import hub, loopback, loopback_server
from tests.hub_server.lanes import Loopback

__all__ = ["hub", "loopback", "loopback_server"]

warm = LOADS_MODELS

FLAGS = (
    "--preset quickstart --game FrozenLake-NotSlippery-v1 --updates 1 --groups 1 --group-size 8 --selected-per-group 4 "
    "--eval-episodes 1 --test-episodes 2 --threads 1 --temperature 2"
)
"""Of a run of some seconds, at a temperature at which the replies of a group differ enough to learn from."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here talks to a Hub, most of them from a process of its own."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


def msgrpo(*arguments: object) -> None:
    """The command line, in the client's process."""
    from msgrpo_hub.cli import main

    main([str(argument) for argument in arguments])


def run_command(line: str, folder: Path) -> None:
    """A line for the shell, such as `hf download …`, in the client's process: that of an installed package, in a folder."""
    name, *sys.argv[1:] = shlex.split(line)
    os.chdir(folder)
    [script] = entry_points(group="console_scripts", name=name)
    script.load()()


def push(folder: Path, repo: str, **options: Any) -> Pushed:
    """The public function, in the client's process."""
    from msgrpo_hub.hub import push_adapter

    return push_adapter(folder, repo, **options)


def refused(finished: Finished) -> str:
    """The error line of a refused command, which exits with 2."""
    lines = [line for line in finished.err.splitlines() if line and not line.startswith("pushing to")]
    assert (finished.code, len(lines), lines[-1][:7]) == (2, 1, "error: "), finished.err
    return lines[0]


@pytest.fixture(scope="session")
def trained(loopback_server: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in a folder whose path has a user name. Copy it before changing it."""
    return trained_once(loopback_server, tmp_path_factory, "trained", FLAGS)


def trained_once(loopback: Loopback, factory: pytest.TempPathFactory, name: str, flags: str) -> Path:
    """A finished run, trained once for all test processes."""
    own = Path("home", "zaphod", "lake")

    def train(folder: Path) -> None:
        done: Any = loopback.owner.attempt(msgrpo, "train", *flags.split(), "--output-dir", folder / own)
        assert done.code == 0, done.err

    return once(factory, name, train) / own


@pytest.fixture
def base(loopback: Loopback) -> str:
    """The built-in base, published."""
    repo = loopback.repository()
    done = loopback.owner.attempt(msgrpo, "push", "base", repo)
    assert done.code == 0, done.err
    return repo


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "home" / "zaphod" / "lake"))


@pytest.fixture(scope="session", name="played")
def played_by_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two players on two tasks, each in a separate folder. Copy it before changing it."""

    def play(folder: Path) -> None:
        for player in ("random", "greedy"):
            evaluate(player, Suite(name="tiny", tasks=TASKS, episodes=30), folder / player)

    return once(tmp_path_factory, "played", play)


@pytest.fixture(name="own")
def copied(played: Path, tmp_path: Path) -> Path:
    """A copy of the runs of `random` that a test may change."""
    return Path(shutil.copytree(played / "random", tmp_path / "own"))


@pytest.fixture(scope="session")
def sound_base() -> Files:
    return {path.name: path.read_bytes() for path in pocket_path().iterdir() if path.name not in ("README.md", "scores.json")}


@pytest.fixture(scope="session")
def sound_adapter(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A LoRA adapter of the built-in base, which is found by the end of its path wherever it is installed."""
    folder = tmp_path_factory.mktemp("adapter")
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    get_peft_model(AutoModelForCausalLM.from_pretrained(pocket_path()), lora).save_pretrained(str(folder))
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith("adapter_")}
    edit("adapter_config.json", base_model_name_or_path="msgrpo_hub/pocket/model", init_lora_weights=True)(files)
    return files


@pytest.fixture(scope="session")
def saved(loopback_server: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with saved episodes, in a folder whose path has a user name."""
    return trained_once(loopback_server, tmp_path_factory, "saved", RUN)


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from msgrpo_hub.evaluation import evaluate
    from msgrpo_hub.evaluation.suites import Suite

    def play(folder: Path) -> None:
        evaluate("random", Suite(name="mine", tasks=(LAKE, "Snake-Short-v1"), episodes=4), folder)
        evaluate(["random", "optimal"], Suite(name="mine", tasks=(LAKE,), episodes=3, split="validation"), folder)

    return once(tmp_path_factory, "evaluated", play)
