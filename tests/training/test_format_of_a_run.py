"""A run trains in its prompt format, stores it with the adapter, and takes a format of one's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.training import train
from msgrpo_hub.training.callbacks import Callback, Update
from msgrpo_hub.training.config import TrainConfig, load_config, to_toml

if TYPE_CHECKING:
    from tests.command import Command

pytestmark = pytest.mark.slow

OWN = """
from msgrpo_hub.agent import PromptFormat
from msgrpo_hub.agent.prompt_formats import conversation, system_text


class Short(PromptFormat):
    name = "short"
    history = 2

    def render(self, game, observation, history=()):
        return conversation(system_text(game), history, observation, "Your move:")

    def reply(self, action):
        return f"<action>{action}</action>"

    def parse(self, text, actions):
        return next((action for action in actions if action in text), None)
"""


def stored(run: Path) -> set[str]:
    """What both adapters of a run name."""
    return {json.loads((run / name / "msgrpo.json").read_text())["prompt_format"] for name in ("adapter", "best")}


def test_a_run_plays_in_its_format_and_stores_it_and_its_switches_with_both_adapters(
    msgrpo: Command, flags: list[str], tmp_path: Path
) -> None:
    chosen = ["--prompt-format", "json", "--chat-template-kwargs", '{"enable_thinking": false}']
    done = msgrpo("train", *flags, "--updates", 2, *chosen, "--output-dir", tmp_path / "run")
    assert done.code == 0, done.err
    assert done.err.count("never reads 'enable_thinking'\n") == 1
    assert stored(tmp_path / "run") == {"json"}
    assert load_config(tmp_path / "run" / "config.toml").chat_template_kwargs == {"enable_thinking": False}
    agent = LanguageModel.from_pretrained(str(tmp_path / "run" / "adapter"))
    assert agent.prompt_format is not None
    assert agent.prompt_format.name == "json"
    assert agent.chat_template_kwargs == {"enable_thinking": False}


def test_a_chat_template_that_changes_under_a_run_ends_it_before_it_goes_on(tiny_model: Path, tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    text = (tiny_model / "chat_template.jinja").read_text()
    template.write_text(text)
    small: dict[str, Any] = {"updates": 2, "groups": 2, "group_size": 4, "selected_per_group": 2, "max_new_tokens": 4}
    config = TrainConfig(model=str(tiny_model), chat_template=str(template), eval_every=0, test_episodes=0, lora_rank=4, **small)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", show_progress=False, callbacks=[StopsAfter(1)])
    template.write_text(text + "{# another #}")
    with pytest.raises(UserError, match=r"the chat template .* has changed since the run began: put it back"):
        train(config, tmp_path / "run", resume=True, show_progress=False)
    template.write_text(text)
    assert train(config, tmp_path / "run", resume=True, show_progress=False)["adapter_update"] == 2


class StopsAfter(Callback):
    """Ends a run as Ctrl-C does."""

    def __init__(self, update: int) -> None:
        self.last = update + 1

    def on_update(self, update: Update) -> None:
        if update.index == self.last:
            raise KeyboardInterrupt


def test_without_a_choice_the_stored_format_is_think_action(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    assert msgrpo("train", *flags, "--updates", 2, "--output-dir", tmp_path / "run").code == 0
    assert stored(tmp_path / "run") == {"think-action"}


def test_a_format_of_ones_own_plays_and_trains_an_update(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "own_format.py").write_text(OWN)
    own = ["--prompt-format", "own_format:Short"]
    done = msgrpo("train", *flags, "--updates", 1, *own, "--eval-every", 1, "--output-dir", "run", folder=tmp_path)
    assert done.code == 0, done.err
    assert stored(tmp_path / "run") == {"own_format:Short"}
    played = msgrpo("play", "FrozenLake-NotSlippery-v1", "--player", "run/adapter", "--max-new-tokens", 4, folder=tmp_path)
    assert (played.code, "would import code" in played.err) == (2, True)
    typed = msgrpo("play", "FrozenLake-NotSlippery-v1", "--player", "run/adapter", "--max-new-tokens", 4, *own, folder=tmp_path)
    assert typed.code == 0, typed.err


def test_a_format_in_a_file_never_imports(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('prompt_format = "own_format:Short"\n')
    with pytest.raises(UserError, match="would import code"):
        load_config(path)
    path.write_text(to_toml(replace(TrainConfig(), prompt_format="json")))
    assert load_config(path).prompt_format == "json"
    with pytest.raises(UserError, match="did you mean 'json'"):
        TrainConfig(prompt_format="jsn")
