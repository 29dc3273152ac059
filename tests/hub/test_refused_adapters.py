"""An unusable adapter, or one whose base others cannot load, is refused in one line without any change on the Hub."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from msgrpo_hub.downloads.names import pocket_path
from tests.hub.conftest import msgrpo, push, refused
from tests.hub_server.lanes import Loopback
from tests.hub_server.operations import put


def change_weights(change: Callable[[str, torch.Tensor], torch.Tensor]) -> Callable[[Path], object]:
    def spoil(run: Path) -> None:
        path = run / "adapter/adapter_model.safetensors"
        save_file({name: change(name, tensor) for name, tensor in load_file(path).items()}, path)

    return spoil


def change_json(name: str, **changes: Any) -> Callable[[Path], object]:
    return lambda run: (run / name).write_text(json.dumps(json.loads((run / name).read_text()) | changes))


def change_config(old: str, new: str) -> Callable[[Path], object]:
    return lambda run: (run / "config.toml").write_text((run / "config.toml").read_text().replace(old, new))


def link_to_a_secret(run: Path) -> None:
    (run / "replay.svg").unlink()
    (run / "replay.svg").symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (change_weights(lambda _, tensor: torch.zeros_like(tensor)), "is all zero: expected a trained adapter"),
        (change_weights(lambda name, tensor: tensor * ("lora_B" not in name)), "is all zero: expected a trained adapter"),
        (change_weights(lambda name, tensor: tensor * ("lora_A" not in name)), "does not change its base"),
        (change_weights(lambda _, tensor: tensor * float("nan")), "weights that are not finite"),
        (change_weights(lambda _, tensor: tensor[:1].contiguous()), "does not fit its base"),
        (lambda run: (run / "adapter/adapter_model.bin").write_bytes(b""), "can run code when it is loaded"),
        (lambda run: (run / "adapter/adapter_model.safetensors").write_bytes(b"pickle"), "no adapter in"),
        (change_json("adapter/adapter_config.json", peft_type="PROMPT_TUNING"), "is of type 'PROMPT_TUNING': expected LORA"),
        (change_json("adapter/adapter_config.json", megatron_config={"a": 1}), "which imports a module"),
        (link_to_a_secret, "is a link"),
        (lambda run: (run / "replay.svg").write_text("<text>/home/zaphod/x</text>"), "contains a path of this machine"),
        (lambda run: (run / "summary.json").unlink(), "holds no finished run (no summary.json)"),
        (lambda run: (run / "summary.json").write_text("["), "cannot be read"),
        (change_json("summary.json", adapter={"success": float("nan")}), "success = nan"),
        (change_json("summary.json", hardware="<script>"), "expected a plain name"),
        (change_json("summary.json", base_commit="0" * 64), "has changed since the run was trained"),
        (change_config('"pocket"', '"/home/zaphod/gone"'), "was a folder that no longer exists"),
    ],
)
def test_an_unusable_adapter_is_refused_in_one_line(
    loopback: Loopback, run: Path, base: str, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(run)
    assert words in refused(loopback.owner.attempt(msgrpo, "push", "adapter", run, loopback.repository(), "--base", base))
    assert list(loopback.hub.repositories) == [("model", base)]


def test_a_local_base_is_never_published(loopback: Loopback, trained: Path) -> None:
    words = refused(loopback.owner.attempt(msgrpo, "push", "adapter", trained, loopback.repository()))
    assert "is on this machine only" in words
    assert "msgrpo push base" in words


def test_a_base_with_other_weights_is_refused(loopback: Loopback, trained: Path, base: str) -> None:
    loopback.owner.call(put, base, {"model.safetensors": b"other"})
    words = refused(loopback.owner.attempt(msgrpo, "push", "adapter", trained, loopback.repository(), "--base", base))
    assert re.search(r"is not the base .* \(model.safetensors differs\)", words)


def test_an_earlier_commit_of_the_base_can_be_named(loopback: Loopback, trained: Path, base: str) -> None:
    commit, repo = loopback.refs(base)["refs/heads/main"], loopback.repository()
    loopback.owner.call(put, base, {"model.safetensors": b"other"})
    loopback.owner.call(push, trained, repo, base=f"{base}@{commit}")
    assert json.loads(loopback.files(repo)["adapter_config.json"])["revision"] == commit


def test_an_adapter_never_overwrites_a_base(loopback: Loopback, trained: Path, base: str) -> None:
    words = refused(loopback.owner.attempt(msgrpo, "push", "adapter", trained, base, "--base", base))
    assert "holds something else" in words
    assert len(loopback.commits(base)) == 2


def test_a_base_on_the_hub_is_pinned_and_the_card_has_its_licence(loopback: Loopback, run: Path, base: str) -> None:
    """As for Qwen: the base is known by its repository, and its licence is none that the Hub lists."""
    card = loopback.files(base)["README.md"].decode().replace("license: apache-2.0", "license: other\nlicense_name: research")
    loopback.owner.call(put, base, {"README.md": card.encode()})
    commit, repo = loopback.refs(base)["refs/heads/main"], loopback.repository()
    change_config('"pocket"', f'"{base}"')(run)
    change_json("summary.json", base_commit=commit)(run)
    loopback.owner.call(push, run, repo)
    pushed = loopback.files(repo)
    assert f'model = "{base}@{commit}"' in pushed["config.toml"].decode()
    assert "license: other\nlicense_name: research\n" in pushed["README.md"].decode()


def test_a_base_with_another_chat_template_is_another_base(loopback: Loopback, trained: Path, base: str) -> None:
    settings = json.loads((pocket_path() / "tokenizer_config.json").read_text())
    loopback.owner.call(put, base, {"tokenizer_config.json": json.dumps(settings | {"chat_template": "another"}).encode()})
    words = refused(loopback.owner.attempt(msgrpo, "push", "adapter", trained, loopback.repository(), "--base", base))
    assert "is not the base of the adapter (tokenizer_config.json differs)" in words


def test_the_base_never_overwrites_another_model(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(put, repo, {"config.json": b'{"model_type": "llama"}', "model.safetensors": b"weights"})
    before = loopback.files(repo)
    assert "holds something else" in refused(loopback.owner.attempt(msgrpo, "push", "base", repo))
    assert loopback.files(repo) == before


def test_the_base_is_pushed_once_and_only_with_files_that_it_loads_from(loopback: Loopback, base: str) -> None:
    assert loopback.owner.attempt(msgrpo, "push", "base", base).code == 0
    assert len(loopback.commits(base)) == 2
    local = {path.name: path.read_bytes() for path in pocket_path().iterdir() if path.name != "README.md"}
    assert local.items() <= loopback.files(base).items()
    assert set(loopback.files(base)) == {*local, "README.md", "replay.svg"}
    assert "is for `msgrpo push adapter`" in refused(loopback.owner.attempt(msgrpo, "push", "base", base, "--base", base))
