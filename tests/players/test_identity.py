"""Who plays: pinned to commits, never taken for another, and told without a path of this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from msgrpo_hub.downloads.hashes import content_hash
from msgrpo_hub.downloads.names import pocket_path, split_adapter
from msgrpo_hub.downloads.sources import commit_of, resolve
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import run_hash
from msgrpo_hub.evaluation.runner import run_config, run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.models.adapter_check import adapter_effect
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.players.identity import Player, PlayerSettings, identify
from msgrpo_hub.players.registry import SCRIPTED
from tests.hub_server.client import LOADS_MODELS
from tests.hub_server.fixture import loopback, loopback_server
from tests.hub_server.lanes import Loopback
from tests.hub_server.operations import put

__all__ = ["loopback", "loopback_server"]

SUITE = Suite(name="mine", tasks=("FrozenLake-NotSlippery-v1",), episodes=1)
warm = LOADS_MODELS


def hash_of(player: Player) -> str:
    return run_hash(run_config(player, SUITE, SUITE.tasks[0]))


def adapt(base: str, folder: Path, size: float, **config: Any) -> Path:
    """A LoRA adapter; with size 0 it is as it begins, and changes nothing."""
    torch.manual_seed(0)
    settings = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", **config)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), settings)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.fill_(size)
    model.save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the built-in base under a path that tells a name, and adapters of it, one of which does nothing."""
    folder = tmp_path_factory.mktemp("home") / "zaphod"
    shutil.copytree(pocket_path(), folder / "models" / "base")
    adapt(str(pocket_path()), folder / "runs" / "adapter", 0.05)
    adapt(str(pocket_path()), folder / "runs" / "idle", 0.0)
    adapt(str(folder / "models" / "base"), folder / "runs" / "of-the-copy", 0.05)
    return folder


# ---- an adapter that was not applied


@pytest.mark.parametrize("name", ["@/runs/idle", "pocket+@/runs/idle", "@/models/base+@/runs/idle"])
def test_an_adapter_that_changes_nothing_is_refused(name: str, place: Path) -> None:
    """Seen elsewhere: an adapter silently not applied, its base measured in its name."""
    with pytest.raises(
        UserError, match=r"the adapter '.*runs/idle' does not change its base: after a probe prompt both say"
    ) as caught:
        identify(name.replace("@", str(place)), PlayerSettings())
    assert "\n" not in str(caught.value)


def test_the_probe_measures_what_an_adapter_does_and_leaves_it_switched_on(place: Path) -> None:
    agent = LanguageModel.from_pretrained("pocket", str(place / "runs" / "adapter"))
    effect = adapter_effect(agent)
    assert 1e-4 < effect < 50
    assert adapter_effect(agent) == effect
    assert adapter_effect(LanguageModel.from_pretrained("pocket", str(place / "runs" / "idle"))) == 0


def test_an_adapter_that_does_something_plays_otherwise_than_its_base_and_as_it_does_alone(place: Path, tmp_path: Path) -> None:
    settings = PlayerSettings(temperature=0.0, max_new_tokens=12)
    names = ["pocket", str(place / "runs" / "adapter"), f"pocket+{place / 'runs' / 'adapter'}"]
    results = [run_task(identify(name, settings), SUITE, SUITE.tasks[0], tmp_path) for name in names]
    base, alone, both = ([step.completion.text for e in result.episodes for step in e.steps] for result in results)
    assert base != alone == both
    assert len({result.folder for result in results}) == 3


# ---- a folder counts by its content


def test_a_copy_of_a_model_has_another_name_and_the_same_commit(place: Path) -> None:
    original, copy = identify("pocket", PlayerSettings()), identify(str(place / "models" / "base"), PlayerSettings())
    assert (original.name, copy.name) == ("pocket", "folder:base")
    assert original.identity["base_commit"] == copy.identity["base_commit"] == content_hash(pocket_path())
    assert hash_of(original) != hash_of(copy)
    assert original.folder.split("/")[1] == copy.folder.split("/")[1] == content_hash(pocket_path())[:12]


def test_one_changed_weight_is_another_commit(tmp_path: Path) -> None:
    shutil.copytree(pocket_path(), tmp_path / "base")
    before = commit_of(str(tmp_path / "base"), None)
    weights = load_file(tmp_path / "base" / "model.safetensors")
    name = sorted(weights)[0]
    weights[name].view(-1)[0] += 1e-3
    save_file(weights, tmp_path / "base" / "model.safetensors", {"format": "pt"})
    assert commit_of(str(tmp_path / "base"), None) != before


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
    with pytest.raises(UserError, match=r"no model in the folder .*expected config.json and weights there"):
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
    with pytest.raises(UserError, match="take --mode generate"):
        identify("endpoint:http://127.0.0.1:9/v1#m", PlayerSettings(mode="score"))


def test_two_models_of_one_server_are_two_players() -> None:
    names = ["endpoint:http://127.0.0.1:9/v1#a", "endpoint:http://127.0.0.1:9/v1#b", "endpoint:http://127.0.0.1:8/v1#a"]
    players = [identify(name, PlayerSettings()) for name in names]
    assert len({hash_of(player) for player in players}) == len({player.folder for player in players}) == 3
    assert hash_of(identify(names[0], PlayerSettings(temperature=0.0))) != hash_of(players[0])


