"""Switches of a chat template and sampling settings are in the identity of a run; without them, runs keep their hashes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.untrusted import _check_config
from msgrpo_hub.players.registry import Player, identify
from msgrpo_hub.players.settings import PlayerSettings
from tests.players.adapters import SUITE, adapt, hash_of
from tests.stored import stored_runs

ROOT = Path(__file__).parents[2]
SWITCHED = "{% if enable_thinking is defined and not enable_thinking %}quick {% endif %}"
SERVER = "endpoint:http://127.0.0.1:9/v1#m"


@pytest.fixture(scope="module")
def switched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in base with a template that has a switch."""
    folder = Path(shutil.copytree(pocket_path(), tmp_path_factory.mktemp("switched") / "base"))
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text() + SWITCHED)
    return folder


def played(folder: Path | str, **settings: Any) -> Player:
    return identify(str(folder), PlayerSettings(**settings))


def test_without_other_settings_an_identity_is_that_of_a_stored_run() -> None:
    [stored] = stored_runs("pocket").glob("*/FrozenLake-NotSlippery-v1/*/config.lock.json")
    before = json.loads(stored.read_text())["identity"]
    now = played("pocket", temperature=before["temperature"], max_new_tokens=before["max_new_tokens"]).identity
    versions = {name: before[name] for name in ("torch", "transformers", "peft")}
    assert now | versions | {"batch_size": before["batch_size"]} == before


def test_every_sampling_setting_and_switch_of_a_model_is_in_its_run_hash(switched: Path) -> None:
    players = {
        "plain": played(switched),
        "switch": played(switched, chat_template_kwargs={"enable_thinking": True}),
        "top-k": played(switched, top_k=20),
        "top-p": played(switched, top_p=0.95),
    }
    assert len({hash_of(player) for player in players.values()}) == len(players)
    assert players["switch"].identity["chat_template_kwargs.enable_thinking"] is True
    assert players["plain"].identity["chat_template_kwargs.enable_thinking"] is False  # the default
    scored = [hash_of(played(switched, mode="score", **one)) for one in ({"temperature": 0.1}, {"top_k": 3})]
    assert scored[0] == scored[1]


def test_every_setting_of_a_server_is_in_its_run_hash() -> None:
    settings: list[dict[str, Any]] = [{}, {"top_k": 20}, {"top_p": 0.9}, {"chat_template_kwargs": {"enable_thinking": False}}]
    assert len({hash_of(played(SERVER, **one)) for one in settings}) == len(settings)


def test_a_run_with_switches_and_sampling_settings_can_be_published(switched: Path) -> None:
    from msgrpo_hub.evaluation.runner import run_config

    player = played(switched, top_k=20, top_p=0.95, chat_template_kwargs={"enable_thinking": False, "date_string": "1 Jan 2025"})
    _check_config(run_config(player, SUITE, SUITE.tasks[0]))


def test_an_adapter_plays_with_the_switches_it_was_trained_with(switched: Path, tmp_path: Path) -> None:
    adapter = adapt(str(switched), tmp_path / "adapter", 0.05)
    stored = {"prompt_format": "json", "chat_template_kwargs": {"enable_thinking": False}}
    (adapter / "msgrpo.json").write_text(json.dumps(stored))
    player: Any = played(adapter)
    assert player.identity["chat_template_kwargs.enable_thinking"] is False
    [text] = player.policy.encoder.template.render([[{"role": "user", "content": "?"}]])
    assert text.endswith("quick ")
    overridden: Any = played(adapter, chat_template_kwargs={"enable_thinking": True})
    assert overridden.policy.chat_template_kwargs == {"enable_thinking": True}


def test_results_of_one_adapter_with_two_templates_are_never_mixed(switched: Path, tmp_path: Path) -> None:
    adapter = adapt(str(switched), tmp_path / "adapter", 0.05)
    first = played(adapter)
    (adapter / "chat_template.jinja").write_text((switched / "chat_template.jinja").read_text() + "Now:")
    second = played(adapter)
    assert first.identity["adapter_commit"] != second.identity["adapter_commit"]
    assert first.identity["chat_template"] != second.identity["chat_template"]
    assert hash_of(first) != hash_of(second)
    assert first.folder != second.folder


def test_a_reserved_variable_of_a_template_is_refused() -> None:
    with pytest.raises(UserError, match="the variable 'messages' in chat_template_kwargs cannot be set"):
        PlayerSettings(chat_template_kwargs={"messages": "x"})
