"""Spaces: made with secrets and variables, changed, paused. No Space runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from huggingface_hub import HfApi, SpaceHardware

from tests.hub_server.client import ClientError
from tests.hub_server.operations import create

if TYPE_CHECKING:
    from tests.hub_server.lanes import Lane, Loopback

pytestmark = pytest.mark.lowest


def make(repo: str, exist_ok: bool = False) -> str:
    url = HfApi().create_repo(
        repo,
        repo_type="space",
        space_sdk="gradio",
        space_hardware=SpaceHardware.ZERO_A10G,
        space_secrets=[{"key": "TOKEN", "value": "secret"}],
        space_variables=[{"key": "MODEL", "value": "ada/lake"}],
        exist_ok=exist_ok,
    )
    return str(url)


def settings(repo: str) -> dict[str, Any]:
    api = HfApi()
    return {
        "secrets": list(api.get_space_secrets(repo)),
        "variables": {key: variable.value for key, variable in api.get_space_variables(repo).items()},
        "hardware": api.get_space_runtime(repo).requested_hardware,
        "stage": api.get_space_runtime(repo).stage,
    }


def change(repo: str) -> None:
    api = HfApi()
    api.add_space_secret(repo, "OTHER", "secret 2", description="Another")
    api.delete_space_secret(repo, "TOKEN")
    api.add_space_variable(repo, "MODEL", "ada/snake")
    api.request_space_hardware(repo, SpaceHardware.T4_SMALL, sleep_time=3600)
    api.pause_space(repo)


def restart(repo: str) -> int | None:
    HfApi().set_space_sleep_time(repo, 600)
    return HfApi().restart_space(repo).sleep_time


def upload(repo: str) -> None:
    readme = b"---\nsdk: static\ntitle: Lake\ncolorFrom: blue\n---\n"
    HfApi().upload_file(path_or_fileobj=readme, path_in_repo="README.md", repo_id=repo, repo_type="space")


def test_a_space_is_made_with_its_settings(loopback: Loopback) -> None:
    repo = loopback.repository("space")
    assert loopback.owner.call(make, repo) == f"{loopback.endpoint}/spaces/{repo}"
    expected = {"secrets": ["TOKEN"], "variables": {"MODEL": "ada/lake"}, "hardware": "zero-a10g", "stage": "NO_APP_FILE"}
    assert loopback.owner.call(settings, repo) == expected
    assert loopback.stored(repo, "space").space["secrets"]["TOKEN"]["value"] == "secret"


def test_settings_of_a_space_change(loopback: Loopback) -> None:
    repo = loopback.repository("space")
    loopback.owner.call(make, repo)
    loopback.owner.call(change, repo)
    expected = {"secrets": ["OTHER"], "variables": {"MODEL": "ada/snake"}, "hardware": "t4-small", "stage": "PAUSED"}
    assert loopback.owner.call(settings, repo) == expected
    assert loopback.owner.call(restart, repo) == 600
    assert loopback.stored(repo, "space").space["runtime"]["stage"] == "BUILDING"


def test_a_stranger_does_not_see_the_settings_of_a_space(loopback: Loopback) -> None:
    repo = loopback.repository("space")
    loopback.owner.call(make, repo)
    with pytest.raises(ClientError, match="403"):
        loopback.stranger.call(settings, repo)


def test_a_space_without_a_plan_is_refused_but_not_one_that_is_there(loopback: Loopback) -> None:
    repo = loopback.repository("space")
    loopback.fail("payment_required")
    with pytest.raises(ClientError, match="402"):
        loopback.owner.call(make, repo)
    assert loopback.hub.repositories == {}
    loopback.owner.call(make, repo)
    loopback.fail("payment_required")
    assert loopback.owner.call(make, repo, exist_ok=True) == f"{loopback.endpoint}/spaces/{repo}"


def test_a_space_holds_files_like_any_repository(hub: Lane) -> None:
    repo = hub.repository("space")
    hub.owner.call(create, repo, "space")
    hub.owner.call(upload, repo)
    assert b"sdk: static" in hub.files(repo, "space")["README.md"]
