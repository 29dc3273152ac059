"""A run trains in its prompt format, stores it with the adapter, and takes a format of one's own."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from transformers import AutoTokenizer

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.language_model import LanguageModel, probe_prompt
from msgrpo_hub.training import train
from msgrpo_hub.training.callbacks import Callback, Update
from msgrpo_hub.training.config import TrainConfig, load_config

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


OTHER = (
    "{% for m in messages %}({{ m['role'] }}) {{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}(me){% if enable_thinking is not false %}<think>{% endif %}{% endif %}"
)


def test_an_adapter_plays_with_the_template_it_was_trained_with_and_the_next_command_works(
    msgrpo: Command, flags: list[str], tiny_model: Path, tmp_path: Path
) -> None:
    """Also on a base that has no template, and with the switch that the run set by itself."""
    base = Path(shutil.copytree(tiny_model, tmp_path / "base"))
    (base / "chat_template.jinja").unlink()
    (tmp_path / "other.jinja").write_text(OTHER)
    flags = [str(base) if flag == str(tiny_model) else flag for flag in flags]
    done = msgrpo("train", *flags, "--updates", 2, "--chat-template", "other.jinja", "--output-dir", "run", folder=tmp_path)
    assert done.code == 0, done.err
    assert done.err.count("own thinking is limited with") == 1
    (tmp_path / "other.jinja").unlink()
    for adapter in (tmp_path / "run" / "adapter", tmp_path / "run" / "best"):
        assert (adapter / "chat_template.jinja").read_text() == OTHER
        agent = LanguageModel.from_pretrained(str(adapter))
        assert agent.render([probe_prompt(agent)])[0].endswith("<|end|>(me)")
        assert agent.chat_template_kwargs == {"enable_thinking": False}
    [command] = re.findall(r"Next: msgrpo (.*)", done.err)
    assert msgrpo(*command.split(), folder=tmp_path).code == 0


def test_a_run_that_starts_from_an_adapter_takes_its_template_and_tokenizer(tiny_model: Path, tmp_path: Path) -> None:
    small: dict[str, Any] = {"updates": 1, "groups": 1, "group_size": 2, "selected_per_group": 2, "max_new_tokens": 4}
    config = TrainConfig(model=str(tiny_model), eval_every=0, test_episodes=0, lora_rank=4, **small)
    train(config, tmp_path / "first", show_progress=False)
    given = tmp_path / "first" / "adapter"
    tokenizer = AutoTokenizer.from_pretrained(tiny_model, eos_token="<|user|>")
    tokenizer.chat_template = OTHER
    tokenizer.save_pretrained(given)
    train(replace(config, init_adapter=str(given)), tmp_path / "second", show_progress=False)
    agents = [LanguageModel.from_pretrained(str(adapter)) for adapter in (given, tmp_path / "second" / "adapter")]
    assert [(agent.tokenizer.eos_token, agent.tokenizer.chat_template) for agent in agents] == [("<|user|>", OTHER)] * 2
    assert agents[0].encode([probe_prompt(agents[0])]) == agents[1].encode([probe_prompt(agents[1])])


def test_a_run_on_the_built_in_base_stores_no_template(tmp_path: Path) -> None:
    small: dict[str, Any] = {"updates": 1, "groups": 1, "group_size": 2, "selected_per_group": 2, "max_new_tokens": 4}
    train(TrainConfig(eval_every=0, test_episodes=0, **small), tmp_path / "run", show_progress=False)
    files = {path.name for path in (tmp_path / "run" / "adapter").iterdir()}
    assert files == {"adapter_config.json", "adapter_model.safetensors", "msgrpo.json"}


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
