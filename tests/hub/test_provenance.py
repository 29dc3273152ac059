"""A run on a base of the Hub is pinned at its start; its adapter, summary and card name the commit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from msgrpo_hub.downloads.names import pocket_path
from tests.hub.commands import FLAGS, head, msgrpo, refused
from tests.hub_server.client import put
from tests.hub_server.lanes import Loopback

ARGUMENTS = [*FLAGS.split(), "--test-episodes", "0"]


def test_a_resumed_run_keeps_the_base_commit_it_started_with(loopback: Loopback, base: str, tmp_path: Path) -> None:
    began, whole, folder = head(loopback, base), tmp_path / "whole", tmp_path / "run"
    command = ["train", *ARGUMENTS, "--updates", "2", "--model", base, "--output-dir"]
    done = loopback.nobody.attempt(msgrpo, *command, whole)
    assert done.code == 0, done.err
    shutil.copytree(whole, folder)
    for left in ("summary.json", "adapter/adapter_config.json"):
        (folder / left).unlink()
    loopback.owner.call(put, base, {"NOTES.md": b"later"})
    assert head(loopback, base) != began
    done = loopback.nobody.attempt(msgrpo, *command, folder, "--resume")
    assert done.code == 0, done.err
    summary, settings = (json.loads((folder / name).read_text()) for name in ("summary.json", "adapter/adapter_config.json"))
    assert summary["base_commit"] == began
    assert (settings["base_model_name_or_path"], settings["revision"]) == (base, began)
    assert set(summary["versions"]) == {"msgrpo_hub", "Python", "torch", "transformers", "peft"}
    assert (summary["device"], summary["engine"], bool(summary["hardware"])) == ("cpu", "fast", True)


def test_a_run_does_not_resume_if_its_base_folder_changed(loopback: Loopback, tmp_path: Path) -> None:
    model, folder = Path(shutil.copytree(pocket_path(), tmp_path / "model")), tmp_path / "run"
    command = ["train", *ARGUMENTS, "--model", model, "--output-dir", folder]
    assert loopback.nobody.attempt(msgrpo, *command).code == 0
    (folder / "summary.json").unlink()
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(settings | {"rope_theta": 5}))
    assert "has changed since the run began" in refused(loopback.nobody.attempt(msgrpo, *command, "--resume"))
