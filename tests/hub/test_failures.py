"""Failures between this machine and the Hub, as the command line reports them. `test_uploading` has more about pushes."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from msgrpo_hub.downloads.names import pocket_path
from tests.hub.conftest import msgrpo
from tests.hub.test_uploading import said
from tests.hub_server.client import LOADS_MODELS, Client, Finished
from tests.hub_server.lanes import Loopback
from tests.hub_server.operations import create, put

warm = LOADS_MODELS

OFFLINE = {"HF_HUB_OFFLINE": "1"}
UNREACHABLE = {"HF_ENDPOINT": "http://127.0.0.1:9"}


def open_model(name: str) -> str:
    """In the client's process: loads a model, and returns the commit that it says it took."""
    from msgrpo_hub.downloads.fetching import list_files
    from msgrpo_hub.models.language_model import LanguageModel

    LanguageModel.from_pretrained(name)
    return list_files(name.partition("@")[0]).commit


def ask_before_training(model: str) -> None:
    """In the client's process: what `msgrpo train --push-to` asks first."""
    from msgrpo_hub.hub.adapters import check_push
    from msgrpo_hub.training.config import TrainConfig

    check_push(TrainConfig(model=model), "ada/lake")


def play(client: Client, model: str) -> Finished:
    return client.attempt(msgrpo, "play", "FrozenLake-NotSlippery-v1", "--player", model, "--seed", "0")


def refused(finished: Finished) -> str:
    """The error message, which is one line without a traceback."""
    assert finished.code == 2, finished.err
    assert "Traceback" not in finished.err
    return finished.err.splitlines()[-1]


@pytest.fixture
def model(loopback: Loopback) -> str:
    """The built-in base as a public repository of ada's."""
    repo = loopback.repository()
    loopback.owner.call(create, repo, private=False)
    files = {path.name: path.read_bytes() for path in pocket_path().iterdir() if path.name not in ("README.md", "scores.json")}
    loopback.owner.call(put, repo, files)
    loopback.forget_requests()
    return repo


def commit_of(loopback: Loopback, repo: str) -> str:
    return loopback.refs(repo)["refs/heads/main"]


# ---- who asks, and for what


def hide(loopback: Loopback, repo: str) -> None:
    loopback.stored(repo).private = True


def gate(loopback: Loopback, repo: str) -> None:
    loopback.stored(repo).gated = "manual"


@pytest.mark.parametrize(
    ("who", "name", "prepare", "words"),
    [
        ("nobody", "{}", hide, "is missing or private, and no token was found: check the name, run `hf auth login`"),
        ("wrong", "{}", hide, "HTTP 401"),
        ("stranger", "{}", hide, "it does not exist, or the token has no access"),
        ("owner", "ada/none", hide, "'ada/none', HTTP 404"),
        ("nobody", "{}", gate, "'{}' is gated: request access on its page, log in with `hf auth login`"),
        ("stranger", "{}", gate, "'{}' is gated: request access on its page"),
        ("owner", "{}@v9", gate, "'{}' has no such branch or commit"),
    ],
    ids=["no token", "wrong token", "hidden", "missing", "gated, no token", "gated, no access", "no such revision"],
)
def test_a_refusal_says_what_to_do(
    loopback: Loopback, model: str, who: str, name: str, prepare: Callable[[Loopback, str], None], words: str
) -> None:
    prepare(loopback, model)
    client = loopback.client("hf_wrong") if who == "wrong" else getattr(loopback, who)
    assert words.format(model) in refused(play(client, name.format(model)))


def test_a_cached_model_is_not_played_without_access(loopback: Loopback, model: str) -> None:
    """The Hub's client would return the cached files, whatever the Hub answers."""
    loopback.owner.call(open_model, model)
    hide(loopback, model)
    assert "is missing or private" in said(loopback.nobody.attempt(open_model, model))
    assert loopback.owner.call(open_model, model) == commit_of(loopback, model)


def test_a_gated_base_is_reported_before_an_adapter_of_it_is_trained_or_pushed(loopback: Loopback, model: str) -> None:
    loopback.owner.call(put, model, {"README.md": b"---\nlicense: mit\n---\n"})
    gate(loopback, model)
    assert "is gated: request access" in said(loopback.stranger.attempt(ask_before_training, model))
    loopback.stored(model).granted.add("bob")
    assert loopback.stranger.attempt(ask_before_training, model).error is None


# ---- the Hub has other things to do


@pytest.mark.parametrize("where", ["GET /api/models/", pytest.param("HEAD .*/resolve/", marks=pytest.mark.slow)])
def test_a_server_error_of_the_hub_is_reported_as_such(loopback: Loopback, model: str, where: str) -> None:
    loopback.fail("unavailable", where=where, times=99)
    assert "HTTP 503" in said(loopback.owner.attempt(open_model, model))


def test_an_interrupted_download_is_completed(loopback: Loopback, model: str) -> None:
    loopback.fail("truncated", where="GET .*/resolve/.*/model.safetensors")
    assert loopback.owner.call(open_model, model) == commit_of(loopback, model)
    [weights] = loopback.machine.link.rglob("model.safetensors")
    assert weights.read_bytes() == (pocket_path() / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["config.json", "chat_template.jinja"])
def test_a_file_that_arrives_shorter_than_listed_is_one_line(loopback: Loopback, model: str, name: str) -> None:
    """Another answer than the one that HEAD announced."""
    loopback.fail("unavailable", where=f"GET .*/resolve/.*/{name}", times=99, status=200)
    words = refused(play(loopback.owner, model))
    assert "check the network, then run the same command again" in words


# ---- no network


@pytest.mark.parametrize("network", [OFFLINE, UNREACHABLE], ids=["offline", "unreachable"])
def test_without_a_network_the_cached_commit_is_used_and_reported(
    loopback: Loopback, model: str, network: dict[str, str]
) -> None:
    commit = loopback.owner.call(open_model, model)
    loopback.owner.call(put, model, {"NOTES.md": b"later"})
    finished = loopback.client(**network).attempt(open_model, model)
    assert (finished.error, finished.value) == (None, commit), finished.err
    assert f"using {model} from the cache, at commit {commit}" in finished.err


@pytest.mark.parametrize("network", [OFFLINE, UNREACHABLE], ids=["offline", "unreachable"])
def test_without_network_and_cache_the_error_names_what_is_missing(
    loopback: Loopback, model: str, network: dict[str, str]
) -> None:
    words = refused(play(loopback.client(**network), model))
    assert f"cannot load '{model}': expected 'pocket', a folder, or a Hub id that can be reached or is cached" in words
    commit = loopback.owner.call(open_model, model)
    [weights] = loopback.machine.link.rglob("model.safetensors")
    weights.unlink()
    words = refused(play(loopback.client(**network), model))
    assert f"the cache holds commit {commit} without its model.safetensors" in words
    shutil.rmtree(loopback.machine.link / "hub")
    assert "is cached" in refused(play(loopback.client(**network), f"{model}@{commit}"))
