"""Names of players: no path of this machine in results, one identity for all names, and one line for a name without player."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from msgrpo_hub.downloads.names import pocket_path, split_adapter
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.players.registry import identify
from msgrpo_hub.players.settings import PlayerSettings
from tests.hub_server.client import LOADS_MODELS
from tests.players.adapters import SUITE, hash_of

warm = LOADS_MODELS


def names(place: Path) -> Iterator[tuple[str, str]]:
    """Names on the command line, and their names in results."""
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
    assert split_adapter(base) == (base, "")
    monkeypatch.chdir(tmp_path)
    assert identify("c++/base+c++/adapter", PlayerSettings()).name == "folder:base+folder:adapter"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("optimall", "unknown player 'optimall': did you mean 'optimal'"),
        ("pockett", "unknown player 'pockett': did you mean 'pocket'"),
        ("@/none", "no model in the folder '@/none': expected config.json"),
        ("pocket+@/none", "no model in the folder '@/none'"),
        ("@/none+pocket", "no model in the folder '@/none'"),
        ("@/models", "no model in the folder '@/models'"),
        ("@/runs", "no model in the folder '@/runs'.*; did you mean '@/runs/adapter'"),
        ("pocket+@/models/base", "the adapter '@/models/base' does not fit its base|'@/models/base'.*adapter_config.json"),
        ("@/runs/adapter+@/runs/adapter", "is a LoRA adapter, not a base model"),
        ("endpoint:nonsense", "cannot parse the player 'endpoint:nonsense': expected endpoint:URL#MODEL"),
        ("dqn:@/none", "no DQN in '@/none'"),
        ("", "''"),
    ],
)
def test_a_player_that_cannot_be_found_is_one_line(name: str, words: str, place: Path) -> None:
    with pytest.raises(UserError, match=words.replace("@", str(place))) as caught:
        identify(name.replace("@", str(place)), PlayerSettings())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["@/runs/idle", "pocket+@/runs/idle", "@/models/base+@/runs/idle"])
def test_an_adapter_that_changes_nothing_is_refused(name: str, place: Path) -> None:
    with pytest.raises(UserError, match=r"the adapter '.*runs/idle' does not change its base: both give the same output"):
        identify(name.replace("@", str(place)), PlayerSettings())


def test_an_adapter_plays_alike_alone_and_on_its_base_and_differs_from_it(place: Path, tmp_path: Path) -> None:
    settings = PlayerSettings(temperature=0.0, max_new_tokens=12)
    names = ["pocket", str(place / "runs" / "adapter"), f"pocket+{place / 'runs' / 'adapter'}"]
    results = [run_task(identify(name, settings), SUITE, SUITE.tasks[0], tmp_path) for name in names]
    base, alone, both = ([step.completion.text for e in result.episodes for step in e.steps] for result in results)
    assert base != alone == both
    assert len({result.folder for result in results}) == 3
