"""The demo on the Hub: the content of a Space, that it runs, and the errors of a refused push."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from msgrpo_hub.hub.uploading import Pushed
from tests.hub.conftest import msgrpo, push, refused
from tests.hub_server.lanes import Loopback


def push_space(repo: str, **options: Any) -> Pushed:
    """The function, in the client's process."""
    from msgrpo_hub.hub.spaces import push_space

    return push_space(repo, **options)


def make_private(repo: str) -> None:
    from huggingface_hub import HfApi

    HfApi().update_repo_settings(repo, private=True)


def front_matter(loopback: Loopback, repo: str) -> dict[str, Any]:
    return dict(yaml.safe_load(loopback.files(repo, "space")["README.md"].decode().split("---\n")[1]))


@pytest.fixture
def adapter(loopback: Loopback, trained: Path, base: str) -> str:
    """A pushed adapter of the published base."""
    repo = loopback.repository()
    loopback.owner.call(push, trained, repo, base=base)
    return repo


def test_one_command_deploys_the_demo_in_one_commit_and_again_in_none(loopback: Loopback) -> None:
    repo = loopback.repository("space")
    done = loopback.owner.attempt(msgrpo, "push", "space", repo, "--hardware", "zero-a10g")
    assert done.code == 0, done.err
    assert done.out.strip() == f"{loopback.endpoint}/spaces/{repo}"
    stored = loopback.stored(repo, "space").space
    assert (stored["sdk"], stored["runtime"]["hardware"]["requested"]) == ("gradio", "zero-a10g")
    files, metadata = loopback.files(repo, "space"), front_matter(loopback, repo)
    assert {"app.py", "requirements.txt", "msgrpo_hub/__init__.py", "msgrpo_hub/hub/model_cards/adapter.md.jinja"} <= set(files)
    assert {"msgrpo_hub/pocket/model/model.safetensors", "msgrpo_hub/evaluation/suites/quick.toml"} <= set(files)
    assert (metadata["sdk"], metadata["app_file"]) == ("gradio", "app.py")
    assert f"gradio=={metadata['sdk_version']}" in files["requirements.txt"].decode().splitlines()
    assert len(loopback.commits(repo, "space")) == 2
    assert loopback.owner.call(push_space, repo).changed == ()
    assert len(loopback.commits(repo, "space")) == 2


def test_the_adapter_of_a_space_is_pinned_and_loaded_when_it_is_built(loopback: Loopback, adapter: str, base: str) -> None:
    repo = loopback.repository("space")
    loopback.owner.call(push_space, repo, adapter=adapter)
    commit, base_commit = (loopback.refs(name)["refs/heads/main"] for name in (adapter, base))
    metadata, settings = front_matter(loopback, repo), json.loads(loopback.files(repo, "space")["space.json"])
    assert settings == {"adapter": f"{adapter}@{commit}"}
    assert metadata["models"] == [adapter, base]
    first, second = (line.split() for line in metadata["preload_from_hub"])
    assert (first[0], first[2], second[0], second[2]) == (adapter, commit, base, base_commit)
    assert {"adapter_model.safetensors", "adapter_config.json"} <= set(first[1].split(","))
    assert {"model.safetensors", "tokenizer.json", "chat_template.jinja"} <= set(second[1].split(","))
    loopback.owner.call(push_space, repo)
    assert "space.json" not in loopback.files(repo, "space")


def test_what_is_pushed_runs_without_the_clone(loopback: Loopback, tmp_path: Path) -> None:
    folder = tmp_path / "space"
    done = loopback.owner.attempt(msgrpo, "push", "space", "ada/demo", "--dry-run", folder)
    assert done.code == 0, done.err
    program = "import msgrpo_hub, app; print(msgrpo_hub.__file__, app.__file__)"
    seen = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert seen.returncode == 0, seen.stderr
    assert seen.stdout.split() == [str(folder / "msgrpo_hub" / "__init__.py"), str(folder / "app.py")]


def test_a_refusal_without_a_paid_plan_names_the_alternatives(loopback: Loopback) -> None:
    loopback.fail("payment_required")
    said = refused(loopback.owner.attempt(msgrpo, "push", "space", loopback.repository("space")))
    assert all(choice in said for choice in ("paid plan", "--dry-run"))
    assert loopback.hub.repositories == {}


def test_hardware_that_a_space_has_is_not_asked_for_again(loopback: Loopback) -> None:
    repo = loopback.repository("space")
    for hardware, asked in (("zero-a10g", 0), ("zero-a10g", 0), ("cpu-upgrade", 1), ("cpu-upgrade", 1)):
        loopback.owner.call(push_space, repo, hardware=hardware)
        assert len(loopback.requests("POST .*/hardware$")) == asked


def make_space(repo: str, files: dict[str, bytes]) -> None:
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo(repo, repo_type="space", space_sdk="gradio", private=False)
    for name, content in files.items():
        api.upload_file(path_or_fileobj=content, path_in_repo=name, repo_id=repo, repo_type="space")


def test_the_space_of_another_app_is_left_alone_and_gets_no_hardware(loopback: Loopback) -> None:
    repo = loopback.repository("space")
    loopback.owner.call(make_space, repo, {"app.py": b"print('another demo')", "README.md": b"---\nsdk: gradio\n---\n"})
    files, space = loopback.files(repo, "space"), dict(loopback.stored(repo, "space").space)
    done = loopback.owner.attempt(msgrpo, "push", "space", repo, "--hardware", "a100-large")
    assert "holds something else" in refused(done)
    assert (loopback.files(repo, "space"), loopback.stored(repo, "space").space) == (files, space)


def test_a_private_adapter_is_refused(loopback: Loopback, adapter: str) -> None:
    loopback.owner.call(make_private, adapter)
    said = refused(loopback.owner.attempt(msgrpo, "push", "space", loopback.repository("space"), "--adapter", adapter))
    assert "is private" in said
    assert "expected a public repository" in said


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--adapter", "{base}"), "expected USER/NAME of a LoRA adapter"),
        (("--adapter", "nobody/nothing"), "nobody/nothing"),
        (("--hardware", "zero-a10"), "did you mean 'zero-a10g'?"),
        (("--base", "ada/pocket"), "--base is for `msgrpo push adapter`"),
    ],
)
def test_bad_input_creates_no_space(loopback: Loopback, base: str, flags: tuple[str, str], words: str) -> None:
    repo = loopback.repository("space")
    given = [flag.format(base=base) for flag in flags]
    assert words in refused(loopback.owner.attempt(msgrpo, "push", "space", repo, *given))
    assert repo not in str(loopback.hub.repositories)
