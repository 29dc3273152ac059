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
from msgrpo_hub.evaluation.suites import hash_of
from msgrpo_hub.training.config import load_config
from tests.hub.commands import FLAGS, LAKE, SUITE, head, msgrpo, push_adapter, refused, write_files
from tests.hub_server.client import LOADS_MODELS, put
from tests.hub_server.lanes import Loopback

warm = LOADS_MODELS

PUSHED = {
    *("README.md", "adapter_config.json", "adapter_model.safetensors", "config.toml", "curves.png", "msgrpo.json"),
    *("replay.svg", "replay.mp4", "replay.gif", "results.json", "test_episodes.parquet"),
    *("chat_template.jinja", "tokenizer.json", "tokenizer_config.json"),
}


def logits_by_peft(repo: str, base: str | None) -> list[float]:
    """The output of plain PEFT with the adapter on the Hub, or with a folder on a given base."""
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
    path = tmp_path_factory.mktemp("suite") / "tiny.toml"
    path.write_text(SUITE.format(LAKE, 2, hash_of(LAKE)))
    return path


def test_an_adapter_is_one_commit_with_card_and_results_as_a_dry_run_shows_and_again_none(
    loopback: Loopback, trained: Path, base: str, tmp_path: Path
) -> None:
    repo, folder = loopback.repository(), tmp_path / "dry"
    command = ("push", "adapter", trained, repo, "--base", base, "--dry-run", folder, "--json")
    assert json.loads(loopback.owner.attempt(msgrpo, *command).out) == {"folder": str(folder), "files": sorted(PUSHED)}
    assert "expected a new or an empty folder" in refused(loopback.owner.attempt(msgrpo, *command))
    assert ("model", repo) not in loopback.hub.repositories
    pushed, again = (loopback.owner.call(push_adapter, trained, repo, base=base, private=True) for _ in "12")
    assert set(pushed.changed) == PUSHED
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == loopback.files(repo)
    assert loopback.commits(repo) == [f"Adapter for {LAKE}, step 1", "initial commit"]
    assert (again.changed, again.commit) == ((), pushed.commit)


def test_strangers_load_it_with_plain_peft_and_eval_plays_it_at_the_commits_it_names(
    loopback: Loopback, trained: Path, base: str, suite: Path, tmp_path: Path
) -> None:
    repo = loopback.repository()
    pushed = loopback.owner.call(push_adapter, trained, repo, base=base)
    settings = json.loads(loopback.files(repo)["adapter_config.json"])
    assert (settings["base_model_name_or_path"], settings["revision"]) == (base, head(loopback, base))
    theirs = loopback.nobody.call(logits_by_peft, repo, None)
    assert theirs == loopback.nobody.call(logits_by_peft, str(trained / "adapter"), str(pocket_path()))
    flags = ("--suite", suite, "--max-new-tokens", 32, "--output-dir", tmp_path / "results", "--json")
    done = loopback.nobody.attempt(msgrpo, "eval", repo, *flags)
    assert done.code == 0, done.err
    [result] = json.loads(done.out)
    identity = result["identity"]
    assert (result["episodes"], identity["adapter"], identity["adapter_commit"]) == (2, repo, pushed.commit)
    assert (identity["base"], identity["base_commit"]) == (base, head(loopback, base))


def test_eval_results_of_this_adapter_are_pushed_and_others_are_not(
    loopback: Loopback, run: Path, base: str, suite: Path, tmp_path: Path
) -> None:
    repo, flags = loopback.repository(), ["--suite", suite, "--max-new-tokens", 32, "--output-dir", run / "results"]
    loopback.owner.attempt(msgrpo, "eval", run / "adapter", "random", *flags)
    loopback.owner.call(push_adapter, run, repo, base=base)
    pushed = loopback.files(repo)
    results = {path: content for path, content in pushed.items() if path.startswith("results/")}
    [evaluation] = json.loads(pushed["results.json"])["evaluations"]
    assert (evaluation["suite"], evaluation["episodes"]) == ("tiny", 2)
    names = ("config.lock.json", "results.json", "episodes.parquet", "steps.parquet")
    assert results.keys() == {f"{evaluation['folder']}/{name}" for name in names}
    assert loopback.nobody.attempt(msgrpo, "verify", write_files(tmp_path / "verified", results)).code == 0
    shutil.rmtree(run / "results")
    loopback.owner.call(push_adapter, run, repo, base=base)
    assert set(loopback.files(repo)) == PUSHED


