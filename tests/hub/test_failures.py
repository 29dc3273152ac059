"""Downloads that fail, the cache without a network, and adapters in folders of a repository."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from msgrpo_hub.downloads.names import pocket_path
from tests.hub.commands import Files, downloaded, head, play, put_here
from tests.hub.test_hostile import open_model
from tests.hub.test_uploading import said
from tests.hub_server.client import LOADS_MODELS, Finished, put
from tests.hub_server.lanes import Loopback

warm = LOADS_MODELS

NETWORKS = pytest.mark.parametrize(
    "network", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}], ids=["offline", "unreachable"]
)


def load(name: str) -> str:
    from msgrpo_hub.downloads.fetching import list_files
    from msgrpo_hub.models.language_model import LanguageModel

    LanguageModel.from_pretrained(name)
    return list_files(name.partition("@")[0]).commit


def resolved(name: str) -> dict[str, str]:
    from msgrpo_hub.downloads.fetching import resolve

    sources = resolve(name)
    return {**sources.identity(), "pinned": sources.pinned}


def refused(finished: Finished) -> str:
    assert finished.code == 2, finished.err
    assert "Traceback" not in finished.err
    return finished.err.splitlines()[-1]


@pytest.fixture
def model(loopback: Loopback, sound_base: Files) -> str:
    repo = put_here(loopback, sound_base)
    loopback.stored(repo).private = False
    return repo


def hide(loopback: Loopback, repo: str) -> None:
    loopback.stored(repo).private = True


def gate(loopback: Loopback, repo: str) -> None:
    loopback.stored(repo).gated = "manual"


@pytest.mark.parametrize(
    ("who", "name", "prepare", "words"),
    [
        ("nobody", "{}", hide, "is missing or private, and no token was found: check the name, run `hf auth login`"),
        ("stranger", "{}", hide, "it does not exist, or the token has no access"),
        ("stranger", "{}", gate, "'{}' is gated: request access on its page, log in with `hf auth login`"),
        ("owner", "{}@v9", gate, "'{}' has no such branch or commit"),
    ],
    ids=["no token", "hidden", "gated", "no such revision"],
)
def test_a_refusal_says_what_to_do(
    loopback: Loopback, model: str, who: str, name: str, prepare: Callable[[Loopback, str], None], words: str
) -> None:
    prepare(loopback, model)
    assert words.format(model) in refused(play(getattr(loopback, who), name.format(model)))


def test_a_cached_model_is_not_played_without_access(loopback: Loopback, model: str) -> None:
    """The Hub's client would return the cached files."""
    loopback.owner.call(load, model)
    hide(loopback, model)
    assert "is missing or private" in said(loopback.nobody.attempt(load, model))
    assert loopback.owner.call(load, model) == head(loopback, model)


def test_a_rate_limit_is_waited_for_in_a_download_and_reported_by_the_api_like_other_errors(
    loopback: Loopback, model: str
) -> None:
    for where in ("GET /api/models/", "HEAD .*/resolve/"):
        loopback.fail(where, times=99)
        assert "HTTP 503" in said(loopback.owner.attempt(load, model))
        loopback.world.faults.clear()
    loopback.fail("GET .*/resolve/", status=429)
    assert loopback.owner.call(load, model) == head(loopback, model)
    loopback.fail("GET /api/models/", status=429, times=99)
    assert "the rate limit is reached: wait five minutes" in said(loopback.owner.attempt(load, model))


def test_an_interrupted_download_is_completed(loopback: Loopback, model: str) -> None:
    loopback.fail("GET .*/resolve/.*/model.safetensors", status=0, truncate=100)
    assert loopback.owner.call(load, model) == head(loopback, model)
    [weights] = loopback.machine.link.rglob("model.safetensors")
    assert weights.read_bytes() == (pocket_path() / "model.safetensors").read_bytes()


@NETWORKS
def test_without_a_network_the_cached_commit_is_used_and_reported(
    loopback: Loopback, model: str, network: dict[str, str]
) -> None:
    commit = loopback.owner.call(load, model)
    loopback.owner.call(put, model, {"NOTES.md": b"later"})
    finished = loopback.client(**network).attempt(load, model)
    assert (finished.error, finished.value) == (None, commit), finished.err
    assert f"using {model} from the cache, at commit {commit}" in finished.err


@NETWORKS
def test_without_network_and_cache_the_error_names_what_is_missing(
    loopback: Loopback, model: str, network: dict[str, str]
) -> None:
    words = refused(play(loopback.client(**network), model))
    assert f"cannot load '{model}': expected 'pocket', a folder, or a Hub id that can be reached or is cached" in words
    loopback.owner.call(load, model)
    [weights] = loopback.machine.link.rglob("model.safetensors")
    weights.unlink()
    words = refused(play(loopback.client(**network), model))
    assert f"the cache has no complete copy of '{model}': expected config.json, tokenizer and weights" in words


@pytest.fixture
def folders(loopback: Loopback, sound_adapter: Files) -> str:
    files = {f"{folder}/{name}": content for folder in ("a", "steps/20") for name, content in sound_adapter.items()}
    return put_here(loopback, {**files, "config.json": b"{}", "b/README.md": b"# No adapter"})


@pytest.mark.parametrize("folder", ["a", "steps/20"])
def test_an_adapter_in_a_folder_plays_and_its_identity_is_commit_and_folder(
    loopback: Loopback, folders: str, folder: str
) -> None:
    commit, name = head(loopback, folders), f"{folders}/{folder}"
    assert play(loopback.owner, name).code == 0
    assert downloaded(loopback) == {f"{folder}/adapter_config.json", f"{folder}/adapter_model.safetensors"}
    identity = loopback.owner.call(resolved, name)
    assert (identity["adapter"], identity["adapter_commit"]) == (name, commit)
    assert identity["pinned"].endswith(f"+{name}@{commit}")
    for player in (f"pocket+{name}", f"{name}@{commit}", f"pocket+{name}@main"):
        assert loopback.owner.call(resolved, player)["adapter"] == name
        assert loopback.owner.call(open_model, *player.split("+"))[0] == "loaded"


@NETWORKS
def test_without_a_network_the_cached_commit_of_the_folder_is_used(
    loopback: Loopback, folders: str, network: dict[str, str]
) -> None:
    before = loopback.owner.call(resolved, f"{folders}/steps/20")
    assert play(loopback.owner, f"{folders}/steps/20").code == 0
    finished = loopback.client(**network).attempt(resolved, f"{folders}/steps/20")
    assert finished.value == before, finished.err
    assert play(loopback.client(**network), f"{folders}/steps/20").code == 0


def test_a_folder_without_an_adapter_is_one_line(loopback: Loopback, folders: str) -> None:
    for folder in ("b", "c/d"):
        message, _ = loopback.owner.call(open_model, f"{folders}/{folder}")
        assert message == f"no adapter in the folder {folder!r} of {folders!r}: expected adapter_config.json there"
    message, _ = loopback.owner.call(open_model, "ada/missing/folder")
    assert message.startswith("'ada/missing/folder', HTTP 404")
