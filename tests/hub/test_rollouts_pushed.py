"""Visibility of a rollout data set, and what it never contains."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq

from tests.hub.conftest import msgrpo, refused
from tests.hub.pushed_rollouts import load, push, rows
from tests.hub_server.lanes import Loopback

# ---- who sees it, and what


def test_visibility_applies_to_new_repositories_and_old_ones_keep_theirs(loopback: Loopback, evaluated: Path) -> None:
    repo = loopback.repository("dataset")
    done = loopback.owner.attempt(msgrpo, "push", "rollouts", evaluated, repo, "--public", "--message", "Mine")
    assert done.code == 0, done.err
    assert done.out == f"{loopback.endpoint}/datasets/{repo}\n"
    assert loopback.commits(repo, "dataset")[0] == "Mine"
    assert not loopback.owner.call(push, evaluated, repo).private
    again = loopback.owner.attempt(msgrpo, "push", "rollouts", evaluated, repo, "--json")
    assert json.loads(again.out)["commit"]
    assert loopback.nobody.call(load, repo)
    assert "is public, not private as requested" in refused(
        loopback.owner.attempt(msgrpo, "push", "rollouts", evaluated, repo, "--private")
    )
    told = loopback.owner.attempt(msgrpo, "push", "rollouts", evaluated, loopback.repository("dataset"))
    assert "a new one is private, unless --public is given" in told.err


def test_a_pull_request_and_a_branch_can_be_asked_for(loopback: Loopback, evaluated: Path) -> None:
    repo = loopback.repository("dataset")
    assert loopback.owner.call(push, evaluated, repo, create_pr=True).pull_request
    assert loopback.files(repo, "dataset") == {}
    loopback.owner.call(push, evaluated, repo, revision="evaluations")
    assert loopback.files(repo, "dataset") == {}
    assert len(loopback.files(repo, "dataset", "evaluations")) == 10
    assert len(loopback.owner.call(load, repo, revision="evaluations")) == 14


def test_a_dry_run_writes_exactly_what_a_push_sends_and_needs_no_login(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    repo, folder = loopback.repository("dataset"), tmp_path / "dry"
    done = loopback.nobody.attempt(msgrpo, "push", "rollouts", saved, repo, "--dry-run", folder, "--json")
    assert done.code == 0, done.err
    loopback.owner.call(push, saved, repo)
    written = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert written == loopback.files(repo, "dataset")
    assert json.loads(done.out)["files"] == sorted(written)


def test_no_path_or_name_of_the_machine_is_pushed(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    run, mine = tmp_path / "home" / "zaphod" / "run", tmp_path / "home" / "zaphod" / "my-base"
    shutil.copytree(saved, run)
    from msgrpo_hub.downloads.names import pocket_path

    shutil.copytree(pocket_path(), mine)
    (run / "config.toml").write_text((run / "config.toml").read_text().replace('"pocket"', f'"{mine}"'))
    repo = loopback.repository("dataset")
    loopback.owner.call(push, run, repo)
    files = loopback.files(repo, "dataset")
    told = [name.encode() for name in files] + [files["README.md"]]
    told += [json.dumps(rows(files, config)).encode() for config in ("default", "steps")]
    told += [pq.read_metadata(io.BytesIO(content)).metadata[b"ARROW:schema"] for name, content in files.items() if "/" in name]
    for secret in (b"zaphod", b"my-base", b"hf_test", b"/tmp/", b"/home/", str(tmp_path).encode()):
        assert not [text for text in told if secret in text], secret
    assert {row["base"] for row in rows(files, "default")} == {"folder"}


def test_a_record_that_does_not_replay_is_not_pushed(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(saved, tmp_path / "run"))
    path = run / "rollouts" / "steps" / "train-00002.parquet"
    table = pq.ParquetFile(path).read()
    column = table.schema.get_field_index("reward")
    pq.write_table(table.set_column(column, "reward", [[7.0, *table["reward"].to_pylist()[1:]]]), path)
    words = refused(loopback.owner.attempt(msgrpo, "push", "rollouts", run, loopback.repository("dataset")))
    assert "does not replay" in words
    assert "reward 7 on turn 1, where the rules give 0" in words
    assert not loopback.hub.repositories
