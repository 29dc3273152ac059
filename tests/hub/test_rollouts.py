"""Pushed episodes are a dataset that common tools read, that grows without rewriting, and that loads back equal."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import find_results
from msgrpo_hub.evaluation.suites import hash_of
from msgrpo_hub.evaluation.verify import verify_rollouts
from msgrpo_hub.games import episode_seed
from msgrpo_hub.hub.rollouts import load_rollouts as load_here
from msgrpo_hub.storage.schema import CONFIGS, EPISODE_COLUMNS, STEP_COLUMNS
from msgrpo_hub.storage.shards import shards
from msgrpo_hub.training.run_folder import FORMAT as CHECKPOINT
from tests.hub.commands import (
    EPISODES,
    LAKE,
    SUITE,
    files_of,
    load_rollouts,
    load_table,
    msgrpo,
    push_rollouts,
    refused,
    rows,
    sft_chats,
    write_files,
)
from tests.hub_server.client import LOADS_MODELS, put
from tests.hub_server.lanes import Loopback

warm = LOADS_MODELS

CARD = {"README.md", "replay.svg"}


# ---- what arrives


def test_a_run_is_one_private_commit_with_a_shard_of_each_table_per_block_as_a_dry_run_without_a_login_says(
    loopback: Loopback, saved: Path, tmp_path: Path
) -> None:
    repo, folder = loopback.repository("dataset"), tmp_path / "dry"
    done = loopback.nobody.attempt(msgrpo, "push", "rollouts", saved, repo, "--dry-run", folder, "--json")
    pushed = loopback.owner.call(push_rollouts, saved, repo)
    files = loopback.files(repo, "dataset")
    assert (files_of(folder), json.loads(done.out)["files"]) == (files, sorted(files))
    assert pushed.private
    assert set(files) == set(pushed.changed)
    names = {config: {name.partition("/")[2] for name in files if name.startswith(config)} for config in ("default", "steps")}
    assert names["default"] == names["steps"]
    plain = [re.sub("[0-9a-f]{8,}", "…", name) for name in sorted(names["steps"])]
    assert plain == [f"train-…-{n:05d}-{n:05d}-….parquet" for n in (1, 2, 3)]
    assert loopback.commits(repo, "dataset") == [f"{EPISODES} episodes of {LAKE}", "initial commit"]


def tuned(repo: str, folder: Path) -> Any:
    """The examples of a dataset as `SFTTrainer` reads them, and the loss of a step on them."""
    from datasets import load_dataset
    from trl import SFTConfig, SFTTrainer

    settings = SFTConfig(str(folder), max_steps=1, use_cpu=True, bf16=False, report_to=[], save_strategy="no")
    trainer = SFTTrainer(str(pocket_path()), args=settings, train_dataset=load_dataset(repo, "sft", split="train"))
    replies = [[token for token in row["labels"] if token >= 0] for row in trainer.train_dataset]
    return trainer.processing_class.batch_decode(replies), trainer.train().training_loss


@pytest.mark.slow
def test_trl_fine_tunes_on_a_pushed_dataset_as_it_is(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push_rollouts, saved, repo)
    steps = rows(loopback.files(repo, "dataset"), "steps")
    good = [step["reply"] for step in steps if step["selected"] and step["advantage"] > 0 and step["action"]]
    texts, loss = loopback.owner.call(tuned, repo, tmp_path)
    assert [text.removesuffix("<|end|>") for text in texts] == good != []
    assert 0 < loss < 20


def test_datasets_loads_and_streams_both_tables_with_the_columns_of_the_card(loopback: Loopback, saved: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push_rollouts, saved, repo)
    for config, columns in (("default", EPISODE_COLUMNS), ("steps", STEP_COLUMNS)):
        expected = rows(loopback.files(repo, "dataset"), config)
        for streaming in (False, True):
            found, features = loopback.owner.call(load_table, repo, config, split="train", streaming=streaming)
            assert (found, list(features), features["seed"]) == (expected, list(columns), "Value('int64')")
        assert len(expected) == EPISODES or config == "steps"
    assert features["log_probs"] == "List(Value('float64'))"
    assert features["prompt"] == "List({'role': Value('string'), 'content': Value('string')})"
    assert len(loopback.owner.call(load_table, repo, split="train")[0]) == EPISODES  # without the name of a table
    better = [(row["prompt"], row["reply"]) for row in expected if row["action"] and row["advantage"] > 0]
    assert loopback.owner.call(sft_chats, repo) == sft_chats(str(saved)) == better != []


def test_the_episodes_come_back_equal_and_are_of_one_commit(loopback: Loopback, saved: Path) -> None:
    repo = loopback.repository("dataset")
    pushed = loopback.owner.call(push_rollouts, saved, repo)
    played = load_here(saved)
    assert all(step.completion.log_probs and step.completion.entropies for episode in played for step in episode.steps)
    assert len(played) == len({(episode.seed, episode.member) for episode in played}) == EPISODES
    assert loopback.stranger.attempt(load_rollouts, repo).error == "UserError"  # it is private
    assert loopback.owner.call(load_rollouts, repo) == played
    assert loopback.owner.call(load_rollouts, repo, split="train", revision=pushed.commit) == played
    asked = loopback.requests("GET .*/resolve/.*parquet")
    assert asked == loopback.requests(f"GET .*/resolve/{pushed.commit}/.*parquet") != []


def test_a_row_has_the_advantage_and_selection_of_its_episode(loopback: Loopback, saved: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push_rollouts, saved, repo)
    files, groups = loopback.files(repo, "dataset"), dict[tuple[int, int], list[dict[str, Any]]]()
    for head in rows(files, "default"):
        groups.setdefault((head["update"], head["seed"]), []).append(head)
    assert sorted(update for update, _ in groups) == [1, 1, 2, 2, 3, 3]
    for group in groups.values():
        assert [head["member"] for head in group] == list(range(8))
        returns = [head["reward"] - head["unreadable"] - head["truncated_replies"] for head in group]
        mean = sum(returns) / 8
        spread = (sum((value - mean) ** 2 for value in returns) / 8) ** 0.5
        expected = [(value - mean) / (spread + 1e-8) if spread else 0.0 for value in returns]
        assert [head["advantage"] for head in group] == pytest.approx(expected, abs=1e-5)
        assert sum(head["selected"] for head in group) == (4 if spread else 0)
    assert any(head["selected"] for group in groups.values() for head in group)


def test_an_evaluation_becomes_its_splits_with_advantage_and_selection_left_empty(loopback: Loopback, evaluated: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push_rollouts, evaluated, repo)
    files = loopback.files(repo, "dataset")
    assert [len(rows(files, "default", split)) for split in ("train", "validation", "test")] == [0, 6, 8]
    for config in ("default", "steps"):
        assert {(row["advantage"], row["selected"], row["update"]) for row in rows(files, config)} == {(None, None, None)}
    assert {row["player"] for row in rows(files, "default")} == {"random", "optimal"}
    played = [episode for result in find_results(evaluated) for episode in result.episodes]
    assert sorted(loopback.owner.call(load_rollouts, repo), key=str) == sorted(played, key=str)
    seeds = [episode.seed for episode in loopback.owner.call(load_rollouts, repo, split="validation")]
    assert seeds == [episode_seed(LAKE, "validation", index) for _ in ("optimal", "random") for index in range(3)]
    assert loopback.owner.call(load_table, repo, "steps", split="test")[0] == rows(files, "steps", "test")


def test_a_push_advises_the_push_of_the_adapter_with_its_base_or_a_check(
    loopback: Loopback, saved: Path, evaluated: Path, base: str
) -> None:
    first, second = loopback.repository("dataset"), loopback.repository("dataset")
    advised = loopback.owner.attempt(msgrpo, "push", "rollouts", saved, first).err.partition("\nNext: msgrpo ")[2].split()
    assert advised == ["push", "adapter", str(saved), "USER/NAME", "--base", "USER/BASE", "--rollouts", first]
    advised[3], advised[5] = loopback.repository(), base
    assert loopback.owner.attempt(msgrpo, *advised).code == 0
    assert f"\nNext: msgrpo verify {evaluated}\n" in loopback.owner.attempt(msgrpo, "push", "rollouts", evaluated, second).err


# ---- growing


def test_more_training_adds_files_in_one_commit_and_rewrites_none(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    run, repo = Path(shutil.copytree(saved, tmp_path / "run")), loopback.repository("dataset")
    for path in (run / "rollouts").rglob("*-00003.parquet"):  # before the last update
        path.unlink()
    save_file({}, run / "checkpoint.safetensors", {CHECKPOINT: '{"progress": {"updates": 2}}'})
    loopback.owner.call(push_rollouts, run, repo)
    before = loopback.files(repo, "dataset")
    assert len(loopback.owner.call(load_rollouts, repo)) == 2 * 2 * 8

    second = loopback.owner.call(push_rollouts, saved, repo)
    after = loopback.files(repo, "dataset")
    changed = {name for name in before if before[name] != after[name]}
    assert "README.md" in changed <= CARD
    assert set(second.changed) == changed | (after.keys() - before.keys())
    shards = [name for name in after if name.startswith(CONFIGS)]
    assert (len(shards), len(loopback.commits(repo, "dataset"))) == (3 * 2, 3)
    assert loopback.owner.call(load_rollouts, repo) == load_here(saved)  # none lost, none twice


def test_published_shards_are_never_rewritten(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    """Another version of pyarrow writes other bytes for the same rows."""
    repo = loopback.repository("dataset")
    assert loopback.owner.attempt(msgrpo, "push", "rollouts", saved, repo, "--dry-run", tmp_path / "dry").code == 0
    for path in (tmp_path / "dry").rglob("*.parquet"):
        pq.write_table(pq.read_table(path), path, compression="snappy")
    loopback.owner.call(put, repo, files_of(tmp_path / "dry"), "dataset")
    old = loopback.files(repo, "dataset")
    assert loopback.owner.call(push_rollouts, saved, repo).changed == ()
    assert loopback.files(repo, "dataset") == old


def test_a_repository_with_other_episodes_or_anything_else_is_left_alone(
    loopback: Loopback, saved: Path, evaluated: Path
) -> None:
    repo, other = loopback.repository("dataset"), loopback.repository("dataset")
    loopback.owner.call(push_rollouts, evaluated, repo)
    loopback.owner.call(put, other, {"notes.txt": b"mine"}, "dataset")
    for name, words in ((repo, f"{repo!r} holds episodes of another run"), (other, "holds something else (notes.txt)")):
        assert words in refused(loopback.owner.attempt(msgrpo, "push", "rollouts", saved, name))
    assert set(loopback.files(other, "dataset")) == {"notes.txt"}


# ---- who sees it, and what


def test_a_new_dataset_is_private_unless_asked_and_an_old_one_keeps_its_visibility(loopback: Loopback, evaluated: Path) -> None:
    repo = loopback.repository("dataset")
    command = ("push", "rollouts", evaluated, repo)
    done = loopback.owner.attempt(msgrpo, *command, "--public", "--message", "Mine")
    assert (done.code, done.out) == (0, f"{loopback.endpoint}/datasets/{repo}\n"), done.err
    assert loopback.commits(repo, "dataset")[0] == "Mine"
    assert done.err.startswith(f"pushing to {repo} (public)\n")
    assert not loopback.owner.call(push_rollouts, evaluated, repo).private
    assert loopback.nobody.call(load_rollouts, repo)
    assert "is public, not private as requested" in refused(loopback.owner.attempt(msgrpo, *command, "--private"))


def test_no_path_or_name_of_the_machine_is_pushed(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    run, mine = tmp_path / "home" / "zaphod" / "run", tmp_path / "home" / "zaphod" / "my-base"
    shutil.copytree(saved, run)
    shutil.copytree(pocket_path(), mine)
    (run / "config.toml").write_text((run / "config.toml").read_text().replace('"pocket"', f'"{mine}"'))
    repo, suite = loopback.repository("dataset"), tmp_path / "tiny.toml"
    suite.write_text(SUITE.format(LAKE, 1, hash_of(LAKE)))
    flags = ("--suite", suite, "--max-new-tokens", 2, "--output-dir", run / "results")
    assert loopback.owner.attempt(msgrpo, "eval", mine, *flags).code == 0
    loopback.owner.call(push_rollouts, run, repo)
    files = loopback.files(repo, "dataset")
    told = [name.encode() for name in files] + [files["README.md"]]
    told += [json.dumps(rows(files, config)).encode() for config in ("default", "steps")]
    told += [pq.read_metadata(io.BytesIO(content)).metadata[b"ARROW:schema"] for name, content in files.items() if "/" in name]
    for secret in (b"zaphod", b"my-base", b"hf_test", b"/tmp/", b"/home/", str(tmp_path).encode()):
        assert not [text for text in told if secret in text], secret
    assert {row["base"] for row in rows(files, "default")} == {"folder"}


# ---- records that do not replay, and other files


def test_a_forged_success_is_found_and_not_loaded(saved: Path, tmp_path: Path) -> None:
    tables = {config: pq.ParquetFile(path).read() for config, path in zip(CONFIGS, shards(saved)[0], strict=True)}
    rows = {config: table.to_pylist() for config, table in tables.items()}
    lost = next(head for head in rows["default"] if not head["success"])
    for row in (lost, *(row for row in rows["steps"] if (row["seed"], row["member"]) == (lost["seed"], lost["member"]))):
        row["success"] = True
    for config, table in tables.items():
        (tmp_path / config).mkdir()
        pq.write_table(pa.Table.from_pylist(rows[config], schema=table.schema), tmp_path / config / "train-00001.parquet")
    words = "the record has success = True, where the rules say otherwise"
    assert words in "; ".join(problem for row in verify_rollouts(tmp_path) for problem in row["problems"])
    with pytest.raises(UserError, match=words):
        load_here(tmp_path)


def test_a_tampered_download_fails_verification_and_is_not_pushed(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    repo, run = loopback.repository("dataset"), Path(shutil.copytree(saved, tmp_path / "run"))
    loopback.owner.call(push_rollouts, saved, repo)
    folder = write_files(tmp_path / "downloaded", loopback.files(repo, "dataset"))
    for place in (saved, folder):
        done = loopback.nobody.attempt(msgrpo, "verify", place)
        assert (done.code, done.out) == (0, f"ok    {EPISODES:>6} episodes  training · {LAKE}\n"), done.err
    for path in (sorted(folder.glob("steps/*.parquet"))[1], run / "rollouts" / "steps" / "train-00002.parquet"):
        table = pq.ParquetFile(path).read()
        rewards = [7.0, *table["reward"].to_pylist()[1:]]
        pq.write_table(table.set_column(table.schema.get_field_index("reward"), "reward", [rewards]), path)
    done = loopback.nobody.attempt(msgrpo, "verify", folder)
    assert (done.code, done.out.startswith("WRONG")) == (2, True)
    assert re.search(r"train-\S+parquet, seed \d+, member \d: .*reward 7 on turn 1, where the rules give", done.out)
    words = refused(loopback.owner.attempt(msgrpo, "push", "rollouts", run, loopback.repository("dataset")))
    assert "does not replay" in words
    assert "reward 7 on turn 1, where the rules give 0" in words
    assert len(loopback.hub.repositories) == 1


def test_a_malformed_dataset_or_one_without_rollouts_is_refused_in_one_line(loopback: Loopback, evaluated: Path) -> None:
    repo, other = loopback.repository("dataset"), loopback.repository("dataset")
    loopback.owner.call(put, other, {"code.py": b"raise SystemExit"}, "dataset")
    done = loopback.owner.attempt(load_rollouts, other)
    assert (done.error, "no rollouts in" in done.message) == ("UserError", True)
    assert not loopback.requests("GET .*/resolve/")
    loopback.owner.call(push_rollouts, evaluated, repo)
    broken = {name: b"import os" for name in loopback.files(repo, "dataset") if name.startswith("steps")}
    loopback.owner.call(put, repo, broken, "dataset")
    done = loopback.owner.attempt(load_rollouts, repo)
    assert done.error == "UserError"
    assert re.fullmatch(".*cannot be read .*: expected Parquet in the format msgrpo-episodes-v2.*", done.message)
