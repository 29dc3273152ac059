"""A pushed adapter is one commit that others can load, without anything from the machine it was trained on."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.hub.adapter_card import read_run
from msgrpo_hub.hub.adapters import FORMAT
from msgrpo_hub.training.config import load_config
from tests.hub.conftest import FLAGS, msgrpo, push, refused
from tests.hub_server.client import LOADS_MODELS, Client
from tests.hub_server.lanes import Lane, Loopback

warm = LOADS_MODELS

PUSHED = {
    "README.md",
    "adapter_config.json",
    "adapter_model.safetensors",
    "config.toml",
    "curves.png",
    "msgrpo.json",
    "replay.svg",
    "results.json",
    "test_episodes.parquet",
}
SUITE = """
episodes = 2
split = "test"
[tasks]
"FrozenLake-NotSlippery-v1" = "{hash}"
"""


def logits_by_peft(repo: str, base: str | None) -> list[float]:
    """What plain PEFT computes with the adapter as it is on the Hub, or with a folder on a given base."""
    from peft import AutoPeftModelForCausalLM, PeftModel
    from transformers import AutoModelForCausalLM

    if base is None:
        model = AutoPeftModelForCausalLM.from_pretrained(repo)
    else:
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), repo)
    with torch.no_grad():
        values: list[float] = model(torch.arange(20)[None]).logits[0, -1].tolist()
    return values


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of one task and two episodes."""
    from msgrpo_hub.evaluation.suites import task_hash
    from msgrpo_hub.games import make_game

    path = tmp_path_factory.mktemp("suite") / "tiny.toml"
    path.write_text(SUITE.format(hash=task_hash(make_game("FrozenLake-NotSlippery-v1"))))
    return path


# ---- what arrives


def test_an_adapter_is_one_commit_with_card_results_and_tags(hub: Lane, trained: Path) -> None:
    base, repo = hub.repository(), hub.repository()
    assert hub.owner.attempt(msgrpo, "push", "base", base, "--private").code == 0
    pushed = hub.owner.call(push, trained, repo, base=base, private=True)
    assert set(hub.files(repo)) == set(pushed.changed) == PUSHED
    assert hub.commits(repo) == ["Adapter for FrozenLake-NotSlippery-v1, step 1", "initial commit"]
    assert hub.refs(repo) == dict.fromkeys(("refs/heads/main", "refs/tags/step-1", f"refs/tags/{FORMAT}"), pushed.commit)


def test_a_second_push_makes_no_commit(loopback: Loopback, trained: Path, base: str) -> None:
    repo = loopback.repository()
    first = loopback.owner.call(push, trained, repo, base=base)
    refs = loopback.refs(repo)
    assert loopback.owner.call(push, trained, repo, base=base).changed == ()
    assert (loopback.refs(repo), refs["refs/heads/main"]) == (refs, first.commit)


def test_the_base_and_the_adapter_load_for_strangers_with_plain_peft(loopback: Loopback, trained: Path, base: str) -> None:
    repo = loopback.repository()
    loopback.owner.call(push, trained, repo, base=base)
    settings = json.loads(loopback.files(repo)["adapter_config.json"])
    assert (settings["base_model_name_or_path"], settings["revision"]) == (base, loopback.refs(base)["refs/heads/main"])
    theirs = loopback.nobody.call(logits_by_peft, repo, None)
    assert theirs == loopback.nobody.call(logits_by_peft, str(trained / "adapter"), str(pocket_path()))
    assert all(base_file in loopback.files(base) for base_file in ("chat_template.jinja", "tokenizer.json", "README.md"))


def test_eval_plays_with_it_at_the_commits_it_names(
    loopback: Loopback, trained: Path, base: str, suite: Path, tmp_path: Path
) -> None:
    repo = loopback.repository()
    pushed = loopback.owner.call(push, trained, repo, base=base)
    done = loopback.nobody.attempt(
        msgrpo, "eval", repo, "--suite", suite, "--max-new-tokens", 32, "--output-dir", tmp_path / "results", "--json"
    )
    assert done.code == 0, done.err
    [result] = json.loads(done.out)
    identity = result["identity"]
    assert (result["episodes"], identity["adapter"], identity["adapter_commit"]) == (2, repo, pushed.commit)
    assert (identity["base"], identity["base_commit"]) == (base, loopback.refs(base)["refs/heads/main"])


