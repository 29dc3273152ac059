"""Who a player is: its name, its commit, and what is in the hash of its run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from msgrpo_hub.downloads.fetching import list_files, resolve
from msgrpo_hub.downloads.names import content_hash, pocket_path
from msgrpo_hub.errors import UserError
from msgrpo_hub.players.registry import SCRIPTED, identify, make_player
from msgrpo_hub.players.settings import PlayerSettings
from tests.hub_server.client import LOADS_MODELS, put
from tests.hub_server.lanes import Loopback, loopback, loopback_server
from tests.players.adapters import adapt, hash_of

__all__ = ["loopback", "loopback_server"]
warm = LOADS_MODELS


# ---- a folder counts by its content


def test_a_copy_of_a_model_has_another_name_and_the_same_commit(place: Path) -> None:
    original, copy = identify("pocket", PlayerSettings()), identify(str(place / "models" / "base"), PlayerSettings())
    assert (original.name, copy.name) == ("pocket", "folder:base")
    assert original.identity["base_commit"] == copy.identity["base_commit"] == content_hash(pocket_path())
    assert hash_of(original) != hash_of(copy)
    assert original.folder.split("/")[1] == copy.folder.split("/")[1] == content_hash(pocket_path())[:12]


def test_one_changed_weight_is_another_commit(tmp_path: Path) -> None:
    shutil.copytree(pocket_path(), tmp_path / "base")
    before = list_files(str(tmp_path / "base")).content
    weights = load_file(tmp_path / "base" / "model.safetensors")
    name = sorted(weights)[0]
    weights[name].view(-1)[0] += 1e-3
    save_file(weights, tmp_path / "base" / "model.safetensors", {"format": "pt"})
    assert list_files(str(tmp_path / "base")).content != before


@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "tokenizer.json", "chat_template.jinja", "merges.txt"])
def test_every_file_that_decides_what_a_model_says_is_in_its_commit(file: str, tmp_path: Path) -> None:
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


def test_a_folder_without_a_model_has_no_commit(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("")
    with pytest.raises(UserError, match=r"no model in the folder .*expected config.json, tokenizer and weights there"):
        content_hash(tmp_path)


# ---- all that decides the replies is in the run hash


def test_how_a_model_acts_is_in_its_run_hash(tmp_path: Path) -> None:
    (tmp_path / "other.jinja").write_text((pocket_path() / "chat_template.jinja").read_text() + "{# other #}")
    settings = [
        PlayerSettings(),
        PlayerSettings(temperature=0.0),
        PlayerSettings(max_new_tokens=255),
        PlayerSettings(mode="score"),
        PlayerSettings(chat_template=str(tmp_path / "other.jinja")),
    ]
    players = [identify("pocket", one) for one in settings]
    assert len({hash_of(player) for player in players}) == len(players)
    assert len({player.folder for player in players}) == 1
    assert all(player.identity["dtype"] == "float32" for player in players)
    assert all(player.identity[package] for player in players for package in ("torch", "transformers", "peft", "device"))
    assert all(player.identity["engine"] == "fast" for player in players)


@pytest.mark.parametrize("name", ["pocket", "lake", "greedy"])
def test_a_player_without_identity_is_not_hashed_or_probed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [PlayerSettings(), PlayerSettings(mode="score")]
    expected = [type(identify(name, each).policy) for each in settings]
    for place in ("downloads.fetching.content_hash", "models.language_model.LanguageModel.adapter_effect"):
        monkeypatch.setattr(f"msgrpo_hub.{place}", None)
    assert [type(make_player(name, each)) for each in settings] == expected


def test_the_engine_that_was_chosen_is_in_the_run_hash_and_not_the_one_that_was_asked_for() -> None:
    auto, fast, plain = (identify("pocket", PlayerSettings(engine=engine)) for engine in ("auto", "fast", "plain"))
    assert [player.identity["engine"] for player in (auto, fast, plain)] == ["fast", "fast", "plain"]
    assert hash_of(auto) == hash_of(fast) != hash_of(plain)


def test_another_dtype_or_version_is_another_run(tmp_path: Path) -> None:
    shutil.copytree(pocket_path(), tmp_path / "half")
    model = AutoModelForCausalLM.from_pretrained(pocket_path(), dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "half")
    half = identify(str(tmp_path / "half"), PlayerSettings())
    assert half.identity["dtype"] == "bfloat16"
    for name in ("dtype", "device", "torch", "transformers", "peft", "base_commit"):
        assert hash_of(replace(half, identity=half.identity | {name: "other"})) != hash_of(half), name


def test_the_temperature_of_a_player_that_compares_log_probabilities_does_not_matter() -> None:
    first, second = (identify("pocket", PlayerSettings(mode="score", temperature=t)) for t in (0.1, 0.9))
    assert hash_of(first) == hash_of(second)


@pytest.mark.parametrize("name", SCRIPTED)
def test_settings_of_models_are_nothing_to_a_scripted_player(name: str) -> None:
    first = identify(name, PlayerSettings())
    second = identify(name, PlayerSettings(temperature=0.0, mode="score", max_new_tokens=1, chat_template="none"))
    assert hash_of(first) == hash_of(second)
    assert first.folder == f"{name}/v1"


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UserError, match="unknown mode 'scor': did you mean 'score'"):
        PlayerSettings(mode="scor")  # type: ignore[arg-type]


def test_a_server_gives_no_log_probabilities_of_our_choosing() -> None:
    with pytest.raises(UserError, match="use --mode generate"):
        identify("endpoint:http://127.0.0.1:9/v1#m", PlayerSettings(mode="score"))


def test_two_models_of_one_server_are_two_players() -> None:
    names = ["endpoint:http://127.0.0.1:9/v1#a", "endpoint:http://127.0.0.1:9/v1#b", "endpoint:http://127.0.0.1:8/v1#a"]
    players = [identify(name, PlayerSettings()) for name in names]
    assert len({hash_of(player) for player in players}) == len({player.folder for player in players}) == 3
    assert hash_of(identify(names[0], PlayerSettings(temperature=0.0))) != hash_of(players[0])


@pytest.fixture
def unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hub that does not answer, though nothing says that we are offline, and an empty cache."""
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_without_a_network_a_commit_is_that_of_the_cache(unreachable: Path) -> None:
    for revision in (None, "v1"):
        with pytest.raises(UserError, match=r"cannot load 'some/model'.* or a Hub id that can be reached or is cached"):
            list_files("some/model", revision)
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = unreachable / "models--some--model"
    for path, text in ((f"snapshots/{commit}/config.json", "{}"), ("refs/main", commit)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    assert list_files("some/model").content == commit
    assert list_files("some/model", commit).content == commit
    sources = resolve("pocket+some/model")
    assert (sources.adapter, sources.adapter_commit) == ("some/model", commit)
    assert sources.pinned == f"{pocket_path()}+some/model@{commit}"


# ---- the Hub, on loopback


def published(name: str) -> tuple[dict[str, Any], str, str]:
    """Over there: identity, name and folder of a player."""
    player = identify(name, PlayerSettings())
    return player.identity, player.name, player.folder


@pytest.mark.slow
def test_base_and_adapter_are_pinned_to_commits_of_their_own(loopback: Loopback, place: Path, tmp_path: Path) -> None:
    """Seen elsewhere: an adapter loaded with the revision of its base."""
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


def test_the_number_of_requests_at_a_time_is_set_and_not_part_of_the_identity() -> None:
    name = "endpoint:http://127.0.0.1:9/v1#m"
    players = [identify(name, PlayerSettings(concurrency=n)) for n in (1, 8, 50)]
    assert [getattr(player.policy, "concurrency", None) for player in players] == [1, 8, 50]
    assert len({hash_of(player) for player in players}) == 1
    with pytest.raises(UserError, match="concurrency = 0: expected at least 1"):
        identify(name, PlayerSettings(concurrency=0))