def test_base_and_rollouts_link_to_the_adapter_and_a_collection_holds_the_three(
    loopback: Loopback, saved: Path, evaluated: Path
) -> None:
    repo, base, lone, other = (loopback.repository(kind) for kind in ("model", "model", "dataset", "dataset"))
    pushes = (("model", "base", base), ("dataset", "rollouts", evaluated, lone), ("dataset", "rollouts", saved, other))
    for kind, *arguments in pushes:
        done = loopback.owner.attempt(msgrpo, "push", *arguments, "--adapter", repo)
        assert done.code == 0, done.err
        assert f"[{repo}](https://huggingface.co/{repo})" in loopback.files(str(arguments[-1]), str(kind))["README.md"].decode()
    for name in ("Lake", "ada/lake-0123456789abcdef01234567"):  # a title, or the slug
        flags = ("--base", base, "--rollouts", other, "--collection", name)
        assert loopback.owner.attempt(msgrpo, "push", "adapter", saved, repo, *flags).code == 0
        [collection] = loopback.hub.collections.values()
        assert [item["id"] for item in collection["items"]] == [repo, base, other]


def test_training_can_push_when_it_is_done(loopback: Loopback, base: str, tmp_path: Path) -> None:
    repo = loopback.repository()
    flags = ("train", *FLAGS.split(), "--output-dir", tmp_path / "lake", "--push-to-hub", repo, "--private")
    assert "msgrpo push base" in refused(loopback.owner.attempt(msgrpo, *flags))
    assert "no token" in refused(loopback.nobody.attempt(msgrpo, *flags, "--base", base))
    assert not (tmp_path / "lake").exists()
    done = loopback.owner.attempt(msgrpo, *flags, "--base", base)
    assert (done.code, done.out.splitlines()[-1]) == (0, f"{loopback.endpoint}/{repo}"), done.err
    assert done.err.endswith(f"Next: msgrpo eval {repo} --suite quick\n")
    assert set(loopback.files(repo)) == PUSHED
    assert loopback.stored(repo).private


# ---- nothing of the machine


def plant(run: Path, base: Path) -> None:
    told = {"path": str(run), "user": "zaphod", "token": "hf_test_owner"}
    config = load_config(run / "config.toml")
    shutil.copytree(pocket_path(), base)
    shutil.copy(pocket_path() / "chat_template.jinja", run / "adapter/chat_template.jinja")
    text = (run / "config.toml").read_text().replace(f'"{config.model}"', f'"{base}"')
    text = text.replace('chat_template = ""', f'chat_template = "{run.parent / "zaphods.jinja"}"')
    (run / "config.toml").write_text(text.replace('report_to = "none"', 'report_to = "wandb"'))
    summary = json.loads((run / "summary.json").read_text()) | told
    summary |= {"model": str(base), "adapter": summary["adapter"] | told, "config": told}
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
    zaphod = loopback.client(USER="zaphod", LOGNAME="zaphod", HOSTNAME="zaphods-machine")
    zaphod.call(push_adapter, run, repo, base=base)
    stored = loopback.stored(repo)
    everything = [blob.content for commit in stored.known.values() for blob in commit.files.values()] + [*stored.objects.values()]
    titles = [commit.title for commit in stored.known.values()]
    everything.append("\n".join([*titles, *stored.refs, *loopback.requests()]).encode())
    assert len(everything) > 10
    secrets = ["zaphod", str(run), str(run.parent), str(pocket_path()), "hf_test", "my-base", str(Path.cwd()), "/tmp/", "/home/"]
    found = {secret for secret in secrets for content in everything if secret.encode() in content}
    assert found == set()
    assert set(loopback.files(repo)) == PUSHED


# ---- adapters that cannot be used, and bases that others cannot load


def change_weights(change: Any) -> Any:
    def spoil(run: Path) -> None:
        path = run / "adapter/adapter_model.safetensors"
        save_file({name: change(name, tensor) for name, tensor in load_file(path).items()}, path)

    return spoil


def change_json(name: str, **changes: Any) -> Any:
    return lambda run: (run / name).write_text(json.dumps(json.loads((run / name).read_text()) | changes))