def test_eval_results_of_this_adapter_are_pushed_and_others_are_not(
    loopback: Loopback, run: Path, base: str, suite: Path, tmp_path: Path
) -> None:
    repo, eval_flags = loopback.repository(), ["--suite", suite, "--max-new-tokens", 32, "--output-dir", run / "results"]
    loopback.owner.attempt(msgrpo, "eval", run / "adapter", "random", *eval_flags)
    loopback.owner.call(push, run, repo, base=base)
    pushed = loopback.files(repo)
    results = {path for path in pushed if path.startswith("results/")}
    assert {Path(path).name for path in results} == {"config.lock.json", "results.json", "episodes.parquet", "steps.parquet"}
    assert len(results) == 4
    [evaluation] = json.loads(pushed["results.json"])["evaluations"]
    assert (evaluation["suite"], evaluation["episodes"]) == ("tiny", 2)
    assert {f"{evaluation['folder']}/{Path(path).name}" for path in results} == results
    verified = tmp_path / "verified"
    for path in results:
        (verified / path).parent.mkdir(parents=True, exist_ok=True)
        (verified / path).write_bytes(pushed[path])
    assert loopback.nobody.attempt(msgrpo, "verify", verified).code == 0

    shutil.rmtree(run / "results")
    loopback.owner.call(push, run, repo, base=base)
    assert set(loopback.files(repo)) == PUSHED


def test_a_dry_run_writes_exactly_what_a_push_sends(loopback: Loopback, trained: Path, base: str, tmp_path: Path) -> None:
    repo, folder = loopback.repository(), tmp_path / "dry"
    done = loopback.owner.attempt(msgrpo, "push", "adapter", trained, repo, "--base", base, "--dry-run", folder, "--json")
    assert json.loads(done.out) == {"folder": str(folder), "files": sorted(PUSHED)}
    assert ("model", repo) not in loopback.hub.repositories
    loopback.owner.call(push, trained, repo, base=base)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == loopback.files(repo)
    assert "expected a new or an empty folder" in refused(
        loopback.owner.attempt(msgrpo, "push", "adapter", trained, repo, "--base", base, "--dry-run", folder)
    )


def test_training_can_push_when_it_is_done(loopback: Loopback, base: str, tmp_path: Path) -> None:
    repo = loopback.repository()
    flags = ("train", *FLAGS.split(), "--output-dir", tmp_path / "lake", "--push-to-hub", repo, "--private")
    assert "msgrpo push base" in refused(loopback.owner.attempt(msgrpo, *flags))
    assert "no token" in refused(loopback.nobody.attempt(msgrpo, *flags, "--base", base))
    assert not (tmp_path / "lake").exists()
    done = loopback.owner.attempt(msgrpo, *flags, "--base", base)
    assert (done.code, done.out.splitlines()[-1]) == (0, f"{loopback.endpoint}/{repo}"), done.err
    assert set(loopback.files(repo)) == PUSHED
    assert loopback.stored(repo).private


def test_the_command_says_who_will_see_it_and_what_comes_next(loopback: Loopback, trained: Path, base: str) -> None:
    repo = loopback.repository()
    done = loopback.owner.attempt(msgrpo, "push", "adapter", trained, repo, "--base", base, "--private", "--message", "Mine")
    assert (done.code, done.out) == (0, f"{loopback.endpoint}/{repo}\n")
    assert done.err.startswith(f"pushing to {repo} (private)\n")
    assert done.err.endswith(f"Next: msgrpo eval {repo} --suite quick\n")
    assert loopback.commits(repo)[0] == "Mine"


