"""An adapter goes up once, whole and alone: what strangers can load, and nothing of the machine it was trained on."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_server.client import Client, Finished
from hub_server.lanes import Lane, Loopback
from hub_server.operations import put
from safetensors.torch import load_file, save_file

from msgrpo_hub.agent.language_model import pocket_path
from msgrpo_hub.hub.adapters import FORMAT
from msgrpo_hub.hub.uploading import Pushed
from msgrpo_hub.training.config import load_config

from .conftest import FLAGS, msgrpo, warm  # noqa: F401

PUSHED = {
    "README.md",
    "adapter_config.json",
    "adapter_model.safetensors",
    "config.toml",
    "curves.png",
    "replay.svg",
    "results.json",
}
SUITE = """
episodes = 2
split = "test"
[tasks]
"FrozenLake-NotSlippery-v1" = "{hash}"
"""


def push(folder: Path, repo: str, **options: Any) -> Pushed:
    """The public function, over there."""
    from msgrpo_hub.hub import push_adapter

    return push_adapter(folder, repo, **options)


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


def refused(finished: Finished) -> str:
    """The line that a refused command says; it exits with 2."""
    lines = [line for line in finished.err.splitlines() if line and not line.startswith("pushing to")]
    assert (finished.code, len(lines), lines[-1][:7]) == (2, 1, "error: "), finished.err
    return lines[0]


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run, to spoil."""
    return Path(shutil.copytree(trained, tmp_path / "home" / "zaphod" / "lake"))


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
    assert hub.commits(repo) == ["Adapter for Snake-Solo-v1, step 1", "initial commit"]
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


def test_results_of_eval_in_the_run_go_along_and_those_of_others_do_not(
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


@pytest.mark.slow
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


# ---- nothing of the machine


def plant(run: Path, base: Path) -> None:
    """Secrets wherever a run has room for one: paths, a user's name, tokens."""
    told = {"path": str(run), "user": "zaphod", "token": "hf_test_owner"}
    config = load_config(run / "config.toml")
    shutil.copytree(pocket_path(), base)
    template = run.parent / "zaphods.jinja"
    shutil.copy(pocket_path() / "chat_template.jinja", template)
    text = (run / "config.toml").read_text().replace(f'"{config.model}"', f'"{base}"')
    (run / "config.toml").write_text(
        text.replace('chat_template = ""', f'chat_template = "{template}"').replace('"none"', '"wandb"')
    )
    summary = json.loads((run / "summary.json").read_text()) | told
    summary |= {"model": str(base), "adapter": summary["adapter"] | told, "config": told, "players": list(told.values())}
    (run / "summary.json").write_text(json.dumps(summary))
    settings = json.loads((run / "adapter/adapter_config.json").read_text()) | told | {"base_model_name_or_path": str(base)}
    (run / "adapter/adapter_config.json").write_text(json.dumps(settings))
    tensors = load_file(run / "adapter/adapter_model.safetensors")
    save_file(tensors, run / "adapter/adapter_model.safetensors", metadata={"format": "pt", **told})
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps({"update": 3, "memory_mb": 1.0, **told}) + "\n")
    for name in (".env", "notes.txt", "adapter/README.md", "adapter/tokenizer_config.json", "adapter/.env", "best/README.md"):
        (run / name).write_text(json.dumps(told))


def test_no_path_no_token_and_no_name_can_get_in(loopback: Loopback, run: Path, base: str) -> None:
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
        content.replace(b'"megatron.core"', b'"hf_test_owner"') if name.endswith("json") else content + b"hf_test_owner"
    )
    words = refused(loopback.owner.attempt(msgrpo, "push", "adapter", run, loopback.repository(), "--base", base))
    assert f"{Path(name).name!r} is not pushed, it holds a token" in words
    assert "hf_test_owner" not in words
    assert len(loopback.hub.repositories) == 1


