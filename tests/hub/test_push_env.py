"""A game on the Hub as an OpenEnv environment: a Docker Space in one commit, and what a refused push says."""

from __future__ import annotations

from typing import Any

from msgrpo_hub.hub.uploading import Pushed
from tests.hub.conftest import msgrpo, refused
from tests.hub_server.lanes import Loopback

GAME = "Snake-Standard-v1"


def push_env(repo: str, **options: Any) -> Pushed:
    """The function, in the client's process."""
    from msgrpo_hub.interop.openenv_package import push_env

    return push_env(repo, **options)


def test_one_command_pushes_a_game_in_one_commit_and_again_in_none(loopback: Loopback) -> None:
    repo = loopback.repository("space")
    done = loopback.owner.attempt(msgrpo, "push", "env", repo, "--game", GAME)
    assert done.code == 0, done.err
    assert done.out.strip() == f"{loopback.endpoint}/spaces/{repo}"
    assert "openenv validate" in done.err
    assert loopback.stored(repo, "space").space["sdk"] == "docker"
    files = loopback.files(repo, "space")
    assert {"openenv.yaml", "Dockerfile", "server/app.py", "msgrpo_hub/games/snake.py"} <= set(files)
    assert GAME in files["server/app.py"].decode()
    assert len(loopback.commits(repo, "space")) == 2
    assert loopback.owner.call(push_env, repo, game=GAME).changed == ()
    assert len(loopback.commits(repo, "space")) == 2
    changed = loopback.owner.call(push_env, repo, game=f"{GAME}:reflected").changed
    assert {"README.md", "openenv.yaml", "server/app.py"} <= set(changed)


def test_a_refusal_without_a_paid_plan_says_where_else_the_environment_runs(loopback: Loopback) -> None:
    loopback.fail("payment_required")
    said = refused(loopback.owner.attempt(msgrpo, "push", "env", loopback.repository("space"), "--game", GAME))
    assert all(words in said for words in ("paid plan", "--dry-run FOLDER"))
    assert loopback.hub.repositories == {}


def test_a_space_with_something_else_is_left_alone(loopback: Loopback) -> None:
    repo = loopback.repository("space")
    assert loopback.owner.attempt(msgrpo, "push", "space", repo).code == 0
    before = loopback.files(repo, "space")
    said = refused(loopback.owner.attempt(msgrpo, "push", "env", repo, "--game", GAME))
    assert "holds something else" in said
    assert loopback.files(repo, "space") == before
