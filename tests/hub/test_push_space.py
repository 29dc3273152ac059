"""Spaces: the demo, and a game as an OpenEnv environment. Their content, that it runs, and refused pushes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from msgrpo_hub.hub.uploading import Pushed
from tests.hub.commands import head, msgrpo, push_adapter, refused
from tests.hub_server.client import create, put
from tests.hub_server.lanes import Loopback

GAME = "Snake-Standard-v1"


def push_space(repo: str, **options: Any) -> Pushed:
    from msgrpo_hub.hub.spaces import push_space

    return push_space(repo, **options)


def push_env(repo: str, **options: Any) -> Pushed:
    from msgrpo_hub.interop.openenv_package import push_env

    return push_env(repo, **options)


def front_matter(loopback: Loopback, repo: str) -> dict[str, Any]:
    return dict(yaml.safe_load(loopback.files(repo, "space")["README.md"].decode().split("---\n")[1]))


@pytest.fixture
def adapter(loopback: Loopback, trained: Path, base: str) -> str:
    repo = loopback.repository()
    loopback.owner.call(push_adapter, trained, repo, base=base)
    return repo


def test_the_demo_is_deployed_in_one_commit_and_again_in_none(loopback: Loopback) -> None:
    repo = loopback.repository("space")
    done = loopback.owner.attempt(msgrpo, "push", "space", repo, "--hardware", "zero-a10g")
    assert (done.code, done.out) == (0, f"{loopback.endpoint}/spaces/{repo}\n"), done.err
    stored = loopback.stored(repo, "space").space
    assert (stored["sdk"], stored["runtime"]["hardware"]["requested"]) == ("gradio", "zero-a10g")
    files, metadata = loopback.files(repo, "space"), front_matter(loopback, repo)
    assert {"app.py", "requirements.txt", "msgrpo_hub/__init__.py", "msgrpo_hub/hub/model_cards/adapter.md.jinja"} <= set(files)
    assert {"msgrpo_hub/pocket/model/model.safetensors", "msgrpo_hub/evaluation/suites/quick.toml"} <= set(files)
    assert (metadata["sdk"], metadata["app_file"]) == ("gradio", "app.py")
    assert f"gradio=={metadata['sdk_version']}" in files["requirements.txt"].decode().splitlines()
    assert loopback.owner.call(push_space, repo).changed == ()
    assert len(loopback.commits(repo, "space")) == 2


def test_a_game_is_pushed_in_one_commit_and_again_in_none(loopback: Loopback) -> None:
    repo = loopback.repository("space")
    done = loopback.owner.attempt(msgrpo, "push", "env", repo, "--game", GAME)
    assert (done.code, done.out) == (0, f"{loopback.endpoint}/spaces/{repo}\n"), done.err
    assert "openenv validate" in done.err
    assert loopback.stored(repo, "space").space["sdk"] == "docker"
    files = loopback.files(repo, "space")
    assert {"openenv.yaml", "Dockerfile", "server/app.py", "msgrpo_hub/games/snake.py"} <= set(files)
    assert GAME in files["server/app.py"].decode()
    assert loopback.owner.call(push_env, repo, game=GAME).changed == ()
    assert len(loopback.commits(repo, "space")) == 2
    changed = loopback.owner.call(push_env, repo, game=f"{GAME}:reflected").changed
    assert {"README.md", "openenv.yaml", "server/app.py"} <= set(changed)


def test_the_adapter_of_a_space_is_pinned(loopback: Loopback, adapter: str) -> None:
    repo = loopback.repository("space")
    loopback.owner.call(push_space, repo, adapter=adapter)
    assert json.loads(loopback.files(repo, "space")["space.json"]) == {"adapter": f"{adapter}@{head(loopback, adapter)}"}
    loopback.owner.call(push_space, repo)
    assert "space.json" not in loopback.files(repo, "space")


def test_a_dry_run_runs_without_the_clone(loopback: Loopback, tmp_path: Path) -> None:
    folder = tmp_path / "space"
    done = loopback.owner.attempt(msgrpo, "push", "space", "ada/demo", "--dry-run", folder)
    assert done.code == 0, done.err
    program = "import msgrpo_hub, app; print(msgrpo_hub.__file__, app.__file__)"
    seen = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert seen.returncode == 0, seen.stderr
    assert seen.stdout.split() == [str(folder / "msgrpo_hub" / "__init__.py"), str(folder / "app.py")]


def test_hardware_that_a_space_has_is_not_requested_again(loopback: Loopback) -> None:
    repo = loopback.repository("space")
    for hardware, asked in (("zero-a10g", 0), ("zero-a10g", 0), ("cpu-upgrade", 1), ("cpu-upgrade", 1)):
        loopback.owner.call(push_space, repo, hardware=hardware)
        assert len(loopback.requests("POST .*/hardware$")) == asked


def test_the_space_of_another_app_is_left_alone_and_gets_no_hardware(loopback: Loopback) -> None:
    repo = loopback.repository("space")
    loopback.owner.call(create, repo, "space")
    loopback.owner.call(put, repo, {"app.py": b"print('another')", "README.md": b"---\nsdk: gradio\n---\n"}, "space")
    before = loopback.files(repo, "space"), json.dumps(loopback.stored(repo, "space").space)
    assert "holds something else" in refused(loopback.owner.attempt(msgrpo, "push", "space", repo, "--hardware", "a100-large"))
    assert (loopback.files(repo, "space"), json.dumps(loopback.stored(repo, "space").space)) == before


def test_a_refusal_without_a_paid_plan_names_the_alternatives(loopback: Loopback) -> None:
    loopback.fail("POST /api/repos/create", status=402)
    said = refused(loopback.owner.attempt(msgrpo, "push", "env", loopback.repository("space"), "--game", GAME))
    assert all(words in said for words in ("paid plan", "--dry-run FOLDER"))
    assert loopback.hub.repositories == {}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--adapter", "{adapter}"), "is private, so that a Space needs a token to load it: expected a public repository"),
        (("--adapter", "{base}"), "expected USER/NAME of a LoRA adapter"),
        (("--hardware", "zero-a10"), "did you mean 'zero-a10g'?"),
        (("--base", "ada/pocket"), "unknown flag '--base'"),
    ],
)
def test_bad_input_creates_no_space(loopback: Loopback, adapter: str, base: str, flags: tuple[str, str], words: str) -> None:
    loopback.stored(adapter).private = True
    repo = loopback.repository("space")
    given = [flag.format(adapter=adapter, base=base) for flag in flags]
    assert words in refused(loopback.owner.attempt(msgrpo, "push", "space", repo, *given))
    assert repo not in str(loopback.hub.repositories)