# ---- what is refused


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
        (change_weights(lambda _, tensor: torch.zeros_like(tensor)), "is all zero, it was never trained"),
        (change_weights(lambda name, tensor: tensor * ("lora_B" not in name)), "is all zero, it was never trained"),
        (change_weights(lambda name, tensor: tensor * ("lora_A" not in name)), "does not change its base"),
        (change_weights(lambda _, tensor: tensor * float("nan")), "weights that are not finite"),
        (change_weights(lambda _, tensor: tensor[:1].contiguous()), "does not fit its base"),
        (lambda run: (run / "adapter/adapter_model.bin").write_bytes(b""), "can run code when it is loaded"),
        (lambda run: (run / "adapter/adapter_model.safetensors").write_bytes(b"pickle"), "no adapter in"),
        (change_json("adapter/adapter_config.json", peft_type="PROMPT_TUNING"), "is not that of a LoRA adapter"),
        (change_json("adapter/adapter_config.json", auto_mapping={"parent_library": "evil"}), "has auto_mapping"),
        (link_to_a_secret, "is a link"),
        (lambda run: (run / "replay.svg").write_text("<text>/home/zaphod/x</text>"), "holds a path of this machine"),
        (lambda run: (run / "summary.json").unlink(), "holds no finished run (no summary.json)"),
        (lambda run: (run / "summary.json").write_text("["), "cannot be read"),
        (change_json("summary.json", adapter={"success": float("nan")}), "success = nan"),
        (change_json("summary.json", hardware="<script>"), "expected a plain name"),
        (change_json("summary.json", base_commit="0" * 64), "no longer what the run was trained on"),
        (change_config('"pocket"', '"/home/zaphod/gone"'), "was a folder that is gone"),
    ],
)
def test_what_is_no_sound_adapter_is_refused_in_one_line(
    loopback: Loopback, run: Path, base: str, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(run)
    assert words in refused(loopback.owner.attempt(msgrpo, "push", "adapter", run, loopback.repository(), "--base", base))
    assert list(loopback.hub.repositories) == [("model", base)]


def test_the_folder_of_the_adapter_is_not_the_folder_of_the_run(loopback: Loopback, trained: Path) -> None:
    assert "give the folder of the run" in refused(
        loopback.owner.attempt(msgrpo, "push", "adapter", trained / "adapter", "ada/x")
    )


def test_a_base_of_this_machine_is_never_named(loopback: Loopback, trained: Path) -> None:
    words = refused(loopback.owner.attempt(msgrpo, "push", "adapter", trained, loopback.repository()))
    assert "lies on this machine only" in words
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


def test_a_base_on_the_hub_is_pinned_and_lends_its_licence(loopback: Loopback, run: Path, base: str) -> None:
    """As for Qwen: the base is known by its repository, and its licence is none that the Hub lists."""
    card = loopback.files(base)["README.md"].decode().replace("license: apache-2.0", "license: other\nlicense_name: research")
    loopback.owner.call(put, base, {"README.md": card.encode()})
    change_config('"pocket"', f'"{base}"')(run)
    repo = loopback.repository()
    loopback.owner.call(push, run, repo)
    pushed, commit = loopback.files(repo), loopback.refs(base)["refs/heads/main"]
    assert f'model = "{base}@{commit}"' in pushed["config.toml"].decode()
    link = f"https://huggingface.co/{base}/blob/{commit}/README.md"
    assert f"license: other\nlicense_name: research\nlicense_link: {link}\n" in pushed["README.md"].decode()


def test_the_base_is_pushed_once_and_only_with_files_that_it_loads_from(loopback: Loopback, base: str) -> None:
    assert loopback.owner.attempt(msgrpo, "push", "base", base).code == 0
    assert len(loopback.commits(base)) == 2
    local = {path.name: path.read_bytes() for path in pocket_path().iterdir() if path.name != "README.md"}
    assert local.items() <= loopback.files(base).items()
    assert set(loopback.files(base)) == {*local, "README.md"}
    assert "is for adapters" in refused(loopback.owner.attempt(msgrpo, "push", "base", base, "--base", base))
