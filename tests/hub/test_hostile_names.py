"""Hostile names, revisions and folders, which point to other places."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.hub.hostile import BASES, SETTINGS, Files, open_model, put_here, settings
from tests.hub_server.lanes import Loopback


def test_an_adapter_whose_base_is_an_adapter(loopback: Loopback, sound_adapter: Files) -> None:
    first = put_here(loopback, sound_adapter)
    files = dict(sound_adapter)
    settings(base_model_name_or_path=first)(files)
    message, _ = loopback.owner.call(open_model, put_here(loopback, files))
    assert f"names '{first}' as its base, but that is also an adapter" in message


@pytest.mark.parametrize(
    "name", ["../x", "a/b/../c", "a/b/", "a/b/.c", "a/b//c", "ada/..", "ada/x--y", "ada/x\n", "http://x/y", ""]
)
def test_an_invalid_name_never_reaches_the_hub(loopback: Loopback, name: str) -> None:
    message, _ = loopback.owner.call(open_model, name)
    assert message.startswith("no model in the folder")
    assert not loopback.requests()


@pytest.mark.parametrize("revision", ["../../x", "/etc", "a//b", "a b"])
def test_a_revision_that_is_a_path_never_reaches_the_hub(loopback: Loopback, revision: str) -> None:
    message, _ = loopback.owner.call(open_model, f"ada/x@{revision}")
    assert "expected the name of a branch, a tag or a commit" in message
    assert not loopback.requests()


# ---- a folder may have come from anywhere


def folder_of(files: Files, folder: Path) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    "attack", ["a pickle", "weights elsewhere", "an index that names a path above", "a vocabulary that is a secret"]
)
def test_a_hostile_folder_is_refused_like_a_hostile_repository(
    loopback: Loopback, sound_base: Files, tmp_path: Path, attack: str
) -> None:
    change, words, _ = BASES[attack]
    files = dict(sound_base)
    change(files)
    message, ran = loopback.owner.call(open_model, str(folder_of(files, tmp_path / "base")))
    assert words in message
    assert (message.isprintable(), ran) == (True, False)


@pytest.mark.parametrize("attack", ["another method than LoRA", "an absurd rank", "a configuration of megatron"])
def test_a_hostile_adapter_in_a_folder_is_refused(loopback: Loopback, sound_adapter: Files, tmp_path: Path, attack: str) -> None:
    change, words = SETTINGS[attack]
    files = dict(sound_adapter)
    change(files)
    assert words in loopback.owner.call(open_model, "pocket", str(folder_of(files, tmp_path / "adapter")))[0]


def test_a_link_in_a_folder_leads_to_no_secret(loopback: Loopback, sound_base: Files, tmp_path: Path) -> None:
    folder = folder_of(sound_base, tmp_path / "base")
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.jinja").symlink_to("/etc/hostname")
    message, _ = loopback.owner.call(open_model, str(folder))
    assert re.search(r"chat_template.jinja in '.*' is a link that leads elsewhere", message)
    (folder / "config.json").rename(folder / "other.json")
    (folder / "config.json").symlink_to("other.json")
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.jinja").write_bytes(sound_base["chat_template.jinja"])
    assert loopback.owner.call(open_model, str(folder))[0] == "loaded"


def test_an_adapter_in_a_folder_may_name_a_base_in_a_folder(
    loopback: Loopback, sound_base: Files, sound_adapter: Files, tmp_path: Path
) -> None:
    files = dict(sound_adapter)
    settings(base_model_name_or_path=str(folder_of(sound_base, tmp_path / "base")))(files)
    assert loopback.owner.call(open_model, str(folder_of(files, tmp_path / "adapter"))) == ("loaded", False)