@pytest.mark.parametrize(
    ("settings", "layers"),
    [
        ({"target_modules": ["v_proj", "q_proj"], "exclude_modules": ["v_proj"]}, ("q_proj",)),
        ({"target_modules": ".*_proj", "exclude_modules": "lm_head"}, (".*_proj",)),
        ({"target_modules": None, "target_parameters": ["mlp.experts"]}, ("mlp.experts",)),
    ],
)
def test_the_card_names_the_layers_of_an_adapter_in_every_form(run: Path, settings: dict[str, Any], layers: tuple[str]) -> None:
    path = run / "adapter/adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    assert read_run(run).lora_layers == layers


# ---- nothing of the machine


def plant(run: Path, base: Path) -> None:
    """Puts secrets (paths, a user name, tokens) into every place of a run that may have one."""
    told = {"path": str(run), "user": "zaphod", "token": "hf_test_owner"}
    config = load_config(run / "config.toml")
    shutil.copytree(pocket_path(), base)
    template = run.parent / "zaphods.jinja"
    shutil.copy(pocket_path() / "chat_template.jinja", run / "adapter/chat_template.jinja")
    text = (run / "config.toml").read_text().replace(f'"{config.model}"', f'"{base}"')
    (run / "config.toml").write_text(
        text.replace('chat_template = ""', f'chat_template = "{template}"').replace('report_to = "none"', 'report_to = "wandb"')
    )
    summary = json.loads((run / "summary.json").read_text()) | told
    summary |= {"model": str(base), "adapter": summary["adapter"] | told, "config": told, "players": list(told.values())}
    (run / "summary.json").write_text(json.dumps(summary))
    settings = json.loads((run / "adapter/adapter_config.json").read_text()) | {"base_model_name_or_path": str(base)}
    (run / "adapter/adapter_config.json").write_text(json.dumps(settings))
    tensors = load_file(run / "adapter/adapter_model.safetensors")
    save_file(tensors, run / "adapter/adapter_model.safetensors", metadata={"format": "pt", **told})
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps({"update": 3, "memory_mb": 1.0, **told}) + "\n")
    for name in (".env", "notes.txt", "adapter/README.md", "adapter/tokenizer_config.json", "adapter/.env", "best/README.md"):
        (run / name).write_text(json.dumps(told))


def test_no_path_token_or_user_name_is_pushed(loopback: Loopback, run: Path, base: str) -> None:
    plant(run, run.parent / "my-base")
    repo = loopback.repository()
    zaphod: Client = loopback.client(USER="zaphod", LOGNAME="zaphod", HOSTNAME="zaphods-machine")
    zaphod.call(push, run, repo, base=base)
    stored = loopback.stored(repo)
    everything = [blob.content for commit in stored.known.values() for blob in commit.files.values()] + [*stored.objects.values()]
    everything += [f"{commit.title}\n{commit.message}".encode() for commit in stored.known.values()]
    everything += ["\n".join([*stored.refs, *loopback.requests()]).encode()]
    assert len(everything) > 10
    secrets = ["zaphod", str(run), str(run.parent), str(pocket_path()), "hf_test", "my-base", str(Path.cwd()), "/tmp/", "/home/"]
    found = {secret for secret in secrets for content in everything if secret.encode() in content}
    assert found == set()
    assert set(loopback.files(repo)) == {*PUSHED, "chat_template.jinja"}


@pytest.mark.parametrize("name", ["replay.svg", "curves.png", "adapter/adapter_config.json"])
def test_a_token_inside_a_file_stops_the_push(loopback: Loopback, run: Path, base: str, name: str) -> None:
    content = (run / name).read_bytes()
    (run / name).write_bytes(
        re.sub(rb'"peft_version": "[^"]*"', b'"peft_version": "hf_test_owner"', content)
        if name.endswith("json")
        else content + b"hf_test_owner"
    )
    words = refused(loopback.owner.attempt(msgrpo, "push", "adapter", run, loopback.repository(), "--base", base))
    assert f"{Path(name).name!r} is not pushed because it contains a token" in words
    assert "hf_test_owner" not in words
    assert len(loopback.hub.repositories) == 1