def change_bytes(name: str, change: Any) -> Any:
    return lambda run: (run / name).write_bytes(change((run / name).read_bytes()))


SETTINGS, WEIGHTS = "adapter/adapter_config.json", "adapter/adapter_model.safetensors"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (change_weights(lambda name, tensor: tensor * ("lora_B" not in name)), "is all zero: expected a trained adapter"),
        (change_weights(lambda _, tensor: tensor * float("nan")), "weights that are not finite"),
        (change_bytes(WEIGHTS, lambda _: b"pickle"), "is not a safetensors file"),
        (change_json(SETTINGS, megatron_config={"a": 1}), "which imports a module"),
        (change_bytes("replay.svg", lambda _: b"<text>/home/zaphod/x</text>"), "contains a path of this machine"),
        (change_bytes("curves.png", lambda old: old + b"hf_test_owner"), "'curves.png' is not pushed because it contains"),
        (change_json(SETTINGS, peft_version="hf_test_owner"), "'adapter_config.json' is not pushed because it contains a token"),
        (lambda run: (run / "summary.json").unlink(), "holds no finished run (no summary.json)"),
        (change_bytes("summary.json", lambda _: b"["), "cannot be read"),
        (change_json("summary.json", adapter={"success": 1.0}), "are damaged"),
        (change_json("summary.json", base_commit="0" * 64), "has changed since the run was trained"),
        (change_bytes("config.toml", lambda text: text.replace(b'"pocket"', b'"/home/gone"')), "a folder that no longer exists"),
    ],
)
def test_an_unusable_adapter_or_a_secret_is_refused_in_one_line(
    loopback: Loopback, run: Path, base: str, spoil: Any, words: str
) -> None:
    spoil(run)
    said = refused(loopback.owner.attempt(msgrpo, "push", "adapter", run, loopback.repository(), "--base", base))
    assert words in said
    assert "hf_test_owner" not in said
    assert list(loopback.hub.repositories) == [("model", base)]


def test_a_base_must_be_published_with_equal_files(loopback: Loopback, trained: Path, base: str) -> None:
    def push(*flags: str) -> str:
        return refused(loopback.owner.attempt(msgrpo, "push", "adapter", trained, loopback.repository(), *flags))

    assert re.search("is on this machine only.*msgrpo push base", push())
    commit, files = head(loopback, base), loopback.files(base)
    settings = json.dumps(json.loads(files["tokenizer_config.json"]) | {"chat_template": "another"}).encode()
    for name, content in (("tokenizer_config.json", settings), ("model.safetensors", b"other")):
        loopback.owner.call(put, base, {name: content})
        assert re.search(rf"is not the base of the adapter \({name} differs\)", push("--base", base))
        loopback.owner.call(put, base, {name: files[name]})
    loopback.owner.call(put, base, {"model.safetensors": b"other"})
    repo = loopback.repository()
    loopback.owner.call(push_adapter, trained, repo, base=f"{base}@{commit}")
    assert json.loads(loopback.files(repo)["adapter_config.json"])["revision"] == commit


def test_a_base_on_the_hub_is_pinned_and_the_card_has_its_licence(loopback: Loopback, run: Path, base: str) -> None:
    card = loopback.files(base)["README.md"].decode().replace("license: apache-2.0", "license: other\nlicense_name: research")
    commit, repo = loopback.owner.call(put, base, {"README.md": card.encode()}), loopback.repository()
    change_bytes("config.toml", lambda text: text.replace(b'"pocket"', f'"{base}"'.encode()))(run)
    change_json("summary.json", base_commit=commit)(run)
    loopback.owner.call(push_adapter, run, repo)
    pushed = loopback.files(repo)
    assert f'model = "{base}@{commit}"' in pushed["config.toml"].decode()
    assert "license: other\nlicense_name: research\n" in pushed["README.md"].decode()


def test_the_base_is_pushed_once_and_only_with_files_that_it_loads_from(loopback: Loopback, base: str) -> None:
    assert loopback.owner.attempt(msgrpo, "push", "base", base).code == 0
    assert len(loopback.commits(base)) == 2
    local = {path.name: path.read_bytes() for path in pocket_path().iterdir() if path.name != "README.md"}
    assert local.items() <= loopback.files(base).items()
    assert set(loopback.files(base)) == {*local, "README.md", "replay.svg"}
