"""The code and the commands of a card run as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch
from safetensors.torch import load, load_file

from msgrpo_hub.downloads.names import pocket_path
from tests.hub.conftest import FLAGS, msgrpo, refused, run_command
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


def rendered(repo: str) -> str:
    """In the client's process: how an adapter is prompted."""
    from msgrpo_hub.models.adapter_check import probe_prompt
    from msgrpo_hub.models.language_model import LanguageModel

    agent = LanguageModel.from_pretrained(repo)
    return agent.render([probe_prompt(agent)])[0]


def test_an_adapter_is_pushed_with_its_chat_template_and_switches_and_strangers_play_it_with_them(
    loopback: Loopback, base: str, tmp_path: Path
) -> None:
    template, repo, run = tmp_path / "own.jinja", loopback.repository(), tmp_path / "lake"
    template.write_text((pocket_path() / "chat_template.jinja").read_text() + "{% if quick %} Be quick.{% endif %}")
    own = ("--chat-template", template, "--chat-template-kwargs", '{"quick": true}')
    done = loopback.owner.attempt(msgrpo, "train", *FLAGS.split(), *own, "--output-dir", run)
    assert done.code == 0, done.err
    text = template.read_bytes()
    template.unlink()
    arguments = ("push", "adapter", run, repo, "--base", base)
    pushed = loopback.owner.attempt(msgrpo, *arguments)
    assert pushed.code == 0, pushed.err
    files = loopback.files(repo)
    assert files["chat_template.jinja"] == text
    assert json.loads(files["msgrpo.json"])["chat_template_kwargs"] == {"quick": True}
    assert "add_generation_prompt=True, **{'quick': True})`" in files["README.md"].decode()
    assert loopback.nobody.call(rendered, repo).endswith("<|assistant|> Be quick.")
    ours, plain = re.findall(r"```python\n(.*?)```", files["README.md"].decode(), re.DOTALL)
    assert loopback.nobody.attempt(run_code, ours).code == 0
    shown = (
        'messages = [{"role": "user", "content": "?"}]\n'
        "print(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, quick=True))"
    )
    assert loopback.nobody.attempt(run_code, plain + shown).out.endswith("<|assistant|> Be quick.\n")

    (run / "adapter" / "chat_template.jinja").write_text("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert "drops the rules, the observation, the request" in refused(loopback.owner.attempt(msgrpo, *arguments))


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