# ---- names without paths


def names(place: Path) -> Iterator[tuple[str, str]]:
    """How a player is named on the command line, and how in results."""
    base, adapter = place / "models" / "base", place / "runs" / "adapter"
    yield str(base), "folder:base"
    yield f"{base}/", "folder:base"
    yield str(adapter), "folder:adapter"
    yield f"pocket+{adapter}", "pocket+folder:adapter"
    yield f"{base}+{adapter}", "folder:base+folder:adapter"
    yield str(place / "runs" / "of-the-copy"), "folder:of-the-copy"
    yield str(pocket_path()), "pocket"


def test_no_path_of_this_machine_gets_into_results_or_their_folders(place: Path, tmp_path: Path) -> None:
    for given, shown in names(place):
        player = identify(given, PlayerSettings(max_new_tokens=4))
        result = run_task(player, SUITE, SUITE.tasks[0], tmp_path)
        assert result.player == shown
        text = "".join(file.read_text(errors="replace") for file in result.folder.iterdir())
        for secret in (str(place), "zaphod", str(pocket_path()), str(place.parent)):
            assert secret not in text, given
            assert secret not in str(result.folder.relative_to(tmp_path)), given


def test_a_player_is_the_same_from_wherever_it_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absolute = {hash_of(identify(str(place / "runs" / "adapter"), PlayerSettings()))}
    for folder, name in (
        (place, "runs/adapter"),
        (place, "./runs/../runs/adapter"),
        (place / "runs" / "adapter", "."),
        (place / "runs", "adapter/"),
    ):
        monkeypatch.chdir(folder)
        player = identify(name, PlayerSettings())
        assert {hash_of(player)} == absolute, name
        assert player.folder.count("/") == 1


def test_a_folder_with_the_name_of_a_player_does_not_take_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [hash_of(identify(name, PlayerSettings())) for name in ("greedy", "pocket")]
    for name in ("greedy", "pocket"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert [hash_of(identify(name, PlayerSettings())) for name in ("greedy", "pocket")] == before


def test_a_plus_in_a_path_belongs_to_the_path(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("base", "adapter"):
        shutil.copytree(place / {"base": "models", "adapter": "runs"}[name] / name, tmp_path / "c++" / name)
    base, adapter = (str(tmp_path / "c++" / name) for name in ("base", "adapter"))
    assert identify(base, PlayerSettings()).name == "folder:base"
    assert identify(f"{base}+{adapter}", PlayerSettings()).identity["adapter"] == "folder:adapter"
    assert split_adapter(f"org/base@v1+{adapter}") == ("org/base@v1", adapter)
    assert split_adapter(base) == (base, "")
    monkeypatch.chdir(tmp_path)
    assert identify("c++/base+c++/adapter", PlayerSettings()).name == "folder:base+folder:adapter"


def test_a_run_folder_is_one_folder_per_player_and_commit(place: Path) -> None:
    base, adapter = place / "models" / "base", place / "runs" / "adapter"
    player = identify(f"{base}+{adapter}", PlayerSettings())
    assert player.folder == f"models__base+runs__adapter/{content_hash(base)[:12]}+{content_hash(adapter)[:12]}"
    assert identify("endpoint:http://127.0.0.1:9/v1#../../etc", PlayerSettings()).folder.count("/") == 1


# ---- who cannot be found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("optimall", "unknown player 'optimall': did you mean 'optimal'"),
        ("pockett", "unknown player 'pockett': did you mean 'pocket'"),
        ("@/none", "no model in the folder '@/none'"),
        ("pocket+@/none", "no model in the folder '@/none'"),
        ("@/none+pocket", "no model in the folder '@/none'"),
        ("@/models", "no model in the folder '@/models'"),
        ("pocket+@/models/base", "the adapter '@/models/base' does not fit its base|'@/models/base'.*adapter_config.json"),
        ("@/runs/adapter+@/runs/adapter", "is a LoRA adapter, not a base model"),
        ("endpoint:nonsense", "cannot read the player 'endpoint:nonsense': expected endpoint:URL#MODEL"),
        ("dqn:@/none", "no DQN in '@/none'"),
        ("", "''"),
    ],
)
def test_a_player_that_cannot_be_found_is_one_line(name: str, words: str, place: Path) -> None:
    with pytest.raises(UserError, match=words.replace("@", str(place))) as caught:
        identify(name.replace("@", str(place)), PlayerSettings())
    assert "\n" not in str(caught.value)


@pytest.fixture
def unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hub that does not answer, though nothing says that we are offline, and an empty cache."""
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_without_a_network_a_commit_is_that_of_the_cache(unreachable: Path) -> None:
    for revision in (None, "v1"):
        with pytest.raises(UserError, match=r"cannot load 'some/model'.* or a Hub id that can be reached or is cached"):
            commit_of("some/model", revision)
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = unreachable / "models--some--model"
    for path, text in ((f"snapshots/{commit}/config.json", "{}"), ("refs/main", commit)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    assert commit_of("some/model", None) == commit
    assert commit_of("some/model", commit) == commit
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
