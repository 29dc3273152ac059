"""The identity of a player: its name, its commits and its settings, all in the hash of its run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from msgrpo_hub.downloads.fetching import list_files, resolve
from msgrpo_hub.downloads.names import content_hash, pocket_path
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.runner import run_config
from msgrpo_hub.evaluation.verify import _check_claims
from msgrpo_hub.players.registry import SCRIPTED, Player, identify
from msgrpo_hub.players.settings import PlayerSettings
from tests.hub_server.client import LOADS_MODELS, put
from tests.hub_server.lanes import Loopback, loopback, loopback_server
from tests.players.adapters import SUITE, adapt, hash_of
from tests.stored import stored_runs

__all__ = ["loopback", "loopback_server"]
warm = LOADS_MODELS
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


def test_every_setting_of_a_model_is_in_its_run_hash(switched: Path) -> None:
    settings: list[dict[str, Any]] = [
        *(
            {},
            {"temperature": 0.0},
            {"max_new_tokens": 255},
            {"mode": "score"},
            {"engine": "plain"},
            {"top_k": 20},
            {"top_p": 0.95},
        ),
        *({"chat_template_kwargs": {"enable_thinking": True}}, {"chat_template": str(pocket_path() / "chat_template.jinja")}),
    ]
    players = [played(switched, **each) for each in settings]
    assert len({hash_of(player) for player in players}) == len(players)
    assert len({player.folder for player in players}) == 1
    assert players[-2].identity["chat_template_kwargs.enable_thinking"] is True
    assert players[0].identity["chat_template_kwargs.enable_thinking"] is False  # the default
    for player in players:
        assert player.identity["dtype"] == "float32"
        assert all(player.identity[name] for name in ("torch", "transformers", "peft", "device"))
    _check_claims(run_config(players[-2], SUITE, SUITE.tasks[0]))  # it can be published


@pytest.mark.parametrize("settings", [{"temperature": 0.1}, {"top_k": 3}, {"top_p": 0.5}])
def test_sampling_settings_do_not_matter_to_a_player_that_compares_log_probabilities(settings: dict[str, Any]) -> None:
    assert hash_of(played("pocket", mode="score", **settings)) == hash_of(played("pocket", mode="score"))


def test_without_other_settings_an_identity_equals_a_stored_run() -> None:
    [stored] = stored_runs("pocket").glob("*/FrozenLake-NotSlippery-v1/*/config.lock.json")
    before = json.loads(stored.read_text())["identity"]
    now = played("pocket", temperature=before["temperature"], max_new_tokens=before["max_new_tokens"]).identity
    versions = {name: before[name] for name in ("torch", "transformers", "peft")}
    assert now | versions | {"batch_size": before["batch_size"]} == before


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
    assert first.identity["chat_template"] != (second := played(adapter)).identity["chat_template"]
    assert hash_of(first) != hash_of(second)


def test_another_dtype_or_version_is_another_run() -> None:
    player = played("pocket")
    for name in ("dtype", "device", "torch", "transformers", "peft", "base_commit"):
        assert hash_of(replace(player, identity=player.identity | {name: "other"})) != hash_of(player), name


@pytest.mark.parametrize("name", SCRIPTED)
def test_settings_of_models_are_nothing_to_a_scripted_player(name: str) -> None:
    first = identify(name, PlayerSettings())
    second = identify(name, PlayerSettings(temperature=0.0, mode="score", max_new_tokens=1, chat_template="none"))
    assert hash_of(first) == hash_of(second)
    assert first.folder == f"{name}/v1"


def test_every_model_and_setting_of_a_server_is_in_its_run_hash() -> None:
    names = [SERVER, SERVER.replace("#m", "#other"), SERVER.replace(":9", ":8")]
    models = [played(name) for name in names]
    assert len({player.folder for player in models}) == len(models)
    settings: list[dict[str, Any]] = [{"temperature": 0.0}, {"top_k": 20}, {"top_p": 0.9}]
    settings += [{"chat_template_kwargs": {"enable_thinking": False}}, {"extra_body": {"reasoning_effort": "low"}}]
    players = models + [played(SERVER, **each) for each in settings]
    assert len({hash_of(player) for player in players}) == len(players)
    with pytest.raises(UserError, match="use --mode generate"):
        played(SERVER, mode="score")


def test_without_a_network_a_commit_is_that_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    for revision in (None, "v1"):
        with pytest.raises(UserError, match=r"cannot load 'some/model'.* or a Hub id that can be reached or is cached"):
            list_files("some/model", revision)
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = tmp_path / "models--some--model"
    for path, text in ((f"snapshots/{commit}/config.json", "{}"), ("refs/main", commit)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    assert list_files("some/model").content == commit
    assert list_files("some/model", commit).content == commit
    sources = resolve("pocket+some/model")
    assert (sources.adapter, sources.adapter_commit) == ("some/model", commit)
    assert sources.pinned == f"{pocket_path()}+some/model@{commit}"


def published(name: str) -> tuple[dict[str, Any], str, str]:
    player = identify(name, PlayerSettings())
    return player.identity, player.name, player.folder


@pytest.mark.slow
def test_base_and_adapter_are_pinned_to_commits_of_their_own(loopback: Loopback, place: Path, tmp_path: Path) -> None:
    base, adapter = loopback.repository(), loopback.repository()
    files = {
        path.name: path.read_bytes() for path in pocket_path().iterdir() if path.suffix in (".json", ".jinja", ".safetensors")
    }
    b1 = loopback.owner.call(put, base, files)
    b2 = loopback.owner.call(put, base, {"README.md": b"# newer\n"})
    config = json.loads((place / "runs" / "adapter" / "adapter_config.json").read_text())
    config |= {"base_model_name_or_path": base, "revision": b1}
    adapted = {"adapter_config.json": json.dumps(config).encode()}
    adapted["adapter_model.safetensors"] = (place / "runs" / "adapter" / "adapter_model.safetensors").read_bytes()
    a1 = loopback.owner.call(put, adapter, adapted)
    adapt(str(pocket_path()), tmp_path / "stronger", 0.1)
    a2 = loopback.owner.call(
        put, adapter, {"adapter_model.safetensors": (tmp_path / "stronger" / "adapter_model.safetensors").read_bytes()}
    )
    for name, commits in {
        base: (b2, None),
        adapter: (b1, a2),  # its configuration names the commit of its base
        f"{base}@{b1}+{adapter}@{a1}": (b1, a1),
        f"{base}+{adapter}@{a1}": (b2, a1),
    }.items():
        identity, shown, folder = loopback.owner.call(published, name)
        assert (identity["base_commit"], identity.get("adapter_commit")) == commits, name
        assert (identity["base"], identity.get("adapter")) == (base, adapter if commits[1] else None)
        assert shown == name
        plain = "+".join(part.partition("@")[0].replace("/", "__") for part in name.split("+"))
        assert folder == f"{plain}/{'+'.join(commit[:12] for commit in commits if commit)}"
    assert loopback.owner.attempt(published, f"{base}@none").error == "UserError"


@pytest.mark.parametrize(
    "file",
    ["config.json", "generation_config.json", "tokenizer.json", "chat_template.jinja", "merges.txt", "model.safetensors"],
)
def test_every_file_that_affects_replies_is_in_the_commit(file: str, tmp_path: Path) -> None:
    shutil.copytree(pocket_path(), tmp_path / "base")
    (tmp_path / "base" / "merges.txt").write_text("a b\n")
    before = content_hash(tmp_path / "base")
    (tmp_path / "base" / "README.md").write_text("better than ever")
    assert content_hash(tmp_path / "base") == before
    with (tmp_path / "base" / file).open("a") as opened:
        opened.write(" ")
    changed = content_hash(tmp_path / "base")
    assert changed != before
    (tmp_path / "base" / file).rename(tmp_path / "base" / f"z-{file}")
    assert content_hash(tmp_path / "base") not in (before, changed)
