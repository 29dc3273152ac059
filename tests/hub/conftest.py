"""A trained run, evaluations, and the built-in base on the Hub on loopback."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.suites import Suite
from tests.files import once
from tests.hub.commands import FLAGS, LAKE, RUN, TASKS, Files, edit, msgrpo
from tests.hub_server.lanes import Loopback, loopback, loopback_server

__all__ = ["loopback", "loopback_server"]


def trained_once(loopback: Loopback, factory: pytest.TempPathFactory, name: str, flags: str) -> Path:
    """A finished run, trained once for all test processes, in a folder whose path has a user name. Copy it to change it."""
    own = Path("home", "zaphod", "lake")

    def train(folder: Path) -> None:
        done = loopback.owner.attempt(msgrpo, "train", *flags.split(), "--output-dir", folder / own)
        assert done.code == 0, done.err

    return once(factory, name, train) / own


@pytest.fixture(scope="session")
def trained(loopback_server: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_once(loopback_server, tmp_path_factory, "trained", FLAGS)


@pytest.fixture(scope="session")
def saved(loopback_server: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_once(loopback_server, tmp_path_factory, "saved", RUN)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "home" / "zaphod" / "lake"))


@pytest.fixture
def base(loopback: Loopback) -> str:
    repo = loopback.repository()
    done = loopback.owner.attempt(msgrpo, "push", "base", repo)
    assert done.code == 0, done.err
    return repo


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two players on two tasks, each in its own folder. Copy it to change it."""

    def play(folder: Path) -> None:
        for player in ("random", "greedy"):
            evaluate(player, Suite(name="tiny", tasks=TASKS, episodes=30), folder / player)

    return once(tmp_path_factory, "played", play)


@pytest.fixture
def own(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played / "random", tmp_path / "own"))


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:

    def play(folder: Path) -> None:
        evaluate("random", Suite(name="mine", tasks=(LAKE, "Snake-Short-v1"), episodes=4), folder)
        evaluate(["random", "optimal"], Suite(name="mine", tasks=(LAKE,), episodes=3, split="validation"), folder)

    return once(tmp_path_factory, "evaluated", play)


@pytest.fixture(scope="session")
def sound_base() -> Files:
    return {path.name: path.read_bytes() for path in pocket_path().iterdir() if path.name not in ("README.md", "scores.json")}


@pytest.fixture(scope="session")
def sound_adapter(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A LoRA adapter of the built-in base, named as every installation finds it."""
    folder = tmp_path_factory.mktemp("adapter")
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    get_peft_model(AutoModelForCausalLM.from_pretrained(pocket_path()), lora).save_pretrained(str(folder))
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith("adapter_")}
    edit("adapter_config.json", base_model_name_or_path="msgrpo_hub/pocket/model", init_lora_weights=True)(files)
    return files
