"""Adapters in a folder of a repository, as the Hub's tools write it: USER/REPO/FOLDER."""

from __future__ import annotations

from pathlib import Path

import pytest

from msgrpo_hub.evaluation.suites import task_hash
from msgrpo_hub.games import make_game
from tests.hub.conftest import msgrpo
from tests.hub.hostile import Files, downloaded, open_model, put_here
from tests.hub.test_adapters import SUITE
from tests.hub.test_failures import OFFLINE, UNREACHABLE, play
from tests.hub_server.client import LOADS_MODELS
from tests.hub_server.lanes import Loopback

warm = LOADS_MODELS


@pytest.fixture
def repo(loopback: Loopback, sound_adapter: Files) -> str:
    """Two adapters in folders, and something else at the top."""
    folders = {f"{folder}/{name}": content for folder in ("a", "steps/20") for name, content in sound_adapter.items()}
    return put_here(loopback, {**folders, "config.json": b"{}", "b/README.md": b"# No adapter"})


def resolved(name: str) -> dict[str, str]:
    """In the client's process: what identifies a player, and the name that loads it again."""
    from msgrpo_hub.downloads.fetching import resolve

    sources = resolve(name)
    return {**sources.identity(), "pinned": sources.pinned}


@pytest.mark.parametrize("folder", ["a", "steps/20"])
def test_an_adapter_in_a_folder_plays_and_is_known_by_commit_and_folder(loopback: Loopback, repo: str, folder: str) -> None:
    commit, name = loopback.refs(repo)["refs/heads/main"], f"{repo}/{folder}"
    assert play(loopback.owner, name).code == 0
    assert downloaded(loopback) == {f"{folder}/adapter_config.json", f"{folder}/adapter_model.safetensors"}
    identity = loopback.owner.call(resolved, name)
    assert (identity["adapter"], identity["adapter_commit"]) == (name, commit)
    assert identity["pinned"].endswith(f"+{name}@{commit}")
    for player in (f"pocket+{name}", f"{name}@{commit}", f"pocket+{name}@main"):
        assert loopback.owner.call(resolved, player)["adapter"] == name
        assert loopback.owner.call(open_model, *player.split("+"))[0] == "loaded"


def test_an_adapter_in_a_folder_is_evaluated_under_its_whole_name(loopback: Loopback, repo: str, tmp_path: Path) -> None:
    suite, task = tmp_path / "tiny.toml", "FrozenLake-NotSlippery-v1"
    suite.write_text(SUITE.format(hash=task_hash(make_game(task))))
    out = tmp_path / "results"
    done = loopback.owner.attempt(
        msgrpo, "eval", f"{repo}/a", "--suite", suite, "--output-dir", out, "--max-new-tokens", 2, "--batch-size", 2
    )
    assert done.code == 0, done.err
    commit = loopback.refs(repo)["refs/heads/main"]
    assert [path.parent.name for path in out.glob(f"*/*+{commit[:12]}")] == [f"{repo}/a".replace("/", "__")]


@pytest.mark.parametrize("network", [OFFLINE, UNREACHABLE], ids=["offline", "unreachable"])
def test_without_a_network_the_cached_commit_of_the_folder_is_used(
    loopback: Loopback, repo: str, network: dict[str, str]
) -> None:
    before = loopback.owner.call(resolved, f"{repo}/steps/20")
    assert play(loopback.owner, f"{repo}/steps/20").code == 0
    finished = loopback.client(**network).attempt(resolved, f"{repo}/steps/20")
    assert finished.value == before, finished.err
    assert play(loopback.client(**network), f"{repo}/steps/20").code == 0


def test_a_folder_without_an_adapter_is_one_line(loopback: Loopback, repo: str) -> None:
    for folder in ("b", "c/d"):
        message, _ = loopback.owner.call(open_model, f"{repo}/{folder}")
        assert message == f"no adapter in the folder {folder!r} of {repo!r}: expected adapter_config.json there"
    message, _ = loopback.owner.call(open_model, "ada/missing/folder")
    assert message.startswith("'ada/missing/folder', HTTP 404")
