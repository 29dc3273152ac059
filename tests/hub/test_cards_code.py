"""The code and the commands of the cards run unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load, load_file

from msgrpo_hub.downloads.names import pocket_path
from tests.hub.commands import FLAGS, files_of, load_table, msgrpo, push_results, push_rollouts, run_command
from tests.hub_server.client import LOADS_DATASETS, LOADS_MODELS, put
from tests.hub_server.lanes import Loopback

warm = (*LOADS_MODELS, *LOADS_DATASETS, "msgrpo_hub.hub.rollouts")


def run_code(block: str) -> None:
    exec(compile(block, "card", "exec"), {"__name__": "__main__"})


def blocks(loopback: Loopback, repo: str, kind: str = "model", language: str = "python") -> Iterator[str]:
    yield from re.findall(rf"```{language}\n(.*?)```", loopback.files(repo, kind)["README.md"].decode(), re.DOTALL)


def test_adapter_and_base_load_by_their_cards_without_a_login(loopback: Loopback, trained: Path, base: str) -> None:
    repo = loopback.repository()
    assert loopback.owner.attempt(msgrpo, "push", "adapter", trained, repo, "--base", base, "--public").code == 0
    ran = [loopback.nobody.attempt(run_code, block) for name in (repo, base) for block in blocks(loopback, name)]
    assert [(one.code, one.error) for one in ran] == [(0, None)] * 3, [one.err for one in ran]
    assert re.search(r"^(success|no success) -?\d", ran[0].out, re.MULTILINE)
    assert "@" in ran[2].out  # the board of a lake, and a reply


def test_rollouts_load_by_their_card(loopback: Loopback, saved: Path, evaluated: Path) -> None:
    for folder in (saved, evaluated):
        repo = loopback.repository("dataset")
        loopback.owner.call(push_rollouts, folder, repo)
        sources = list(blocks(loopback, repo, "dataset"))
        assert len(sources) == 3
        for source in sources:
            done = loopback.owner.attempt(run_code, source)
            assert (done.code, "Ignoring" in done.err) == (0, False), done.err  # part of a malformed card


def test_results_load_by_their_card(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    for player in ("random", "greedy"):
        loopback.owner.call(push_results, played / player, repo, private=False)
    [block] = blocks(loopback, repo, "dataset")
    ran = loopback.nobody.attempt(run_code, block)
    assert (ran.code, ran.out.split()[0], ran.out.split()[-1]) == (0, "greedy", "30"), ran.err


def test_the_commands_of_the_results_card_add_a_player_and_update_the_page(
    loopback: Loopback, played: Path, tmp_path: Path
) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push_results, played / "random", repo)
    loopback.owner.call(
        put, repo, {f"results/{name}": content for name, content in files_of(played / "greedy").items()}, "dataset"
    )
    *_, commands = blocks(loopback, repo, "dataset", "bash")
    for command in commands.splitlines():
        done = loopback.owner.attempt(run_command, command, tmp_path)
        assert done.code == 0, done.err
    assert {run["player"] for run in loopback.owner.call(load_table, repo)[0]} == {"random", "greedy"}


def test_an_adapter_is_pushed_with_its_chat_template_and_switches(loopback: Loopback, base: str, tmp_path: Path) -> None:
    template, repo, run = tmp_path / "own.jinja", loopback.repository(), tmp_path / "lake"
    template.write_text((pocket_path() / "chat_template.jinja").read_text() + "{% if quick %} Be quick.{% endif %}")
    own = ("--chat-template", template, "--chat-template-kwargs", '{"quick": true}')
    done = loopback.owner.attempt(msgrpo, "train", *FLAGS.split(), *own, "--output-dir", run)
    assert done.code == 0, done.err
    text = template.read_bytes()
    template.unlink()
    assert loopback.owner.attempt(msgrpo, "push", "adapter", run, repo, "--base", base).code == 0
    files = loopback.files(repo)
    assert files["chat_template.jinja"] == text
    assert json.loads(files["msgrpo.json"])["chat_template_kwargs"] == {"quick": True}
    assert "add_generation_prompt=True, **{'quick': True})`" in files["README.md"].decode()
    ours, plain = blocks(loopback, repo)
    assert loopback.nobody.attempt(run_code, ours).code == 0
    shown = (
        'messages = [{"role": "user", "content": "?"}]\n'
        "print(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, quick=True))"
    )
    assert loopback.nobody.attempt(run_code, plain + shown).out.endswith("<|assistant|> Be quick.\n")


def test_the_commands_of_the_card_train_the_same_weights_again(
    loopback: Loopback, trained: Path, base: str, tmp_path: Path
) -> None:
    repo = loopback.repository()
    assert loopback.owner.attempt(msgrpo, "push", "adapter", trained, repo, "--base", base).code == 0
    [commands] = [block for block in blocks(loopback, repo, language="bash") if "msgrpo train" in block]
    for command in commands.splitlines():
        done = loopback.owner.attempt(run_command, command, tmp_path)
        assert done.code == 0, done.err
    again = load_file(tmp_path / "runs" / repo.partition("/")[2] / "adapter/adapter_model.safetensors")
    pushed = load(loopback.files(repo)["adapter_model.safetensors"])
    assert again.keys() == pushed.keys()
    assert all(torch.equal(again[name], pushed[name]) for name in pushed)
