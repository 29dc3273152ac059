"""The code and the commands of a card run as they are."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import load, load_file

from msgrpo_hub.downloads.names import pocket_path
from tests.hub.conftest import msgrpo, run_command
from tests.hub_server.client import LOADS_MODELS
from tests.hub_server.lanes import Loopback

warm = LOADS_MODELS


def run_code(block: str) -> None:
    """In the client's process: runs a code block of a card."""
    exec(compile(block, "card", "exec"), {"__name__": "__main__"})


def test_code_blocks_of_the_cards_run_without_a_login(loopback: Loopback, trained: Path, base: str) -> None:
    repo = loopback.repository()
    assert loopback.owner.attempt(msgrpo, "push", "adapter", trained, repo, "--base", base, "--public").code == 0
    texts = [loopback.files(name)["README.md"].decode() for name in (repo, base)]
    blocks = [block for text in texts for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    ran = [loopback.nobody.attempt(run_code, block) for block in blocks]
    assert [(one.code, one.error) for one in ran] == [(0, None)] * 3, [one.err for one in ran]
    assert re.search(r"^(success|no success) -?\d", ran[0].out, re.MULTILINE)
    assert "@" in ran[2].out  # the board of a lake, and a reply


def test_a_custom_chat_template_and_its_switches_are_pushed_and_the_quick_start_uses_them(
    loopback: Loopback, trained: Path, base: str, tmp_path: Path
) -> None:
    repo, run = loopback.repository(), Path(shutil.copytree(trained, tmp_path / "lake"))
    template = tmp_path / "own.jinja"
    template.write_text((pocket_path() / "chat_template.jinja").read_text() + "{% if quick %}{% endif %}")
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(
        config.replace('chat_template = ""', f'chat_template = "{template}"') + "[chat_template_kwargs]\nquick = true\n"
    )
    arguments = ("push", "adapter", run, repo, "--base", base)
    assert loopback.owner.attempt(msgrpo, *arguments).code == 0
    files = loopback.files(repo)
    assert files["chat_template.jinja"] == template.read_bytes()
    assert json.loads(files["msgrpo.json"])["chat_template_kwargs"] == {"quick": True}
    assert "add_generation_prompt=True, **{'quick': True})`" in files["README.md"].decode()
    block = re.findall(r"```python\n(.*?)```", files["README.md"].decode(), re.DOTALL)[0]
    assert "chat_template=template" in block
    ran = loopback.owner.attempt(run_code, block)
    assert ran.code == 0, ran.err

    template.write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert "is not pushed as a chat template" in loopback.owner.attempt(msgrpo, *arguments).err


def test_the_commands_of_the_card_train_the_same_weights_again(
    loopback: Loopback, trained: Path, base: str, tmp_path: Path
) -> None:
    repo = loopback.repository()
    assert loopback.owner.attempt(msgrpo, "push", "adapter", trained, repo, "--base", base).code == 0
    blocks = re.findall(r"```bash\n(.*?)```", loopback.files(repo)["README.md"].decode(), re.DOTALL)
    [commands] = [block for block in blocks if "msgrpo train" in block]
    for command in commands.splitlines():
        done = loopback.owner.attempt(run_command, command, tmp_path)
        assert done.code == 0, done.err
    again = load_file(tmp_path / "runs" / repo.partition("/")[2] / "adapter/adapter_model.safetensors")
    pushed = load(loopback.files(repo)["adapter_model.safetensors"])
    assert again.keys() == pushed.keys()
    assert all(torch.equal(again[name], pushed[name]) for name in pushed)
